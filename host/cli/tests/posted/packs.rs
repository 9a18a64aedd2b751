//! Tests packs that operators push to a shared store.

use std::{fs, path::Path, thread};

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    distribution::pack::{Version, acme, digest},
    kit::{output_of, stderr},
    posted::{PATIENCE, PROMISED, Process, done, store},
    proxy::{Behaviour, Proxy},
    servers,
};

const GREETS: &str = "/v1/nodes/acme.greet";

/// A flow that asks first, and then greets with version 0.1 of the pack `acme`.
fn greeting() -> Value {
    json!({
        "flow": { "name": "greeting", "outputs": { "text": "{{ greet.text }}" } },
        "nodes": [
            { "id": "ask", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes"] } },
            { "id": "greet", "type": "acme.greet@0.1", "input": { "name": "Ada" } },
        ],
        "edges": [{ "from": "ask", "to": "greet" }],
    })
}

/// Returns a folder with versions of the pack `acme` in files.
fn versions(all: &[(&str, Version)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    all.iter().for_each(|(file, version)| fs::write(folder.path().join(file), acme(*version)).unwrap());
    folder
}

/// Runs `flowcell packs` with a command that has to fail with these words.
#[track_caller]
fn refused(folder: &Path, arguments: &[&str], words: &str) {
    let output = output_of(folder, arguments);
    assert!(!output.status.success() && stderr(&output).contains(words), "{words}: {}", stderr(&output));
}

/// Waits until a process has a node type, or no longer has it, at most for the promised time.
#[track_caller]
fn agrees(process: &Process, node_type: &str, has: bool) {
    process.wait_for(&format!("/v1/nodes/{node_type}"), PROMISED, |answer| (answer.status == 200) == has);
}

fn check_pushed_packs_on(dialect: Dialect) {
    let Some(url) = store(dialect) else { return };
    let (a, b) = (Process::start(&url), Process::start(&url));
    let place = versions(&[
        ("first.wasm", Version::First),
        ("altered.wasm", Version::Altered),
        ("second.wasm", Version::Second),
    ]);
    let folder = place.path();
    let pushed = done(folder, &["packs", "push", "./first.wasm", "--store", &url]);
    assert!(pushed.contains("acme@0.1.0  sha256:") && pushed.contains(&digest(&acme(Version::First))), "{pushed}");
    [&a, &b].iter().for_each(|process| agrees(process, "acme.greet@0.1", true));
    assert_eq!(a.post_version(&greeting(), &json!({})), 1);
    b.wait_for_version("greeting", Some(1));
    assert_eq!(b.run("greeting", "one")["status"], "parked");

    // The same pack again changes nothing, and a version never changes.
    done(folder, &["packs", "push", "first.wasm", "--store", &url]);
    refused(folder, &["packs", "push", "altered.wasm", "--store", &url], "is already published as sha256:");
    // An installed pack is pushed by its name.
    done(folder, &["node", "install", "./second.wasm"]);
    refused(folder, &["packs", "push", "acme@0.1.0", "--store", &url], "has no pack `acme@0.1.0`");
    done(folder, &["packs", "push", "acme", "--store", &url]);
    [&a, &b].iter().for_each(|process| agrees(process, "acme.greet@0.2", true));
    // The pack of the folder hides those of the store.
    let listed = done(folder, &["packs", "list", "--store", &url]);
    assert!(
        listed.contains("  lock\n") && listed.contains("not used: this process has packs of this name"),
        "{listed}"
    );
    let elsewhere = tempfile::tempdir().unwrap();
    let listed = done(elsewhere.path(), &["packs", "list", "--store", &url]);
    assert_eq!(listed.matches("  store\n").count(), 2, "{listed}");

    // A removed pack is gone everywhere. A run that has begun keeps it, also in another process.
    done(folder, &["packs", "remove", "acme@0.1.0", "--store", &url]);
    refused(folder, &["packs", "remove", "acme@0.1.0", "--store", &url], "the shared store does not have `acme@0.1.0`");
    [&a, &b].iter().for_each(|process| agrees(process, "acme.greet@0.1", false));
    assert_eq!(a.ask("POST", "/v1/runs", &json!({ "flow": "greeting" })).status, 422);
    b.stop();
    assert_eq!(a.ask("POST", "/v1/runs/one/gates/ask/reply", &json!({ "answer": "yes" })).status, 200);
    a.wait_for("/v1/runs/one", PATIENCE, |answer| {
        assert_ne!(answer.json()["status"], "failed", "{answer:?}");
        answer.json()["outputs"] == json!({ "text": "Hello Ada" })
    });
    let log = done(folder, &["audit", "list", "local", "--store", &url]);
    assert!(log.contains("pack.push") && log.contains("pack.remove"), "{log}");
}

#[test]
fn packs_that_are_pushed_at_one_process_run_at_another_on_mariadb() {
    check_pushed_packs_on(Dialect::MySql);
}

#[test]
fn packs_that_are_pushed_at_one_process_run_at_another_on_postgresql() {
    check_pushed_packs_on(Dialect::Postgres);
}

#[test]
fn n29_changed_untrusted_and_hostile_packs_of_the_store_are_not_used() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let (database, place) = (server.database(), versions(&[("first.wasm", Version::First)]));
    let (url, folder) = (server.url(&database), place.path());
    done(folder, &["store", "migrate", "--store", &url]);
    fs::write(folder.join("large.wasm"), vec![0; (32 << 20) + 1]).unwrap();
    fs::write(folder.join("no-pack.wasm"), "no pack").unwrap();
    refused(folder, &["packs", "push", "large.wasm", "--store", &url], "is refused");
    refused(folder, &["packs", "push", "no-pack.wasm", "--store", &url], "is refused");
    refused(folder, &["packs", "push", "none.wasm", "--store", &url], "does not exist");
    refused(folder, &["packs", "push", "../first", "--store", &url], "does not exist");
    refused(folder, &["packs", "push", "first.wasm"], "a shared store, and none is named");
    if let Some(catalog) = std::env::var_os("FLOWCELL_CATALOG") {
        fs::copy(Path::new(&catalog).join("flowcell_control.wasm"), folder.join("control.wasm")).unwrap();
        refused(folder, &["packs", "push", "control.wasm", "--store", &url], "is reserved");
    }
    let list = || done(tempfile::tempdir().unwrap().path(), &["packs", "list", "--store", &url]);
    assert_eq!(list(), "");
    done(folder, &["packs", "push", "first.wasm", "--store", &url]);
    assert!(list().contains("  store\n"), "{}", list());

    // A process that trusts no unsigned packs does not use it.
    let strict = tempfile::tempdir().unwrap();
    fs::write(strict.path().join("flowcell.trust.yaml"), "unsigned: refuse\n").unwrap();
    let strict = Process::start_in(strict, &url);
    assert_eq!(strict.get(GREETS).status, 404);
    let listed = done(strict.folder.path(), &["packs", "list", "--store", &url]);
    assert!(listed.contains("not used: acme@0.1.0 is not trusted: it is not signed"), "{listed}");

    // A run that has begun does not read the operators' bytes. New processes notice that they were changed.
    let before = Process::start(&url);
    before.post_version(&greeting(), &json!({}));
    assert_eq!(before.run("greeting", "one")["status"], "parked");
    let hash = digest(&acme(Version::First));
    server.execute(
        &database,
        &[&format!("UPDATE flowcell_blobs SET bytes = '\\x00' WHERE tenant = '' AND hash = '{hash}'")],
    );
    assert!(list().contains("not used: its bytes were changed in the store"), "{}", list());
    let after = Process::start(&url);
    assert_eq!((after.get(GREETS).status, before.get(GREETS).status), (404, 200));
    assert_eq!(after.ask("POST", "/v1/runs", &json!({ "flow": "greeting" })).status, 422);
    // Another push restores bytes that are missing, and running processes read them.
    server.execute(&database, &[&format!("DELETE FROM flowcell_blobs WHERE tenant = '' AND hash = '{hash}'")]);
    done(folder, &["packs", "push", "first.wasm", "--store", &url]);
    agrees(&after, "acme.greet", true);
    // A row that names other bytes does not give them the name, and a damaged list keeps the known packs.
    let other = digest(&acme(Version::Second));
    let rename = format!(
        "UPDATE flowcell_registry SET value = convert_to(replace(convert_from(value, 'UTF8'), '{hash}', '{other}'), 'UTF8'), \
         version = version + 1 WHERE kind = 'packs'"
    );
    server.execute(&database, &[&rename]);
    assert!(list().contains("not used: the store does not have its bytes"), "{}", list());
    before.wait_for(GREETS, PROMISED, |answer| answer.status == 404);
    server
        .execute(&database, &["UPDATE flowcell_registry SET value = '[]', version = version + 1 WHERE kind = 'packs'"]);
    assert_eq!(list(), "");
    assert_eq!(before.get("/v1/flows").status, 200);
    assert_eq!(before.ask("POST", "/v1/runs/one/gates/ask/reply", &json!({ "answer": "yes" })).status, 200);
    before.wait_for("/v1/runs/one", PATIENCE, |answer| answer.json()["status"] == "succeeded");
}

#[test]
fn a_push_survives_an_outage_of_the_database() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let (database, place) = (server.database(), versions(&[("first.wasm", Version::First)]));
    let (url, folder, proxy) = (server.url(&database), place.path(), Proxy::to(server.port));
    done(folder, &["store", "migrate", "--store", &url]);
    let through = server.url_by(proxy.port, &database);
    // The answer to a commit is lost, so the push looks at what is there.
    proxy.set_behaviour(Behaviour::CutAfterCommit);
    done(folder, &["packs", "push", "first.wasm", "--store", &through]);
    assert!(proxy.cuts() > 0, "no commit was cut");
    assert!(done(folder, &["packs", "list", "--store", &url]).contains("acme@0.1.0"));
    proxy.set_behaviour(Behaviour::CutBeforeCommit);
    done(folder, &["packs", "remove", "acme", "--store", &through]);
    assert_eq!(done(folder, &["packs", "list", "--store", &url]), "");
    // Of two pushes at once both are there.
    proxy.set_behaviour(Behaviour::Carry);
    fs::write(folder.join("second.wasm"), acme(Version::Second)).unwrap();
    thread::scope(|scope| {
        for file in ["first.wasm", "second.wasm"] {
            let url = &url;
            scope.spawn(move || done(folder, &["packs", "push", file, "--store", url]));
        }
    });
    assert_eq!(done(folder, &["packs", "list", "--store", &url]).lines().count(), 2);
}

#[test]
fn a_pushed_pack_keeps_its_first_signature() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let (url, place) = (server.url(&server.database()), versions(&[("first.wasm", Version::First)]));
    let folder = place.path();
    done(folder, &["store", "migrate", "--store", &url]);
    done(folder, &["packs", "push", "first.wasm", "--store", &url]);
    // A pack may get a signature, and then keeps it.
    for key in ["ada.key", "other.key"] {
        _ = fs::remove_file(folder.join("first.wasm.sig"));
        done(folder, &["node", "keygen", key]);
        done(folder, &["node", "sign", "first.wasm", "--key", &format!("file:{key}")]);
        let push = ["packs", "push", "first.wasm", "--store", &url];
        match key {
            "ada.key" => _ = done(folder, &push),
            _ => refused(folder, &push, "has acme@0.1.0 with another signature"),
        }
    }
    fs::remove_file(folder.join("first.wasm.sig")).unwrap();
    done(folder, &["packs", "push", "first.wasm", "--store", &url]);
}
