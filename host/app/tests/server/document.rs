//! The OpenAPI document: what it says is pinned, and what it says is so.

use std::{fs, path::Path, process::Command};

use crate::{client::Served, process};

#[test]
fn the_document_is_the_one_beside_this_test() {
    let served = Served::local();
    let document = served.get("/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    let came = format!("{}\n", serde_json::to_string_pretty(&document).unwrap());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/openapi.json");
    if std::env::var_os("BLESS").is_some() {
        return fs::write(file, came).unwrap();
    }
    assert_eq!(came, fs::read_to_string(file).unwrap(), "BLESS=1 accepts what came");
}

#[test]
fn every_route_is_in_the_document() {
    let served = Served::local();
    let document = served.get("/openapi.json").json();
    // What MCP offers it says itself.
    let described = |path: &str| path != "/mcp";
    let routes = flowcell::server::route::routes();
    for route in routes.into_iter().filter(|route| described(&route.path)) {
        let method = route.method.as_str().to_lowercase();
        let operation = &document["paths"][&route.path][&method];
        assert!(operation["summary"].is_string(), "{route:?}");
        let needs = matches!(route.access, flowcell::server::route::Access::Needs(_));
        assert_eq!(operation["x-flowcell-scope"].is_string(), needs, "{route:?}");
        assert!(operation["security"].is_null(), "a server that asks for no token says so: {route:?}");
    }
}

/// A tester that nobody here wrote makes requests from the document, and looks whether the answers are what it says.
#[test]
fn schemathesis_finds_nothing() {
    if Command::new("schemathesis").arg("--version").output().is_err() {
        eprintln!("skipped: there is no program `schemathesis`");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = process::serve(folder.path(), &[]);
    let output = Command::new("schemathesis")
        .args(["run", &format!("http://{address}/openapi.json"), "--max-examples", "20", "--seed", "1"])
        // What a flow is, and which ids there are, is not for a schema to say.
        .args(["--exclude-checks", "positive_data_acceptance"])
        .args(["--exclude-path-regex", "/(stream|socket)$", "--no-color"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(process::stop(child), Some(0));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}
