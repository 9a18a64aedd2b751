//! The files beside posted flows: they are read, changed and removed over HTTP, and pushed with their test cases.

use std::fs;

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};

use crate::posted::{Process, asking_flow, done, late, store};

const CASES: &str = "cases: [{ name: it asks, expect: { status: parked } }]";

#[test]
fn files_beside_a_posted_flow_are_versions_of_it() {
    let Some(url) = store(Dialect::Postgres) else { return };
    let (a, b) = (Process::start(&url), Process::start(&url));
    let files = |query: &str| a.get(&format!("/v1/flows/asks/files{query}"));
    let change = |process: &Process, body: Value| process.ask("POST", "/v1/flows/asks/files", &body);
    assert_eq!(a.post_version(&asking_flow(), &late("First?")), 1);
    let listed = files("").json();
    let file = json!({ "path": "prompts/late.md", "bytes": 6 });
    assert_eq!(listed, json!({ "name": "asks", "version": 1, "source": "store", "files": [file] }));
    assert_eq!(files("?path=prompts/late.md").json()["files"][0]["text"], "First?");

    // Each change is a version with the same text. It counts for the version that its sender knows.
    let set = json!({ "set": { "prompts/late.md": "Second?", "asks.test.yaml": CASES }, "ifVersion": 1 });
    let changed = change(&a, set.clone());
    assert_eq!((changed.status, changed.header("location")), (201, Some("/v1/flows/asks")), "{changed:?}");
    assert_eq!(changed.json()["version"], 2);
    let late = change(&b, json!({ "set": { "prompts/late.md": "Lost?" }, "ifVersion": 1 }));
    assert_eq!(
        (late.fault(), &late.json()["error"]["details"]["version"]),
        ((409, "version_conflict".into()), &json!(2))
    );
    assert_eq!(files("?path=prompts/late.md").json()["files"][0]["text"], "Second?");
    assert_eq!(files("?version=1&path=prompts/late.md").json()["files"][0]["text"], "First?");
    assert_eq!(change(&a, json!({ "set": { "prompts/late.md": "Second?" } })).json()["version"], 2, "nothing changes");

    // The stored cases run, in every process.
    b.wait_for_version("asks", Some(2));
    let ran = b.ask("POST", "/v1/test/cases", &json!({ "flow": "asks" }));
    assert_eq!((ran.status, &ran.json()["passed"]), (200, &json!(1)), "{ran:?}");

    // A change that the flow cannot run with, and hostile paths and sizes, change nothing.
    let refused = change(&a, json!({ "remove": ["prompts/late.md"] }));
    assert_eq!(refused.fault(), (422, "invalid_flow".to_owned()));
    for path in ["../up.md", "/etc/hostname", ".hidden", "a/.b/c.md", "a\u{202e}dm.md", "a//b", "", &"a".repeat(256)] {
        assert_eq!(change(&a, json!({ "set": { path: "x" } })).fault(), (422, "invalid_file".to_owned()), "{path:?}");
    }
    for body in [
        json!({ "remove": ["none.md"] }),
        json!({ "set": { "big.md": "x".repeat(7 << 20), "b": "x".repeat(1 << 20) } }),
    ] {
        let answer = change(&a, body);
        assert!(
            [(422, "invalid_file".to_owned()), (413, "too_large".to_owned())].contains(&answer.fault()),
            "{answer:?}"
        );
    }
    for body in [json!({ "set": null }), json!({ "remove": null }), json!({ "set": { "a": null } })] {
        assert_eq!(change(&a, body.clone()).fault(), (400, "bad_request".to_owned()), "{body}");
    }
    assert_eq!(files("").json()["version"], 2);

    // The files are removed with their flow.
    assert_eq!(change(&a, json!({ "remove": ["asks.test.yaml"] })).json()["version"], 3);
    assert_eq!(a.ask("DELETE", "/v1/flows/asks", &Value::Null).status, 204);
    assert_eq!(files("").fault(), (404, "flow_not_found".to_owned()));
    assert_eq!(change(&a, set).fault(), (404, "flow_not_found".to_owned()));
}

#[test]
fn a_push_takes_the_test_cases_of_a_flow() {
    let Some(url) = store(Dialect::Postgres) else { return };
    let a = Process::start(&url);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("prompts")).unwrap();
    fs::write(folder.path().join("prompts/late.md"), "Really?").unwrap();
    fs::write(folder.path().join("file.json"), asking_flow().to_string()).unwrap();
    // The cases have the name of the file in the folder, and that of the flow in the store.
    fs::write(folder.path().join("file.test.yaml"), CASES).unwrap();
    done(folder.path(), &["flows", "push", "file.json", "--store", &url]);
    a.wait_for_version("asks", Some(1));
    let listed = a.get("/v1/flows/asks/files").json();
    let paths: Vec<_> = listed["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["asks.test.yaml", "prompts/late.md"]);
    assert_eq!(a.ask("POST", "/v1/test/cases", &json!({ "flow": "asks" })).json()["passed"], 1);
}
