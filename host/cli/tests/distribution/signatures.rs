//! Tests signatures of packs, and the trust file.

use std::fs;

use serde_json::{Value, json};

use crate::{
    client::ask,
    distribution::{
        pack::{Version, acme},
        project::Project,
    },
    server::process::{serve_by, stop},
};

const PACK: &str = "acme.wasm";

/// Creates a key. Returns its public half.
fn key(project: &Project, file: &str) -> String {
    project.done(&["node", "keygen", file]).trim().to_owned()
}

fn write_trust_file(project: &Project, unsigned: &str, key: &str, packs: &str) {
    let text = format!("unsigned: {unsigned}\nkeys:\n  ada: {{ key: \"{key}\", packs: [{packs}] }}\n");
    project.write("flowcell.trust.yaml", text.as_bytes());
}

#[test]
fn the_trust_file_is_checked_when_a_pack_is_installed() {
    let project = Project::new();
    let (ada, other) = (key(&project, "ada.key"), key(&project, "other.key"));
    project.pack(PACK, Version::First);
    project.done(&["node", "sign", PACK, "--key", "file:ada.key"]);
    let install = ["node", "install", "./acme.wasm"];
    let signature = fs::read(project.path().join("acme.wasm.sig")).unwrap();
    for (key, packs, refusal) in [
        (&ada, "acme", None),
        (&ada, "'ac*'", None),
        (&ada, "acm, 'acme-*'", Some("may not sign packs of this name")),
        (&other, "'*'", Some("the key that signed it is unknown")),
    ] {
        write_trust_file(&project, "refuse", key, packs);
        match refusal {
            None => assert!(project.done(&install).contains(&format!("signed by ada ({ada})"))),
            Some(why) => drop(project.run_refused(&install, &["acme@0.1.0 is not trusted", why])),
        }
        let _ = fs::remove_file(project.path().join("flowcell.lock"));
    }
    // A signature of another pack, then no signature.
    write_trust_file(&project, "refuse", &ada, "acme");
    project.pack(PACK, Version::Second);
    project.run_refused(&install, &["acme@0.2.0 is not trusted", "is for another pack"]);
    project.run_refused(&["node", "push", PACK, "127.0.0.1:1/acme"], &["is for another pack"]);
    fs::remove_file(project.path().join("acme.wasm.sig")).unwrap();
    project.run_refused(&install, &["acme@0.2.0 is not trusted", "it is not signed"]);
    write_trust_file(&project, "allow", &ada, "acme");
    project.done(&install);
    // Without a trust file, an existing signature still has to be valid.
    fs::remove_file(project.path().join("flowcell.trust.yaml")).unwrap();
    project.write("acme.wasm.sig", &signature);
    project.run_refused(&install, &["is for another pack"]);
    project.write("acme.wasm.sig", b"ed25519:nonsense");
    project.run_refused(&install, &["is not a signature"]);
}

#[test]
fn the_trust_file_is_checked_again_when_a_pack_is_loaded() {
    let project = Project::new();
    let (ada, other) = (key(&project, "ada.key"), key(&project, "other.key"));
    project.pack(PACK, Version::First);
    project.done(&["node", "sign", PACK, "--key", "file:ada.key"]);
    project.done(&["node", "install", "./acme.wasm"]);
    write_trust_file(&project, "refuse", &ada, "acme");
    project.greeting("0.1");
    write_trust_file(&project, "allow", &other, "acme");
    project.run_refused(&["run", "--store", "memory:", "greeting.yaml"], &["the key that signed it is unknown"]);
    project.run_refused(&["node", "install"], &["the key that signed it is unknown"]);
    // A lock without its signature.
    let kept = |line: &&str| !line.contains("signature");
    let without: String = project.lock().lines().filter(kept).map(|line| format!("{line}\n")).collect();
    assert_ne!(without, project.lock());
    project.write("flowcell.lock", without.as_bytes());
    write_trust_file(&project, "refuse", &ada, "acme");
    project.run_refused(&["nodes"], &["acme@0.1.0 is not trusted", "it is not signed"]);
    project.run_refused(&["nodes", "--trust", "none.yaml"], &["cannot read none.yaml"]);
    project.write("flowcell.trust.yaml", b"unsigned: maybe\n");
    project.run_refused(&["nodes"], &["flowcell.trust.yaml: line 1", "maybe"]);
}

#[test]
fn the_signer_of_a_pack_is_shown_by_the_command_the_server_and_the_console() {
    let project = Project::new();
    let ada = key(&project, "ada.key");
    project.pack(PACK, Version::First);
    project.done(&["node", "sign", PACK, "--key", "file:ada.key"]);
    project.done(&["node", "install", "./acme.wasm"]);
    let shown = || {
        let listed: Value = serde_json::from_str(&project.done(&["packs", "list", "--json"])).unwrap();
        let (child, address, _) = serve_by(project.command(), &[]);
        let served = ask(address, "GET", "/v1/packs", &[], "").json();
        let page = ask(address, "GET", "/console/packs/acme@0.1.0", &[], "").body;
        assert_eq!(stop(child), Some(0));
        assert_eq!(listed["packs"][0]["signer"], served["packs"][0]["signer"], "{listed} {served}");
        (served["packs"][0]["signer"].clone(), page)
    };
    // Without a file of trusted signers a key has no name.
    assert!(project.done(&["packs", "list"]).ends_with(&format!("  lock  signed by {ada}\n")));
    let (signer, page) = shown();
    assert_eq!(signer, json!({ "key": ada }));
    assert!(page.contains(&ada), "{page}");
    write_trust_file(&project, "allow", &ada, "acme");
    let (signer, page) = shown();
    assert_eq!(signer, json!({ "name": "ada", "key": ada }));
    assert!(page.contains("ada <code>") && page.contains(&ada), "{page}");
    // Without its signature in the lock, the pack has no signer.
    let kept = |line: &&str| !line.contains("signature");
    let without: String = project.lock().lines().filter(kept).map(|line| format!("{line}\n")).collect();
    project.write("flowcell.lock", without.as_bytes());
    let (signer, page) = shown();
    assert_eq!(signer, Value::Null);
    assert!(!page.contains(&ada), "{page}");
}

#[test]
fn a_new_signer_needs_an_approval() {
    let project = Project::new();
    let (ada, other) = (key(&project, "ada.key"), key(&project, "other.key"));
    project.pack(PACK, Version::First);
    project.done(&["node", "sign", PACK, "--key", "file:ada.key"]);
    project.done(&["node", "install", "./acme.wasm"]);
    project.pack(PACK, Version::Second);
    fs::remove_file(project.path().join("acme.wasm.sig")).unwrap();
    project.run_refused(&["node", "install", "./acme.wasm"], &["+ not signed", &format!("- signed by {ada}")]);
    project.done(&["node", "sign", PACK, "--key", "file:other.key"]);
    project.run_refused(
        &["node", "install", "./acme.wasm"],
        &[&format!("+ signed by {other}"), &format!("- signed by {ada}")],
    );
    project.done(&["node", "sign", PACK, "--key", "file:ada.key"]);
    project.done(&["node", "install", "./acme.wasm"]);
}

#[test]
fn a_key_that_other_users_may_read_is_refused() {
    let project = Project::new();
    let public = key(&project, "ada.key");
    assert!(public.starts_with("ed25519:"));
    project.run_refused(&["node", "keygen", "ada.key"], &["cannot write ada.key"]);
    project.write("acme.wasm", &acme(Version::First));
    let file = project.path().join("ada.key");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    project.run_refused(&["node", "sign", PACK, "--key", "file:ada.key"], &["other users may read it"]);
    project.run_refused(&["node", "sign", PACK, "--key", "env:NOBODY_HAS_SET_THIS"], &["is not set"]);
    let digits = fs::read_to_string(&file).unwrap();
    let project = project.with("ADAS_KEY", digits.trim());
    project.done(&["node", "sign", PACK, "--key", "env:ADAS_KEY"]);
    assert!(fs::read_to_string(project.path().join("acme.wasm.sig")).unwrap().starts_with(&public));
}
