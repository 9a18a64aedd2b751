//! Tests that the build embeds packs that are already built, and reports errors in their folder.

#[path = "../build.rs"]
#[allow(dead_code, reason = "the test calls one part of the build script")]
mod build;

use std::{fs, path::Path};

const PACKS: [&str; 9] = ["agent", "control", "data", "file", "http", "query", "report", "script", "system"];

#[test]
fn packs_of_a_folder_are_taken_with_their_digests() {
    let (built, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for pack in PACKS {
        fs::write(built.path().join(format!("flowcell_{pack}.wasm")), pack).unwrap();
    }
    build::take_packs(built.path(), out.path()).unwrap();
    let listing = fs::read_to_string(out.path().join("catalog.rs")).unwrap();
    for pack in PACKS {
        assert_eq!(fs::read_to_string(out.path().join(format!("{pack}.wasm"))).unwrap(), pack);
    }
    // The digest is that of `printf agent | sha256sum`.
    let digest = "d4f0bc5a29de06b510f9aa428f1eedba926012b591fef7a518e776a7c9bd1824";
    assert!(listing.contains(&format!("name: \"agent\", digest: \"{digest}\"")), "{listing}");
}

#[test]
fn a_folder_that_lacks_a_pack_is_refused_with_the_file_and_the_variable() {
    let (built, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for pack in &PACKS[..8] {
        fs::write(built.path().join(format!("flowcell_{pack}.wasm")), pack).unwrap();
    }
    let error = build::take_packs(built.path(), out.path()).unwrap_err();
    assert!(error.contains("flowcell_system.wasm") && error.contains("FLOWCELL_CATALOG"), "{error}");
    assert!(!out.path().join("catalog.rs").exists());
}

#[test]
fn a_relative_folder_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let error = build::take_packs(Path::new("packs"), out.path()).unwrap_err();
    assert_eq!(error, "FLOWCELL_CATALOG is packs; write the whole path of the folder");
}

#[test]
fn a_published_package_without_packs_is_refused_with_its_cause() {
    let (carried, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let error = build::take_carried_packs(&carried.path().join("packs"), out.path()).unwrap_err();
    assert!(error.contains("flowcell_agent.wasm") && error.contains("without the catalog's packs"), "{error}");
}
