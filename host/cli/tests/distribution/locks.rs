//! Tests packs from files and URLs, and the lock that pins them.

use std::fs;

use flowcell::{
    Error, Host,
    packs::{InstallError, PackStore},
};
use serde_json::json;

use crate::{
    distribution::{
        pack::{Version, acme},
        project::Project,
    },
    outside::server::{Server, answer},
};

#[test]
fn a_pack_from_a_file_is_pinned_and_runs_from_the_lock_alone() {
    let project = Project::new();
    project.pack("acme.wasm", Version::First);
    let shown = project.done(&["node", "install", "./acme.wasm"]);
    for part in
        ["acme 0.1.0", "acme.greet", "asks for `log`: to say whom it greets", "imports", "sha256:", "not signed"]
    {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let lock = project.lock();
    for part in ["version: 1", "acme@0.1.0:", "source: ./acme.wasm", "digest: sha256:", "acme.greet:", "- log"] {
        assert!(lock.contains(part), "{part}\n{lock}");
    }
    assert_eq!(project.kept_by_engines(), Vec::<String>::new(), "nothing was compiled");
    fs::remove_file(project.path().join("acme.wasm")).unwrap();
    assert_eq!(project.greeting("0.1"), json!({ "greet": { "text": "Hello Ada" } }));
    // Every command that uses node types also uses those of the lock.
    assert!(project.done(&["validate", "greeting.yaml"]).contains("valid (1 node"));
    // A type is listed once, although a folder holds the same pack.
    fs::create_dir(project.path().join("packs")).unwrap();
    project.pack("packs/acme.wasm", Version::First);
    for arguments in [&["nodes"][..], &["nodes", "--packs", "packs"]] {
        assert_eq!(project.done(arguments).matches("acme.greet@0.1.0").count(), 1, "{arguments:?}");
    }
    assert!(project.done(&["node", "run", "acme.greet", "-i", "name=Bo"]).contains(r#""text": "Hello Bo""#));
    project.done(&["node", "uninstall", "acme"]);
    project.run_refused(&["validate", "greeting.yaml"], &["acme.greet"]);
    project.run_refused(&["node", "uninstall", "acme"], &["`acme` is not installed"]);
}

#[test]
fn a_program_that_embeds_a_host_can_use_the_lock() {
    let project = Project::new();
    project.pack("acme.wasm", Version::First);
    project.done(&["node", "install", "./acme.wasm"]);
    let host = |store: &str| {
        let builder =
            Host::builder().cache_dir(crate::kit::CACHE).instances(1).lock(project.path().join("flowcell.lock"));
        builder.pack_store(PackStore::at(project.path().join(store))).build()
    };
    assert!(host("cache/packs").unwrap().catalog().names().any(|name| name == "acme.greet"));
    let missing = host("elsewhere").err().unwrap();
    assert!(matches!(missing, Error::Installed(InstallError::Missing { .. })), "{missing}");
}

#[test]
fn two_versions_of_a_pack_work_in_one_flow() {
    let project = Project::new();
    project.pack("first.wasm", Version::First);
    project.pack("second.wasm", Version::Second);
    project.done(&["node", "install", "./first.wasm"]);
    let shown = project.done(&["node", "install", "./second.wasm"]);
    assert!(shown.contains("compared with the installed acme@0.1.0:\n  needs the same capabilities"), "{shown}");
    project.write(
        "both.yaml",
        br#"flow: { name: both, outputs: { texts: "{{ [old.text, new.text] }}" } }
nodes:
  - { id: old, type: acme.greet@0.1, input: { name: Ada } }
  - { id: new, type: acme.greet@0.2, input: { name: Bo } }
edges: [{ from: old, to: new }]
"#,
    );
    let said = project.done(&["run", "--quiet", "--store", "memory:", "both.yaml"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said, json!({ "texts": ["Hello Ada", "Hello Bo"] }));
    project.done(&["node", "uninstall", "acme@0.1.0"]);
    project.run_refused(&["validate", "both.yaml"], &["acme.greet"]);
    assert!(!project.lock().contains("acme@0.1.0"));
}

#[test]
fn a_version_with_more_capabilities_needs_an_approval() {
    let project = Project::new();
    project.pack("first.wasm", Version::First);
    project.pack("greedy.wasm", Version::Greedy);
    project.done(&["node", "install", "./first.wasm"]);
    let before = project.lock();
    let words =
        ["acme@0.3.0 needs more capabilities than acme@0.1.0", "+ acme.greet: http", "- acme.greet: log", "--approve"];
    project.run_refused(&["node", "install", "./greedy.wasm"], &words);
    assert_eq!(project.lock(), before);
    project.done(&["node", "install", "./greedy.wasm", "--approve"]);
    assert!(project.lock().contains("acme@0.3.0"));
    // The pack was approved before.
    project.done(&["node", "install", "./greedy.wasm"]);
}

#[test]
fn missing_packs_of_the_lock_are_downloaded_and_checked() {
    let (project, file) = (Project::new(), "acme.wasm");
    project.pack(file, Version::First);
    project.done(&["node", "install", "./acme.wasm"]);
    fs::remove_file(project.stored_pack()).unwrap();
    project.run_refused(
        &["nodes"],
        &["acme@0.1.0 is in the lock file, but not downloaded", "download it with `flowcell node install`"],
    );
    project.done(&["node", "install"]);
    project.greeting("0.1");
    // An installed pack does not need its source.
    fs::remove_file(project.path().join(file)).unwrap();
    project.done(&["node", "install"]);
    fs::remove_file(project.stored_pack()).unwrap();
    project.run_refused(&["node", "install"], &["does not exist"]);
}

#[test]
fn an_invalid_lock_is_reported_with_its_place() {
    let project = Project::new();
    for (lock, words) in [
        ("version: 9\npacks: {}\n", ["flowcell.lock: line 1", "this program reads version 1"]),
        ("version: 1\npacks: {}\nextra: 1\n", ["flowcell.lock: line 3", "extra"]),
        ("version: 1\npacks:\n  acme: {}\n", ["flowcell.lock: line 3", "is not a pack with its version"]),
        ("version: [\n", ["flowcell.lock: line", "help:"]),
    ] {
        project.write("flowcell.lock", lock.as_bytes());
        project.run_refused(&["nodes"], &words);
        project.run_refused(&["node", "install"], &words);
    }
    project.run_refused(&["nodes", "--lock", "none.lock"], &["cannot read none.lock"]);
}

#[test]
fn a_pack_from_a_url_is_pinned_by_its_digest() {
    let server = Server::start(|seen, _| {
        let path = seen.head.split(' ').nth(1).unwrap();
        let served = |bytes: Vec<u8>| {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len());
            [head.into_bytes(), bytes].concat()
        };
        match path {
            "/acme.wasm" => served(acme(Version::First)),
            "/moved.wasm" => answer("302 Found", &[("location", "/acme.wasm")], "").into_bytes(),
            "/away.wasm" => answer("302 Found", &[("location", "http://10.0.0.1/acme.wasm")], "").into_bytes(),
            "/round.wasm" => answer("302 Found", &[("location", "/round.wasm")], "").into_bytes(),
            "/large.wasm" => b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n".to_vec(),
            _ => answer("404 Not Found", &[], "").into_bytes(),
        }
    });
    let project = Project::new();
    let url = |path: &str| format!("{}/{path}", server.origin());
    project.done(&["node", "install", &url("acme.wasm")]);
    assert!(project.lock().contains(&url("acme.wasm")));
    fs::remove_file(project.stored_pack()).unwrap();
    project.run_refused(&["node", "install", "--offline"], &["is not downloaded, and `--offline` forbids connections"]);
    project.done(&["node", "install"]);
    let asked = server.seen().len();
    project.done(&["node", "install", "--offline"]);
    project.done(&["node", "install", &url("acme.wasm"), "--offline"]);
    project.greeting("0.1");
    assert_eq!(server.seen().len(), asked, "nobody was asked");
    project.done(&["node", "install", &url("moved.wasm")]);
    project.run_refused(&["node", "install", &url("none.wasm")], &["does not exist"]);
    project.run_refused(&["node", "install", &url("away.wasm")], &["without TLS"]);
    project.run_refused(&["node", "install", &url("round.wasm")], &["more than 5 times"]);
    project.run_refused(&["node", "install", "http://example.com/a.wasm"], &["use `https://`"]);
}
