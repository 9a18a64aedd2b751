//! Tests indexes of packs: they are built, signed, searched and installed from, and forged ones are refused.

use std::fs;

use serde_json::{Value, json};

use crate::{
    distribution::{
        pack::{Version, acme, digest},
        project::Project,
    },
    outside::server::{Server, answer},
};

const BUILD: [&str; 7] = ["node", "index", "build", "./first.wasm", "./second.wasm", "--key", "file:ada.key"];
const INSTALL: [&str; 5] = ["node", "install", "acme", "--index", "index.json"];

/// Returns a project with two versions of a signed pack, a signed index of them, and the public key.
fn indexed() -> (Project, String) {
    let project = Project::new();
    let key = project.done(&["node", "keygen", "ada.key"]).trim().to_owned();
    for (file, version) in [("first.wasm", Version::First), ("second.wasm", Version::Second)] {
        project.pack(file, version);
        project.done(&["node", "sign", file, "--key", "file:ada.key"]);
    }
    assert_eq!(project.done(&BUILD), "index.json\n");
    (project, key)
}

/// Replaces a text of the index, and removes its signature.
fn forge(project: &Project, old: &str, new: &str) {
    let index = fs::read_to_string(project.path().join("index.json")).unwrap();
    assert!(index.contains(old), "{index}");
    project.write("index.json", index.replacen(old, new, 1).as_bytes());
    let _ = fs::remove_file(project.path().join("index.json.sig"));
}

#[test]
fn packs_are_found_and_installed_by_their_digests() {
    let (project, key) = indexed();
    let found = project.done(&["node", "search", "GREET", "--index", "index.json"]);
    for part in [
        &*format!("1 of 2 versions in the index, signed by {key}"),
        &*format!("acme 0.2.0, signed by {key}"),
        "asks for agent, log",
        "types     acme.ask, acme.each, acme.greet, acme.scribe",
        "versions 0.1.0, 0.2.0",
        "flowcell node install acme@0.2.0 --index index.json",
    ] {
        assert!(found.contains(part), "{part}\n{found}");
    }
    assert!(project.done(&["node", "search", "greet", "mail", "--index", "index.json"]).starts_with("0 of 2"));
    let listed = project.done(&["node", "search", "--index", "index.json", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["versions"], json!(["0.1.0", "0.2.0"]));
    assert_eq!(listed[0]["digest"], format!("sha256:{}", digest(&acme(Version::Second))));
    assert!(project.done(&INSTALL).starts_with(&format!("acme 0.2.0, signed by {key}\nasks for agent, log\n")));
    assert!(project.lock().contains("acme@0.2.0") && project.lock().contains("second.wasm"), "{}", project.lock());
    project.done(&["node", "install", "acme@0.1.0", "--index", "index.json"]);
    assert!(project.lock().contains("acme@0.1.0"));
    project.run_refused(&["node", "install", "shop", "--index", "index.json"], &["no pack `shop`"]);
    project.run_refused(&["node", "install", "--index", "index.json"], &["PACK"]);
}

#[test]
fn a_pack_that_is_not_the_one_of_the_index_is_refused() {
    let (project, _) = indexed();
    project.pack("second.wasm", Version::Altered);
    project.run_refused(&INSTALL, &["acme@0.2.0 from second.wasm is sha256:", "but the index says sha256:"]);
    // The digest of another version: the bytes fit, but not the name and version.
    let [first, second] = [Version::First, Version::Second].map(|version| digest(&acme(version)));
    project.pack("second.wasm", Version::First);
    forge(&project, &second, &first);
    project.run_refused(&INSTALL, &["second.wasm has acme@0.1.0, not acme@0.2.0"]);
    assert_eq!(project.lock(), "");
}

#[test]
fn forged_entries_are_refused_with_their_reason() {
    for (old, new, told) in [
        ("./second.wasm", "../second.wasm", "leads out of the folder"),
        ("./second.wasm", "/etc/second.wasm", "leads out of the folder"),
        ("./second.wasm", "http://169.254.169.254/a.wasm", "https://"),
        ("acme@0.2.0", "http@0.2.0", "built-in"),
        ("acme.greet", "control.if", "does not begin with `acme.`"),
        ("acme@0.2.0", "acme@0.1.0", "occurs twice"),
        ("\"version\": 1", "\"version\": 2", "its format is 2"),
        ("What a stranger", "\\u001b[2JWhat", "control characters"),
    ] {
        let (project, _) = indexed();
        forge(&project, old, new);
        for command in [&INSTALL[..], &["node", "search", "--index", "index.json"]] {
            let said = project.run_refused(command, &[told]);
            assert!(!said.contains('\u{1b}'), "{said}");
        }
    }
    let project = Project::new();
    project.write("index.json", &vec![b' '; (8 << 20) + 1]);
    project.run_refused(&["node", "search", "--index", "index.json"], &["larger than"]);
    project.write("index.json", b"{ no");
    project.run_refused(&["node", "search", "--index", "index.json"], &["the index"]);
    fs::create_dir(project.path().join("below")).unwrap();
    project.pack("acme.wasm", Version::First);
    let outside = ["node", "index", "build", "./acme.wasm", "--out", "below/index.json"];
    project.run_refused(&outside, &["is not below the folder of the index"]);
}

#[test]
fn the_trust_file_names_the_keys_that_sign_indexes() {
    let (project, key) = indexed();
    let trust = |more: &str| {
        let text = format!("unsigned: refuse\nkeys:\n  ada: {{ key: \"{key}\", packs: ['*']{more} }}\n");
        project.write("flowcell.trust.yaml", text.as_bytes());
    };
    let search = ["node", "search", "--index", "index.json"];
    trust("");
    project.run_refused(&search, &["`ada`", "has no `index: true`"]);
    trust(", index: true");
    assert!(project.done(&search).contains("in the index, signed by ada"));
    // The signature of a pack is none of an index.
    let signature = fs::read(project.path().join("index.json.sig")).unwrap();
    project.write("index.json.sig", &fs::read(project.path().join("first.wasm.sig")).unwrap());
    project.run_refused(&search, &["is for other bytes"]);
    forge(&project, "0.2.0", "0.3.0");
    project.run_refused(&search, &["it is not signed"]);
    project.write("index.json.sig", &signature);
    project.run_refused(&INSTALL, &["is for other bytes"]);
    fs::remove_file(project.path().join("flowcell.trust.yaml")).unwrap();
    project.run_refused(&search, &["is for other bytes"]);
    // An index that is built again without a key has no stale signature.
    project.done(&BUILD[..5]);
    assert!(project.done(&search).contains("in the index, not signed"));
}

#[test]
fn an_index_behind_an_address_names_packs_beside_it() {
    let (project, _) = indexed();
    let index = fs::read_to_string(project.path().join("index.json")).unwrap();
    let server = Server::start(move |seen, _| {
        let is_index = seen.head.starts_with("GET /shelf/index.json?a=/b ");
        if is_index { answer("200 OK", &[], &index) } else { answer("404 Not Found", &[], "") }
    });
    let place = format!("{}/shelf/index.json?a=/b", server.origin());
    assert!(project.done(&["node", "search", "--index", &place]).contains("acme 0.2.0"));
    let pack = format!("{}/shelf/second.wasm", server.origin());
    project.run_refused(&["node", "install", "acme", "--index", &place], &[&pack, "does not exist"]);
    project.run_refused(&["node", "search", "--index", &place, "--offline"], &["`--offline` forbids connections"]);
}
