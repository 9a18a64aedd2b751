//! The pack `acme` in versions with different capabilities.

use std::{fs, sync::OnceLock};

use sha2::{Digest, Sha256};

use crate::guests;

/// A version of the pack.
#[derive(Clone, Copy)]
pub(crate) enum Version {
    /// Version 0.1.0 as its author wrote it. `acme.greet` requests `log`.
    First,
    /// Version 0.1.0 again, with other bytes.
    Altered,
    /// Version 0.2.0, which requests the same capabilities.
    Second,
    /// Version 0.3.0, whose `acme.greet` requests `http` in place of `log`.
    Greedy,
}

/// Returns the bytes of a version. The manifest is replaced in the built file, so that the pack is built once.
pub(crate) fn acme(version: Version) -> Vec<u8> {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    let first = BUILT.get_or_init(|| fs::read(guests::build("acme", "").join("acme.wasm")).unwrap());
    let asks = ("name: log, reason: to say whom", "name: http, reason: to ask who");
    let edits: &[(&str, &str)] = match version {
        Version::First => &[],
        Version::Altered => &[("What a stranger writes", "What a stranger wrote.")],
        Version::Second => &[("name: acme\nversion: 0.1.0", "name: acme\nversion: 0.2.0")],
        Version::Greedy => &[("name: acme\nversion: 0.1.0", "name: acme\nversion: 0.3.0"), asks],
    };
    edits.iter().fold(first.clone(), |bytes, (old, new)| replaced(bytes, old, new))
}

fn replaced(mut bytes: Vec<u8>, old: &str, new: &str) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    // The component also has the text in its memory, before the custom section.
    let at = bytes.windows(old.len()).rposition(|window| window == old.as_bytes()).unwrap();
    bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
    bytes
}

/// Returns the SHA-256 digest as hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
