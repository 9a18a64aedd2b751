//! Pushes that stop, and exports of pushed flows.

use std::fs;

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    client::ask,
    kit::{output_of, stderr, stdout},
    posted::{Process, asking_flow, done, saying_flow},
    servers::{self, Server},
};

/// Returns a server with a database that is a store, the URL of the store, and an empty folder.
fn store() -> Option<(&'static Server, String, String, TempDir)> {
    let server = servers::server(Dialect::Postgres)?;
    let database = server.database();
    let url = server.url(&database);
    let folder = tempfile::tempdir().unwrap();
    done(folder.path(), &["store", "migrate", "--store", &url]);
    Some((server, database, url, folder))
}

#[test]
fn a_push_that_stops_says_what_was_pushed() {
    let Some((server, database, url, folder)) = store() else { return };
    let folder = folder.path();
    let write = |name: &str, flow: &Value| fs::write(folder.join(format!("{name}.json")), flow.to_string()).unwrap();
    ["one", "child", "last"].iter().for_each(|name| write(name, &saying_flow(name, "1")));
    let parent = json!({
        "flow": { "name": "parent" },
        "nodes": [{ "id": "sub", "type": "control.subflow", "input": { "name": "child", "input": {} } }],
    });
    write("parent", &parent);
    let push = |more: &[&str]| {
        output_of(folder, &[&["flows", "push", "one.json", "parent.json", "last.json", "--store", &url], more].concat())
    };
    // The database refuses one of the flows.
    server.execute(
        &database,
        &[
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'refused by a rule of the database'; END $$",
            "CREATE TRIGGER refuse BEFORE INSERT ON flowcell_registry FOR EACH ROW
                WHEN (convert_from(NEW.name, 'UTF8') LIKE 'parent/%') EXECUTE FUNCTION refuse()",
        ],
    );
    let stopped = push(&[]);
    assert_eq!(stopped.status.code(), Some(74), "{}", stderr(&stopped));
    let (printed, said) = (stdout(&stopped), stderr(&stopped));
    let names: Vec<_> = printed.lines().map(|line| line.split_once("  ").unwrap().0).collect();
    assert_eq!(names, ["one", "child"], "{printed}");
    for part in ["refused by a rule", "pushed: one v1, child v1", "not pushed: parent, last.json", "no second version"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let stopped = push(&["--json"]);
    let printed: Value = serde_json::from_str(&stdout(&stopped)).unwrap();
    let names: Vec<_> = (0..2).map(|index| &printed[index]["name"]).collect();
    assert_eq!((stopped.status.code(), names), (Some(74), vec![&json!("one"), &json!("child")]), "{printed}");
    assert_eq!((&printed[2], &printed[3]), (&json!({ "notPushed": "parent" }), &json!({ "notPushed": "last.json" })));
    server.execute(&database, &["DROP TRIGGER refuse ON flowcell_registry"]);
    // A file that is no flow pushes nothing of its own.
    fs::write(folder.join("parent.json"), "{").unwrap();
    let broken = push(&[]);
    assert_eq!(broken.status.code(), Some(2), "{}", stderr(&broken));
    assert!(stderr(&broken).contains("not pushed: parent.json, last.json"), "{}", stderr(&broken));
    write("parent", &parent);
    let pushed: Value = serde_json::from_str(&stdout(&push(&["--json"]))).unwrap();
    let versions: Vec<_> = pushed.as_array().unwrap().iter().map(|flow| (&flow["name"], &flow["version"])).collect();
    let expected = ["one", "child", "parent", "last"].map(|name| (json!(name), json!(1)));
    assert_eq!(versions, expected.iter().map(|(name, version)| (name, version)).collect::<Vec<_>>());
    // The log has what was pushed, and nothing else.
    let log = done(folder, &["audit", "list", "local", "--store", &url]);
    assert_eq!((log.matches("parent v1").count(), log.matches("one v1").count()), (1, 4), "{log}");
}

#[test]
fn the_export_of_a_tenant_has_its_posted_flows() {
    let Some((server, database, url, folder)) = store() else { return };
    let folder = folder.path();
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
