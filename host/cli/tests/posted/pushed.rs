//! Exports of pushed flows.

use std::fs;

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};

use crate::{
    Process, asking_flow,
    client::ask,
    done,
    kit::{output_of, stderr},
    saying_flow, servers,
};

#[test]
fn the_export_of_a_tenant_has_its_posted_flows() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let database = server.database();
    let url = server.url(&database);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["store", "migrate", "--store", &url]);
    let run = |arguments: &[&str]| done(folder, &[arguments, &["--store", &url]].concat());
    let push = |flow: &Value, tenant: &str| {
        fs::write(folder.join("flow.json"), flow.to_string()).unwrap();
        run(&["flows", "push", "flow.json", "--tenant", tenant]);
    };
    ["a", "ab"].iter().for_each(|tenant| drop(run(&["tenant", "create", tenant])));
    fs::create_dir_all(folder.join("prompts")).unwrap();
    fs::write(folder.join("prompts/late.md"), "Late?").unwrap();
    push(&saying_flow("hidden", "1"), "a");
    push(&saying_flow("hidden", "2"), "a");
    push(&asking_flow(), "a");
    push(&saying_flow("gone", "1"), "a");
    run(&["flows", "remove", "gone", "--tenant", "a"]);
    push(&saying_flow("hidden", "of another tenant"), "ab");
    // Paths that no folder can have at the same time.
    let token: Value = serde_json::from_str(&run(&["token", "create", "a"])).unwrap();
    let process = Process::start(&url);
    let header = format!("Bearer {}", token["token"].as_str().unwrap());
    let body = json!({ "flow": saying_flow("odd", "1"), "files": { "x": "file", "x/y": "below it", "CON": "name" } });
    let odd = ask(process.address, "POST", "/v1/flows", &[("Authorization", &header)], &body.to_string());
    assert_eq!(odd.status, 201, "{odd:?}");
    // A flow of the folder hides the posted one.
    fs::create_dir_all(folder.join("flows/.tenants/a/flows")).unwrap();
    fs::write(folder.join("flows/.tenants/a/flows/hidden.json"), saying_flow("hidden", "folder").to_string()).unwrap();
    let manifest: Value = serde_json::from_str(&run(&["tenant", "export", "a", "out"])).unwrap();
    assert_eq!((&manifest["postedVersions"], &manifest["flowFiles"]), (&json!(4), &json!(1)), "{manifest}");
    assert!(!manifest["notExported"].to_string().contains("posted"), "{manifest}");
    let read = |file: &str| fs::read_to_string(folder.join("out").join(file)).unwrap();
    let lines: Vec<Value> = read("posted.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let versions: Vec<_> =
        lines.iter().map(|line| (line["name"].as_str().unwrap(), line["version"].as_u64())).collect();
    assert_eq!(versions, [("asks", Some(1)), ("hidden", Some(1)), ("hidden", Some(2)), ("odd", Some(1))]);
    let exported: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(&read(line["exportedAs"].as_str().unwrap())).unwrap()).collect();
    assert_eq!(exported[0]["files"], json!({ "prompts/late.md": "Late?" }));
    assert_eq!(exported[1]["text"], saying_flow("hidden", "1").to_string());
    assert_eq!((&exported[2]["by"], &exported[2]["digest"]), (&json!("operator"), &lines[2]["digest"]));
    assert_eq!(exported[3]["files"], body["files"]);
    assert_eq!(fs::read_dir(folder.join("out/posted")).unwrap().count(), 4);
    assert!(!read("posted.jsonl").contains("of another tenant"));
    process.stop();
    // The export is not whole without the text of a version.
    server.execute(&database, &["DELETE FROM flowcell_registry WHERE convert_from(name, 'UTF8') LIKE 'odd/%'"]);
    let broken = output_of(folder, &["tenant", "export", "a", "broken", "--store", &url]);
    assert_eq!(broken.status.code(), Some(74), "{}", stderr(&broken));
    assert!(stderr(&broken).contains("the text of version 1 of `odd` is missing"), "{}", stderr(&broken));
    assert!(!folder.join("broken/manifest.json").exists());
}
