//! Tests of the capability `files`: its functions, and that no path leads out of a tenant's folder. The ids `n17` to
//! `n19` in the names of tests stand for attacks on files in the table of `tests/README.md`.

#![cfg(unix)]

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use flowcell_contract::{
    BlobRef, Blobs, Call, Caller, Capability, Effect, Failure, Grants, Json, NodeId, Outgoing, RunId, Tenant, Value,
};
use flowcell_services::files::{FilesCapability, Limits};
use serde_json::json;
use tempfile::TempDir;

/// In-memory blobs, by tenant and hash.
#[derive(Default)]
struct MemoryBlobs(Mutex<HashMap<BlobKey, Arc<[u8]>>>);

/// A tenant, and the hash of the bytes.
type BlobKey = (Tenant, String);

impl Blobs for MemoryBlobs {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let mut blobs = self.0.lock().unwrap();
        let id = blobs.len().to_string();
        blobs.insert((tenant.clone(), id.clone()), bytes.clone());
        BlobRef { file_id: id.into(), size: bytes.len() as u64, mime: mime.into() }
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        Ok(self.0.lock().unwrap().get(&(tenant.clone(), blob.file_id.to_string())).cloned())
    }
}

/// A folder for files, a file beside it that must stay unreachable, and a caller.
struct Kit {
    place: TempDir,
    files: FilesCapability,
    blobs: Arc<MemoryBlobs>,
    caller: Caller,
}

const CANARY: &str = "nobody reads this";

impl Kit {
    fn new(grant: serde_json::Value) -> Kit {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("root")).unwrap();
        fs::write(place.path().join("canary"), CANARY).unwrap();
        let blobs = Arc::new(MemoryBlobs::default());
        let files = FilesCapability::new(Some(place.path().join("root")), blobs.clone());
        let grants = Grants([("files".to_owned(), Json::from(grant))].into_iter().collect());
        let caller = Caller {
            tenant: Tenant::local(),
            run_id: RunId::from("r1"),
            pin: "flow".into(),
            node_id: NodeId::from("n1"),
            node_type: "acme.files".into(),
            grants: Arc::new(grants),
            effect: Effect::Idempotent,
            config: Value::null(),
        };
        Kit { place, files, blobs, caller }
    }

    /// Creates a kit whose caller may read and write every path.
    fn open() -> Kit {
        Kit::new(json!({ "read": ["**"], "write": ["**"] }))
    }

    fn with_limits(self, limits: Limits) -> Kit {
        Kit { files: self.files.with_limits(limits), ..self }
    }

    fn of(&self, tenant: &str) -> Kit {
        let caller = Caller { tenant: Tenant::from(tenant), ..self.caller.clone() };
        let place = tempfile::tempdir().unwrap();
        Kit { place, files: self.files.clone(), blobs: self.blobs.clone(), caller }
    }

    fn root(&self) -> std::path::PathBuf {
        self.place.path().join("root")
    }

    /// Admits a call and performs it, as the runtime does.
    fn call(&self, function: &str, args: serde_json::Value) -> Result<serde_json::Value, Failure> {
        let args = Value::parse(args.to_string()).unwrap();
        let call = Call { interface: "files".into(), function: function.into(), args };
        let admission = self.files.admit(&call, &self.caller)?;
        assert_eq!(admission.effect, Effect::Idempotent);
        let (caller, key) = (self.caller.clone(), "00ff".into());
        let (effect, prepared) = (admission.effect, admission.prepared);
        let (progress, attempt_end) = Default::default();
        let outgoing = Outgoing { caller, call, effect, key, progress, prepared, lost: 0, attempt_end };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let reply = runtime.block_on(self.files.perform(outgoing))?;
        Ok(serde_json::from_str(reply.text()).unwrap())
    }

    fn read(&self, path: &str) -> Result<String, Failure> {
        let reply = self.call("read", json!({ "path": path, "as": "text" }))?;
        Ok(reply["text"].as_str().unwrap().to_owned())
    }

    fn write(&self, path: &str, text: &str) -> Result<u64, Failure> {
        Ok(self.call("write", json!({ "path": path, "text": text }))?["size"].as_u64().unwrap())
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Failure> {
        let reply = self.call("list", json!({ "path": path }))?;
        let entries = reply["entries"].as_array().unwrap().iter();
        Ok(entries.map(|entry| entry["path"].as_str().unwrap().to_owned()).collect())
    }

    fn assert_canary_unchanged(&self) {
        assert_eq!(fs::read_to_string(self.place.path().join("canary")).unwrap(), CANARY);
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    result.unwrap_err().code
}

#[test]
fn a_file_is_written_read_listed_and_removed() {
    let kit = Kit::open();
    assert_eq!(kit.write("out/a/b.txt", "grüße").unwrap(), 7);
    assert_eq!(kit.read("out/a/b.txt").unwrap(), "grüße");
    kit.write("out/a/b.txt", "x").unwrap();
    assert_eq!(fs::read_to_string(kit.root().join("out/a/b.txt")).unwrap(), "x");
    kit.write("out/z", "").unwrap();
    assert_eq!(kit.list("out").unwrap(), ["out/a", "out/z"]);
    assert_eq!(kit.list("").unwrap(), ["out"]);
    let entry = kit.call("stat", json!({ "path": "out/a/b.txt" })).unwrap();
    assert_eq!((&entry["kind"], &entry["size"]), (&json!("file"), &json!(1)));
    assert_eq!(code(kit.call("remove", json!({ "path": "out/a" }))), "not_empty");
    for (path, was_there) in [("out/a/b.txt", true), ("out/a/b.txt", false), ("out/a", true), ("nowhere/x", false)] {
        assert_eq!(kit.call("remove", json!({ "path": path })).unwrap(), json!(was_there), "{path}");
    }
    assert_eq!(kit.call("stat", json!({ "path": "out/a/b.txt" })).unwrap(), json!(null));
    assert_eq!(code(kit.read("out/a/b.txt")), "file_not_found");
    assert_eq!(code(kit.read("out")), "invalid_input");
    assert_eq!(code(kit.write("out", "x")), "invalid_input");
    assert_eq!(code(kit.write("out/z/below", "x")), "invalid_input");
}

#[test]
fn bytes_travel_as_file_values() {
    let kit = Kit::open();
    let bytes: Arc<[u8]> = (0..=255).collect::<Vec<u8>>().into();
    let blob = kit.blobs.put(&Tenant::local(), bytes.clone(), "image/png");
    let file = json!({ "kind": "file", "fileId": &*blob.file_id });
    assert_eq!(kit.call("write", json!({ "path": "a.png", "file": file })).unwrap(), json!({ "size": 256 }));
    assert_eq!(code(kit.read("a.png")), "not_text");
    let read = kit.call("read", json!({ "path": "a.png", "as": "file" })).unwrap();
    assert_eq!((&read["file"]["size"], &read["file"]["mime"]), (&json!(256), &json!("image/png")));
    let foreign = kit.blobs.put(&Tenant::from("other"), bytes, "image/png");
    let file = json!({ "kind": "file", "fileId": &*foreign.file_id });
    assert_eq!(code(kit.call("write", json!({ "path": "b.png", "file": file }))), "invalid_input");
}

#[test]
fn a_denial_says_what_to_add() {
    let kit = Kit::new(json!({ "read": ["data/**"], "write": ["out/*"] }));
    kit.write("out/a", "x").unwrap();
    let denials = [
        (kit.read("out/a").map(drop), r#"files: { read: ["out/a"] }"#),
        (kit.write("data/a", "x").map(drop), r#"files: { write: ["data/a"] }"#),
        (kit.list("out").map(drop), r#"files: { read: ["out/**"] }"#),
        (kit.call("remove", json!({ "path": "data/a" })).map(drop), r#"files: { write: ["data/a"] }"#),
    ];
    for (denial, line) in denials {
        let failure = denial.unwrap_err();
        assert_eq!(failure.code, "denied");
        assert!(failure.message.contains(line), "{}", failure.message);
    }
    let nowhere = FilesCapability::new(None, kit.blobs.clone());
    let kit = Kit { files: nowhere, ..kit };
    assert!(kit.read("data/a").unwrap_err().message.contains("--files DIR"));
}

#[test]
fn n17_no_path_leads_out() {
    let kit = Kit::open();
    let outside = kit.place.path().join("canary").display().to_string();
    for path in
        ["../canary", "../../etc/passwd", "/etc/passwd", &outside, "a/../../canary", "./../canary", "a//b", "..", "/"]
    {
        assert_eq!(code(kit.read(path)), "invalid_input", "{path}");
        assert_eq!(code(kit.write(path, "x")), "invalid_input", "{path}");
        assert_eq!(code(kit.call("remove", json!({ "path": path }))), "invalid_input", "{path}");
        assert_eq!(code(kit.list(path)), "invalid_input", "{path}");
    }
    assert_eq!(code(kit.read("proc/self/root/etc/passwd")), "file_not_found");
    kit.assert_canary_unchanged();
}

#[test]
fn n17_no_link_is_followed() {
    let kit = Kit::new(json!({ "read": ["data/**"], "write": ["data/**"] }));
    let data = kit.root().join("data");
    fs::create_dir(&data).unwrap();
    fs::create_dir(kit.root().join("private")).unwrap();
    fs::write(kit.root().join("private/key"), CANARY).unwrap();
    let links = [("up", "/"), ("aside", "../private"), ("canary", "../../canary"), ("inside", "../private/key")];
    for (name, target) in links {
        symlink(target, data.join(name)).unwrap();
    }
    let paths = ["data/up/etc/passwd", "data/aside/key", "data/canary", "data/inside", "data/up", "data/aside/new"];
    for path in paths {
        assert_eq!(code(kit.read(path)), "denied", "{path}");
        assert_eq!(code(kit.write(path, "x")), "denied", "{path}");
        assert_eq!(code(kit.call("stat", json!({ "path": path }))), "denied", "{path}");
        assert_eq!(code(kit.call("remove", json!({ "path": path }))), "denied", "{path}");
    }
    assert_eq!(code(kit.list("data/aside")), "denied");
    assert_eq!(kit.list("data").unwrap(), Vec::<String>::new());
    assert_eq!(fs::read_to_string(kit.root().join("private/key")).unwrap(), CANARY);
    assert!(!kit.root().join("private/new").exists());
    kit.assert_canary_unchanged();
}

#[test]
fn n17_a_hard_link_does_not_lead_out() {
    let kit = Kit::open();
    fs::hard_link(kit.place.path().join("canary"), kit.root().join("linked")).unwrap();
    assert_eq!(code(kit.read("linked")), "denied");
    // A write replaces the file behind the name.
    kit.write("linked", "mine").unwrap();
    assert_eq!(kit.read("linked").unwrap(), "mine");
    kit.assert_canary_unchanged();
}

/// A folder is swapped again and again with a link to a folder outside of the tenant's folder, while calls read and
/// write through the name.
#[test]
fn n17_swapping_a_folder_and_a_link_does_not_lead_out() {
    let kit = Kit::open();
    let outside = kit.place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("x"), CANARY).unwrap();
    let real = kit.root().join("dir");
    fs::create_dir(&real).unwrap();
    fs::write(real.join("x"), "inside").unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (root, over) = (kit.root(), &over);
        let outside = &outside;
        scope.spawn(move || {
            symlink(outside, root.join("link")).unwrap();
            while !over.load(Ordering::Relaxed) {
                fs::rename(root.join("dir"), root.join("away")).unwrap();
                if fs::rename(root.join("link"), root.join("dir")).is_ok() {
                    fs::rename(root.join("dir"), root.join("link")).unwrap();
                }
                // A write may have created the folder again.
                while fs::rename(root.join("away"), root.join("dir")).is_err() {
                    let _ = fs::remove_dir_all(root.join("dir"));
                }
            }
        });
        for round in 0..1000 {
            if let Ok(text) = kit.read("dir/x") {
                assert_ne!(text, CANARY, "round {round}");
            }
            let _ = kit.write("dir/y", "new");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(!outside.join("y").exists());
    assert_eq!(fs::read_to_string(outside.join("x")).unwrap(), CANARY);
}

#[test]
fn n17_a_pipe_is_not_waited_for() {
    let kit = Kit::open();
    let made = std::process::Command::new("mkfifo").arg(kit.root().join("pipe")).status().unwrap();
    assert!(made.success());
    assert_eq!(code(kit.read("pipe")), "invalid_input");
    assert_eq!(kit.list("").unwrap(), Vec::<String>::new());
}

#[test]
fn n18_a_read_grant_does_not_permit_changes() {
    let kit = Kit::new(json!({ "read": ["**"] }));
    fs::write(kit.root().join("a"), CANARY).unwrap();
    let calls = [
        ("write", json!({ "path": "a", "text": "x" })),
        ("write", json!({ "path": "a/b", "text": "x" })),
        ("write", json!({ "path": "new", "text": "x" })),
        ("remove", json!({ "path": "a" })),
    ];
    for (function, args) in calls {
        assert_eq!(code(kit.call(function, args.clone())), "denied", "{function} {args}");
    }
    for function in ["rename", "link", "truncate", "set-times", "open"] {
        assert_eq!(code(kit.call(function, json!({ "path": "a" }))), "invalid_input", "{function}");
    }
    assert_eq!(kit.read("a").unwrap(), CANARY);
    assert_eq!(kit.list("").unwrap(), ["a"]);
}

#[test]
fn n19_a_tenant_that_fills_its_folder_is_stopped_and_others_are_not() {
    let limits = Limits { total: 1000, entries: 6, file: 600, text: 100, ..Limits::default() };
    let kit = Kit::open().with_limits(limits);
    let (one, two) = (kit.of("one"), kit.of("two"));
    let large = "x".repeat(500);
    assert_eq!(code(one.write("a", &"x".repeat(601))), "file_too_large");
    one.write("a", &large).unwrap();
    assert_eq!(code(one.read("a")), "file_too_large");
    // Until the replacement takes the name, both files exist.
    one.write("a", &large).unwrap();
    assert_eq!(code(one.write("b", &"x".repeat(501))), "quota_exceeded");
    two.write("b", &large).unwrap();
    one.call("remove", json!({ "path": "a" })).unwrap();
    for name in ["d/1", "d/2", "d/3", "d/4", "d/5"] {
        one.write(name, "x").unwrap();
    }
    assert_eq!(code(one.write("d/6", "x")), "quota_exceeded");
    one.write("d/5", "y").unwrap();
    two.write("d/6", "x").unwrap();
    assert_eq!(one.list("d").unwrap().len(), 5);
}

#[test]
fn tenants_do_not_see_each_other() {
    let kit = Kit::open();
    let (one, two) = (kit.of("one"), kit.of("ONE"));
    one.write("a", "1").unwrap();
    two.write("a", "2").unwrap();
    kit.write("a", "local").unwrap();
    assert_eq!(
        (one.read("a").unwrap(), two.read("a").unwrap(), kit.read("a").unwrap()),
        ("1".into(), "2".into(), "local".into())
    );
    assert_eq!(code(kit.read(".flowcell-tenants/one/a")), "invalid_input");
    assert_eq!(kit.list("").unwrap(), ["a"]);
}

#[test]
fn files_of_the_host_are_invisible() {
    let kit = Kit::open();
    fs::create_dir(kit.root().join(".flowcell")).unwrap();
    fs::write(kit.root().join(".flowcell/flowcell.db"), CANARY).unwrap();
    assert_eq!(code(kit.read(".flowcell/flowcell.db")), "invalid_input");
    assert_eq!(code(kit.write(".FLOWCELL/flowcell.db", "x")), "invalid_input");
    assert_eq!(kit.list(".").unwrap(), Vec::<String>::new());
}

#[test]
fn n17_files_of_stores_and_flow_versions_are_inaccessible_in_every_folder() {
    let kit = Kit::open();
    for file in ["kept/flowcell.db", "kept/deep/x", "flows/.tenants/b/flows/plan.json", "flows/.versions/plan/1.json"] {
        let file = kit.root().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, CANARY).unwrap();
    }
    for (path, expected) in [
        ("kept/flowcell.db", "denied"),
        ("kept/deep/x", "denied"),
        ("flows/.tenants/b/flows/plan.json", "invalid_input"),
        ("flows/.Versions/plan/1.json", "invalid_input"),
    ] {
        assert_eq!(code(kit.read(path)), expected, "{path}");
        assert_eq!(code(kit.write(path, "x")), expected, "{path}");
    }
    assert_eq!(code(kit.list("kept")), "denied");
    assert_eq!(kit.list("flows").unwrap(), Vec::<String>::new());
    // The folder of files is also the folder of a store.
    for file in ["flowcell.db", "flowcell.db-wal", "secret.key"] {
        fs::write(kit.root().join(file), CANARY).unwrap();
    }
    for path in ["flowcell.db", "flowcell.db-wal", "secret.key", "epoch"] {
        assert_eq!(code(kit.read(path)), "denied", "{path}");
        assert_eq!(code(kit.write(path, "x")), "denied", "{path}");
    }
    kit.write("mine", "x").unwrap();
}

#[test]
fn a_failed_write_leaves_no_file() {
    let kit = Kit::open();
    kit.write("d/a", "old").unwrap();
    // The file of an interrupted call is replaced.
    fs::write(kit.root().join("d/.flowcell-00ff.new"), "half").unwrap();
    kit.write("d/a", "new").unwrap();
    assert_eq!(names(&kit.root().join("d")), ["a"]);
    let closed = fs::Permissions::from_mode(0o500);
    fs::set_permissions(kit.root().join("d"), closed).unwrap();
    // Root may write everywhere.
    if fs::write(kit.root().join("d/probe"), "").is_err() {
        let failure = kit.write("d/a", "lost").unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("file_failed", true));
        assert!(!failure.message.contains(kit.place.path().to_str().unwrap()), "{}", failure.message);
        assert_eq!(kit.read("d/a").unwrap(), "new");
    }
    fs::set_permissions(kit.root().join("d"), fs::Permissions::from_mode(0o700)).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    entries.collect()
}
