//! The OpenAPI document: a golden file pins its content, and its routes must match the server.

use std::{fs, path::Path};

use crate::client::Served;

#[test]
fn the_document_equals_its_golden_file() {
    let served = Served::local();
    let document = served.get("/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    let came = format!("{}\n", serde_json::to_string_pretty(&document).unwrap());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/openapi.json");
    if std::env::var_os("BLESS").is_some() {
        return fs::write(file, came).unwrap();
    }
    assert_eq!(came, fs::read_to_string(file).unwrap(), "BLESS=1 accepts what came");
}

#[test]
fn every_route_is_in_the_document() {
    let served = Served::local();
    let document = served.get("/openapi.json").json();
    // MCP describes its own operations.
    let described = |path: &str| path != "/mcp";
    let routes = flowcell_server::route::routes();
    for route in routes.into_iter().filter(|route| described(&route.path)) {
        let method = route.method.as_str().to_lowercase();
        let operation = &document["paths"][&route.path][&method];
        assert!(operation["summary"].is_string(), "{route:?}");
        let needs = matches!(route.access, flowcell_server::route::Access::Needs(_));
        assert_eq!(operation["x-flowcell-scope"].is_string(), needs, "{route:?}");
        assert!(operation["security"].is_null(), "a server that asks for no token says so: {route:?}");
    }
}

#[test]
fn a_body_that_needs_no_members_is_optional() {
    let document = Served::local().get("/openapi.json").json();
    let mut count = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let body = &operation["requestBody"];
            // Webhooks take bodies of any kind.
            let Some(schema) = body["content"]["application/json"]["schema"]["$ref"].as_str() else { continue };
            let schema = document.pointer(schema.trim_start_matches('#')).unwrap();
            let needs_members =
                schema["required"].is_array() || schema["oneOf"].is_array() || schema["minProperties"].is_number();
            assert_eq!(body["required"], needs_members, "{method} {path}");
            count += 1;
        }
    }
    assert!(count > 20, "only {count} bodies");
}
