//! Tests signatures of packs, and the trust file.

use std::fs;

use crate::{
    pack::{Version, acme},
    place::Place,
};

const PACK: &str = "acme.wasm";

/// Creates a key. Returns its public half.
fn key(place: &Place, file: &str) -> String {
    place.done(&["node", "keygen", file]).trim().to_owned()
}

fn trust(place: &Place, unsigned: &str, key: &str, packs: &str) {
    let text = format!("unsigned: {unsigned}\nkeys:\n  ada: {{ key: \"{key}\", packs: [{packs}] }}\n");
    place.write("flowcell.trust.yaml", text.as_bytes());
}

#[test]
fn whose_word_counts_is_decided_when_a_pack_is_installed() {
    let place = Place::new();
    let (ada, other) = (key(&place, "ada.key"), key(&place, "other.key"));
    place.pack(PACK, Version::First);
    place.done(&["node", "sign", PACK, "--key", "file:ada.key"]);
    let install = ["node", "install", "./acme.wasm"];
    let signature = fs::read(place.path().join("acme.wasm.sig")).unwrap();
    for (key, packs, refusal) in [
        (&ada, "acme", None),
        (&ada, "'ac*'", None),
        (&ada, "acm, 'acme-*'", Some("may not sign packs of this name")),
        (&other, "'*'", Some("the key that signed it is unknown")),
    ] {
        trust(&place, "refuse", key, packs);
        match refusal {
            None => assert!(place.done(&install).contains(&format!("signed by ada ({ada})"))),
            Some(why) => drop(place.refused(&install, &["acme@0.1.0 is not trusted", why])),
        }
        let _ = fs::remove_file(place.path().join("flowcell.lock"));
    }
    // A signature of another pack, then no signature.
    trust(&place, "refuse", &ada, "acme");
    place.pack(PACK, Version::Second);
    place.refused(&install, &["acme@0.2.0 is not trusted", "is for another pack"]);
    place.refused(&["node", "push", PACK, "127.0.0.1:1/acme"], &["is for another pack"]);
    fs::remove_file(place.path().join("acme.wasm.sig")).unwrap();
    place.refused(&install, &["acme@0.2.0 is not trusted", "it is not signed"]);
    trust(&place, "allow", &ada, "acme");
    place.done(&install);
    // Without a trust file, an existing signature still has to be valid.
    fs::remove_file(place.path().join("flowcell.trust.yaml")).unwrap();
    place.write("acme.wasm.sig", &signature);
    place.refused(&install, &["is for another pack"]);
    place.write("acme.wasm.sig", b"ed25519:nonsense");
    place.refused(&install, &["is not a signature"]);
}

#[test]
fn whose_word_counts_is_decided_again_when_a_pack_is_loaded() {
    let place = Place::new();
    let (ada, other) = (key(&place, "ada.key"), key(&place, "other.key"));
    place.pack(PACK, Version::First);
    place.done(&["node", "sign", PACK, "--key", "file:ada.key"]);
    place.done(&["node", "install", "./acme.wasm"]);
    trust(&place, "refuse", &ada, "acme");
    place.greeting("0.1");
    trust(&place, "allow", &other, "acme");
    place.refused(&["run", "--store", "memory:", "greeting.yaml"], &["the key that signed it is unknown"]);
    place.refused(&["node", "install"], &["the key that signed it is unknown"]);
    // A lock without its signature.
    let kept = |line: &&str| !line.contains("signature");
    let without: String = place.lock().lines().filter(kept).map(|line| format!("{line}\n")).collect();
    assert_ne!(without, place.lock());
    place.write("flowcell.lock", without.as_bytes());
    trust(&place, "refuse", &ada, "acme");
    place.refused(&["nodes"], &["acme@0.1.0 is not trusted", "it is not signed"]);
    place.refused(&["nodes", "--trust", "none.yaml"], &["cannot read none.yaml"]);
    place.write("flowcell.trust.yaml", b"unsigned: maybe\n");
    place.refused(&["nodes"], &["flowcell.trust.yaml: line 1", "maybe"]);
}

#[test]
fn another_signer_has_to_be_approved_of() {
    let place = Place::new();
    let (ada, other) = (key(&place, "ada.key"), key(&place, "other.key"));
    place.pack(PACK, Version::First);
    place.done(&["node", "sign", PACK, "--key", "file:ada.key"]);
    place.done(&["node", "install", "./acme.wasm"]);
    place.pack(PACK, Version::Second);
    fs::remove_file(place.path().join("acme.wasm.sig")).unwrap();
    place.refused(&["node", "install", "./acme.wasm"], &["+ not signed", &format!("- signed by {ada}")]);
    place.done(&["node", "sign", PACK, "--key", "file:other.key"]);
    place.refused(
        &["node", "install", "./acme.wasm"],
        &[&format!("+ signed by {other}"), &format!("- signed by {ada}")],
    );
    place.done(&["node", "sign", PACK, "--key", "file:ada.key"]);
    place.done(&["node", "install", "./acme.wasm"]);
}

#[test]
fn a_key_is_its_owners_alone() {
    let place = Place::new();
    let public = key(&place, "ada.key");
    assert!(public.starts_with("ed25519:"));
    place.refused(&["node", "keygen", "ada.key"], &["cannot write ada.key"]);
    place.write("acme.wasm", &acme(Version::First));
    let file = place.path().join("ada.key");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    place.refused(&["node", "sign", PACK, "--key", "file:ada.key"], &["other users may read it"]);
    place.refused(&["node", "sign", PACK, "--key", "env:NOBODY_HAS_SET_THIS"], &["is not set"]);
    let digits = fs::read_to_string(&file).unwrap();
    let place = place.with("ADAS_KEY", digits.trim());
    place.done(&["node", "sign", PACK, "--key", "env:ADAS_KEY"]);
    assert!(fs::read_to_string(place.path().join("acme.wasm.sig")).unwrap().starts_with(&public));
}
