//! Tests the removal of a tenant from a shared store that another process serves.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Stdio};

use flowcell::{Host, RunOptions, RunStatus, Source, contract::Tenant, tenants::retention::Retention};
use flowcell_runtime::sql::Dialect;
use serde_json::json;

use super::{json as parse, run_ok};
use crate::{
    kit::{Owner, flowcell, output_of, stderr},
    servers,
};

const NAMES: [&str; 2] = ["acme", "acme-2"];
/// The row of a process that did not know of the removal.
const LATE: &str =
    "INSERT INTO flowcell_registry (tenant, kind, name, value, version) VALUES ('acme', 'usage', '1', '{}', 1)";
const KEY: &str = "file:store.key";

fn ask(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    parse(&run_ok(folder, arguments))
}

/// Fills a store with a run that waits and a secret of each tenant.
fn fill(folder: &Path, url: &str) {
    fs::write(folder.join("store.key"), "0123456789abcdef".repeat(4)).unwrap();
    fs::set_permissions(folder.join("store.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for name in NAMES {
        ask(folder, &["tenant", "create", name, "--store", url]);
        ask(folder, &["token", "create", name, "--store", url]);
        let host = Host::builder().cache_dir(crate::kit::CACHE).instances(1).server(url).build().unwrap();
        let host = host.for_tenant(Tenant::from(name));
        let text =
            "flow: { name: asks }\nnodes: [{ id: ok, type: control.gate, input: { prompt: Go, allowText: true } }]\n";
        let flow = host.load_source(Source { name: "asks.yaml".into(), text: text.into() }).unwrap();
        let runner = host.runner(&flow, RunOptions { run_id: Some("r".into()), ..RunOptions::default() }).unwrap();
        assert_eq!(runtime.block_on(runner.run()).status, RunStatus::Parked);
        let set = ["secret", "set", "token", "--tenant", name, "--from-env", "VALUE", "--secret-key", KEY];
        let mut command = flowcell(folder);
        command.args(set).args(["--store", url]).env("VALUE", "hunter2-hunter2").stdout(Stdio::null());
        assert!(command.status().unwrap().success());
    }
}

fn check_removal_on(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (folder, database) = (folder.path(), server.database());
    let url = server.url(&database);
    let store = ["--store", &*url];
    fill(folder, &url);
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--secret-key", KEY, "--store", &url];
    let _serving = Owner::start(folder, &arguments, "listening on");
    let stopped = ask(folder, &[&["tenant", "disable", "acme", "--stop"], &store[..]].concat());
    assert_eq!(stopped, json!({ "cancelled": 1, "notCancelled": [] }));
    let removal = [&["tenant", "delete", "acme", "--yes", "--secret-key", KEY], &store[..]].concat();
    let certificate = ask(folder, &removal);
    assert_eq!((&certificate["left"], &certificate["removed"]["rows"]["runs"]), (&json!({}), &json!(1)));
    assert_eq!((&certificate["keyDestroyed"], &certificate["overwritten"]), (&json!(false), &json!(false)));
    let copies = certificate["copies"].to_string();
    assert!(copies.contains("can be decrypted with the key of the store"), "{copies}");
    assert!(copies.contains("the database server may keep removed rows"), "{copies}");
    let list = |name: &str| output_of(folder, &[&["runs", "list", "--json", "--tenant", name], &store[..]].concat());
    assert!(stderr(&list("acme")).contains("does not exist"));
    assert_eq!(parse(&super::stdout(&list("acme-2")))[0]["status"], "parked");
    let secrets = ask(folder, &[&["secret", "list", "--tenant", "acme-2", "--secret-key", KEY], &store[..]].concat());
    assert_eq!(secrets[0]["name"], "token");
    // A process that did not know of the removal has written a row afterwards. The same command removes it.
    let write_late = || server.execute(&database, &[LATE]);
    write_late();
    let found = ask(folder, &[&["tenant", "delete", "acme"], &store[..]].concat());
    assert_eq!((&found["id"], &found["left"]), (&certificate["id"], &json!({ "registry": 1 })));
    assert_eq!(ask(folder, &removal)["left"], json!({}));
    // So does a pass of retention.
    write_late();
    let host = Host::builder().cache_dir(crate::kit::CACHE).instances(1).server(&url).build().unwrap();
    Retention::new(&host, Vec::new(), None).pass(host.now()).unwrap();
    let found = ask(folder, &[&["tenant", "delete", "acme"], &store[..]].concat());
    assert_eq!(found["left"], json!({}));
    assert_eq!(parse(&super::stdout(&list("acme-2")))[0]["status"], "parked");
    let listed = ask(folder, &[&["tenant", "list"], &store[..]].concat());
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn a_tenant_is_removed_from_mariadb() {
    check_removal_on(Dialect::MySql);
}

#[test]
fn a_tenant_is_removed_from_postgresql() {
    check_removal_on(Dialect::Postgres);
}
