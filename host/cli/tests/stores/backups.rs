//! Backups of stores that a server uses meanwhile, and backups that fail.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use flowcell_runtime::sql::Dialect;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    called::Serving,
    kit::{flowcell, output_of, stderr, stdout},
    servers,
    stores::{ASKS, json, run_ok},
};

/// The number of runs that the server has confirmed before the backup begins.
const BEFORE: usize = 20;

/// Sets a flag when it is dropped, so that a failed assertion ends the other thread, too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn runs_in(folder: &Path) -> BTreeSet<String> {
    let connection = Connection::open(folder.join("flowcell.db")).unwrap();
    let mut select = connection.prepare("SELECT run FROM runs").unwrap();
    select.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Returns the entries of a folder that other users may access.
fn open_to_others(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).chain([folder.to_owned()]);
    let open = entries.filter(|path| path.metadata().unwrap().permissions().mode() & 0o077 != 0);
    open.map(|path| path.display().to_string()).collect()
}

/// Backs a store up while a server starts runs in it. Stops the server after that. Returns the printed JSON.
fn back_up_beside_a_server(folder: &Path, store: &[&str]) -> Value {
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    let mut command = flowcell(folder);
    command.arg("serve").args(store);
    let server = Serving::start(command);
    let noop = json!({ "flow": { "flow": { "name": "noop" }, "nodes": [{ "id": "n", "type": "control.noop" }] } });
    let begin = || {
        let begun = server.ask("POST", "/v1/runs", &noop);
        begun["runId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()
    };
    let parked = json!({ "flow": ASKS, "runId": "b" });
    assert_eq!(server.ask("POST", "/v1/runs?wait=true", &parked)["status"], "parked");
    let begun: BTreeSet<String> = (0..BEFORE).map(|_| begin()).collect();
    let (is_over, later) = (AtomicBool::new(false), Mutex::new(0));
    let backed_up = std::thread::scope(|scope| {
        let over = SetOnDrop(&is_over);
        let loads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        begin();
                        *later.lock().unwrap() += 1;
                    }
                })
            })
            .collect();
        let backed_up = run_ok(folder, &[&["store", "backup", "saved"], store].concat());
        drop(over);
        loads.into_iter().for_each(|load| load.join().unwrap());
        json(&backed_up)
    });
    assert!(*later.lock().unwrap() > 0, "the server was busy");
    let saved = folder.join("saved");
    let copied = runs_in(&saved);
    assert!(copied.is_superset(&begun) && copied.contains("b"), "a confirmed run is missing");
    assert_eq!(backed_up["runs"], copied.len());
    assert_eq!(backed_up["bytes"], saved.join("flowcell.db").metadata().unwrap().len());
    assert_eq!(open_to_others(&saved), [""; 0]);
    assert_eq!(fs::read_dir(&saved).unwrap().count(), 1, "only the database stays");
    // The server goes on.
    begin();
    backed_up
}

/// Checks that a copy has no damage, and that a person can answer its parked run.
fn check_copy(folder: &Path, state: &str) {
    let checked = json(&run_ok(folder, &["store", "check", "--state", state]));
    assert_eq!(checked["damage"], json!([]), "{checked}");
    run_ok(folder, &["answer", "b", "ask", "yes", "--state", state]);
    let ended = run_ok(folder, &["runs", "resume", "b", "--quiet", "--state", state]);
    assert_eq!(json(&ended), json!({ "said": "yes", "count": 1 }));
}

/// Returns the names of the things that were not copied.
fn left(backed_up: &Value) -> Vec<&str> {
    let left = backed_up["notCopied"].as_array().unwrap();
    left.iter().map(|left| left["name"].as_str().unwrap()).collect()
}

#[test]
fn a_folder_is_backed_up_beside_its_busy_server() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut set = flowcell(folder);
    set.args(["secret", "set", "token", "--from-env", "VALUE"]).env("VALUE", "hunter2-hunter2");
    assert!(set.output().unwrap().status.success());
    fs::write(folder.join(".flowcell/notes.txt"), "mine").unwrap();
    let backed_up = back_up_beside_a_server(folder, &[]);
    assert_eq!(left(&backed_up), ["epoch", "notes.txt", "secret.key"]);
    // The original goes on, and is not taken for a copy.
    let driven = output_of(folder, &["drive", "--once"]);
    assert!(driven.status.success() && !stderr(&driven).contains("older copy"), "{}", stderr(&driven));
    // The copy in its place is.
    for beside in ["-wal", "-shm"] {
        _ = fs::remove_file(folder.join(format!(".flowcell/flowcell.db{beside}")));
    }
    fs::copy(folder.join("saved/flowcell.db"), folder.join(".flowcell/flowcell.db")).unwrap();
    let driven = output_of(folder, &["drive", "--once"]);
    assert!(stderr(&driven).contains("restored from an older copy"), "{}", stderr(&driven));
    let shown = json(&run_ok(folder, &["runs", "show", "b", "--json"]));
    assert_eq!(shown["status"], "needs_attention", "{shown}");
    check_copy(folder, "saved");
}

/// A copy that was taken beside an owner counts as older, even if the owner's next write comes within a minute of its
/// last increment, or is the last write before its death.
#[test]
fn a_copy_beside_an_owner_is_older_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    let mut command = flowcell(folder);
    command.arg("serve");
    let server = Serving::start(command);
    let ask = |run: &str| {
        let parked = json!({ "flow": ASKS, "runId": run });
        assert_eq!(server.ask("POST", "/v1/runs?wait=true", &parked)["status"], "parked");
    };
    ask("a");
    run_ok(folder, &["store", "backup", "saved"]);
    ask("b");
    server.kill();
    for beside in ["-wal", "-shm"] {
        _ = fs::remove_file(folder.join(format!(".flowcell/flowcell.db{beside}")));
    }
    fs::copy(folder.join("saved/flowcell.db"), folder.join(".flowcell/flowcell.db")).unwrap();
    let driven = output_of(folder, &["drive", "--once"]);
    assert!(stderr(&driven).contains("so 1 unfinished run"), "{}", stderr(&driven));
}

fn a_server_is_backed_up(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url(&server.database());
    let backed_up = back_up_beside_a_server(folder.path(), &["--store", &url]);
    assert_eq!(left(&backed_up).len(), 3, "{backed_up}");
    check_copy(folder.path(), "saved");
}

#[test]
fn a_store_on_mariadb_is_backed_up_beside_its_busy_server() {
    a_server_is_backed_up(Dialect::MySql);
}

#[test]
fn a_store_on_postgresql_is_backed_up_beside_its_busy_server() {
    a_server_is_backed_up(Dialect::Postgres);
}

/// Returns a folder with a store that has a file of 2 MiB.
fn filled_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("large"), vec![b'x'; 2 << 20]).unwrap();
    run_ok(folder.path(), &["files", "put", "large"]);
    folder
}

/// A command about a store that exists creates none, also in a folder whose name is that of a server by mistake.
#[test]
fn a_wrong_name_of_a_store_creates_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for words in [
        &["store", "check", "--state", "nowhere"][..],
        &["store", "compact", "--state", "nowhere"],
        &["store", "copy", "nowhere", "copied"],
        &["runs", "gc", "--keep", "1", "--state", "nowhere"],
        &["runs", "delete", "r", "--state", "nowhere"],
    ] {
        let refused = output_of(folder, words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("nowhere has no store"), "{words:?}: {}", stderr(&refused));
    }
    let refused = output_of(folder, &["store", "copy", "nowhere", "http://127.0.0.1/store"]);
    assert!(stderr(&refused).contains("this is not the URL of a store"), "{}", stderr(&refused));
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

/// A store is copied into an empty one only: one with documents, such as tenants, is not empty.
#[test]
fn a_store_is_not_copied_over_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run_ok(folder, &["tenant", "create", "a", "--state", "one"]);
    run_ok(folder, &["tenant", "create", "a", "--state", "two"]);
    let refused = output_of(folder, &["store", "copy", "one", "two"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("the destination store is not empty"), "{}", stderr(&refused));
    run_ok(folder, &["store", "copy", "one", "three"]);
}

#[test]
fn a_backup_that_fails_leaves_nothing() {
    let folder = filled_folder();
    let folder = folder.path();
    let missing = output_of(folder, &["store", "backup", "saved", "--state", "nowhere"]);
    assert_eq!(missing.status.code(), Some(2), "{}", stderr(&missing));
    assert!(stderr(&missing).contains("nowhere has no store") && !folder.join("saved").exists());
    assert!(!folder.join("nowhere").exists(), "the command creates no store");
    // A full disk: no file may have more than 64 KiB.
    let fails_in = |target: &str| {
        let mut small = Command::new("sh");
        small.args(["-c", "trap '' XFSZ; ulimit -f 128; exec \"$@\"", "sh"]).arg(flowcell(folder).get_program());
        let full = small.args(["store", "backup", target]).current_dir(folder).output().unwrap();
        assert_eq!(full.status.code(), Some(1), "{}", stderr(&full));
        assert!(stderr(&full).contains(&format!("cannot copy the database to {target}")), "{}", stderr(&full));
    };
    fails_in("saved");
    assert!(!folder.join("saved").exists());
    // An existing folder stays, and is empty again.
    fs::create_dir(folder.join("mounted")).unwrap();
    fails_in("mounted");
    run_ok(folder, &["store", "backup", "mounted"]);
}

#[test]
fn a_folder_that_is_not_empty_is_refused() {
    let folder = filled_folder();
    let folder = folder.path();
    let refused = |target: &str, says: &str| {
        let output = output_of(folder, &["store", "backup", target]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    };
    run_ok(folder, &["store", "backup", "saved"]);
    let before = fs::read(folder.join("saved/flowcell.db")).unwrap();
    refused("saved", "saved is not empty");
    assert_eq!(fs::read(folder.join("saved/flowcell.db")).unwrap(), before);
    refused(".flowcell", "is not empty");
    // The log of another database would be read as that of the copy.
    fs::create_dir(folder.join("stale")).unwrap();
    fs::write(folder.join("stale/flowcell.db-wal"), "log").unwrap();
    refused("stale", "stale is not empty");
    fs::create_dir_all(folder.join("killed/unfinished")).unwrap();
    refused("killed", "killed/unfinished has an unfinished copy");
    assert!(folder.join("killed/unfinished").exists(), "it may belong to a backup that runs");
}

#[test]
fn a_damaged_copy_is_an_error_and_stays_apart() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    run_ok(folder, &["run", "asks.yaml", "--run-id", "a", "--answer", "ask=no", "--quiet"]);
    let connection = Connection::open(folder.join(".flowcell/flowcell.db")).unwrap();
    connection.execute("UPDATE units SET ts = ts + 1 WHERE first_seq = 0", ()).unwrap();
    drop(connection);
    let damaged: Output = output_of(folder, &["store", "backup", "saved"]);
    assert_eq!(damaged.status.code(), Some(1), "{}", stderr(&damaged));
    let told = stderr(&damaged);
    assert!(told.contains("the copy is damaged; it stays in saved/unfinished") && told.contains("`a`"), "{told}");
    assert_eq!(stdout(&damaged), "");
    assert!(!folder.join("saved/flowcell.db").exists() && folder.join("saved/unfinished/flowcell.db").exists());
}

/// A store of an older version is copied as it is, so that the older program can still read the copy.
#[test]
fn a_store_of_an_older_version_is_copied_without_an_upgrade() {
    let folder = filled_folder();
    let folder = folder.path();
    let version = |state: &str| -> u32 {
        let connection = Connection::open(folder.join(state).join("flowcell.db")).unwrap();
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    };
    let present = version(".flowcell");
    let connection = Connection::open(folder.join(".flowcell/flowcell.db")).unwrap();
    connection.pragma_update(None, "user_version", present - 1).unwrap();
    drop(connection);
    let output = output_of(folder, &["store", "backup", "saved"]);
    assert!(output.status.success() && stderr(&output).contains("the copy was not checked"), "{}", stderr(&output));
    assert_eq!((version("saved"), version(".flowcell")), (present - 1, present - 1));
    assert_eq!(json(&stdout(&output)).get("runs"), None);
}
