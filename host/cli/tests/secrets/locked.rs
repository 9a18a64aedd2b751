//! `flowcell validate` with a secret whose key is lost.

use std::{fs, path::Path};

use flowcell::vault::KEY_FILE;
use serde_json::Value;

use crate::{
    kit::{Owner, flowcell, stderr, stdout},
    secrets::{VALUE, ask, asks, put},
};

/// Validates a flow in its folder. Returns the codes and messages of the warnings.
fn list_warnings(folder: &Path, options: &[&str]) -> Vec<(String, String)> {
    let mut command = flowcell(folder);
    command.args(["validate", "asks.yaml", "--json", "--allow-private", "127.0.0.1:9"]).args(options);
    let output = command.env("OTHER", "2".repeat(64)).output().unwrap();
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let found = report[0]["diagnostics"].as_array().unwrap().clone();
    let text = |found: &Value, member: &str| found[member].as_str().unwrap().to_owned();
    found.iter().map(|found| (text(found, "code"), text(found, "message"))).collect()
}

#[test]
fn validate_warns_of_a_secret_whose_key_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("asks.yaml"), asks("token").text).unwrap();
    let set = put(folder, &["token", "--for", "http://127.0.0.1:9"], VALUE);
    assert!(set.status.success(), "{}", stderr(&set));
    let key = folder.join(".flowcell").join(KEY_FILE);
    // Beside an owner, too.
    let owner = Owner::start(folder, &["drive"], "driving the runs");
    assert_eq!(list_warnings(folder, &[]), []);
    fs::rename(&key, folder.join("lost.key")).unwrap();
    let lost = list_warnings(folder, &[]);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].0, "locked_secret");
    for part in ["`token` of the tenant `local`", "this process has none", "--secret-key", "flowcell secret reset"] {
        assert!(lost[0].1.contains(part), "{lost:?}");
    }
    drop(owner);
    assert_eq!(list_warnings(folder, &["--secret-key", "file:lost.key"]), []);
    assert!(list_warnings(folder, &["--secret-key", "env:OTHER"])[0].1.contains("is encrypted with the key"));
    let unset = list_warnings(folder, &["--secret-key", "env:FLOWCELL_TEST_UNSET"]);
    assert!(unset[0].1.contains("FLOWCELL_TEST_UNSET is not set"), "{unset:?}");
    // The command only reads: it makes no key, and leaves no entry in the audit log.
    assert!(!key.exists());
    let audit = ask(folder, &["audit", "list", "local"]);
    assert_eq!(audit.as_array().unwrap().len(), 1, "{audit}");
    // Without a store, no key is read.
    fs::remove_dir_all(folder.join(".flowcell")).unwrap();
    fs::write(folder.join("secrets.yaml"), "token: { keyEnv: TOKEN, for: ['http://127.0.0.1:9'] }\n").unwrap();
    let operator = ["--secrets", "secrets.yaml", "--secret-key", "env:FLOWCELL_TEST_UNSET"];
    assert_eq!(list_warnings(folder, &operator), []);
}
