//! Tests hostile packs: invalid files, forbidden imports, and changed bytes.

use std::fs;

use crate::{
    distribution::{
        pack::{Version, acme, digest},
        project::Project,
    },
    guests,
};

/// N21: installing a pack with an unknown import is refused. So is a lock, written by hand, that names such a pack.
#[test]
fn n21_a_pack_with_an_unknown_import_is_neither_installed_nor_loaded() {
    let project = Project::new();
    let bytes = fs::read(guests::build("liar", "forbidden").join("liar.wasm")).unwrap();
    project.write("liar.wasm", &bytes);
    let words = ["imports `liar:pack/nuke@0.1.0`, which this host does not offer"];
    project.run_refused(&["node", "install", "./liar.wasm"], &words);
    assert_eq!(project.lock(), "");
    project.pack("acme.wasm", Version::First);
    project.done(&["node", "install", "./acme.wasm"]);
    let stored = project.stored_pack();
    let old = stored.file_stem().unwrap().to_str().unwrap().to_owned();
    let new = digest(&bytes);
    project.write("flowcell.lock", project.lock().replace(&old, &new).as_bytes());
    fs::write(stored.with_file_name(format!("{new}.wasm")), &bytes).unwrap();
    project.run_refused(&["nodes"], &words);
    assert!(!project.kept_by_engines().iter().any(|name| name.contains(&new)), "nothing was compiled");
}

/// N28: native code is refused as a pack, in every place and under every name.
#[test]
fn n28_native_code_is_refused_as_a_pack() {
    let project = Project::new();
    let program = fs::read(env!("CARGO_BIN_EXE_flowcell")).unwrap();
    let head = &program[..4096];
    for file in ["acme.cwasm", "acme.wasm"] {
        project.write(file, head);
        project.run_refused(&["node", "install", &format!("./{file}")], &["native code, which the host never accepts"]);
        project
            .run_refused(&["node", "push", file, "127.0.0.1:1/acme"], &["native code, which the host never accepts"]);
    }
    fs::create_dir(project.path().join("packs")).unwrap();
    project.write("packs/acme.wasm", head);
    project.run_refused(&["nodes", "--packs", "packs"], &["native code, which the host never accepts"]);
    assert_eq!(project.lock(), "");
}

/// N29: a version whose bytes have changed is refused when it is fetched, installed and read.
#[test]
fn n29_a_version_whose_bytes_change_is_refused_with_both_digests() {
    let project = Project::new();
    let digests = [Version::First, Version::Altered].map(|version| digest(&acme(version)));
    let both = digests.each_ref().map(String::as_str);
    project.pack("acme.wasm", Version::First);
    project.done(&["node", "install", "./acme.wasm"]);
    let before = project.lock();
    project.pack("acme.wasm", Version::Altered);
    project.run_refused(&["node", "install", "./acme.wasm"], &[&["acme@0.1.0 has changed"][..], &both].concat());
    // The file in the store has changed.
    let stored = project.stored_pack();
    fs::write(&stored, acme(Version::Altered)).unwrap();
    project.run_refused(&["nodes"], &[&["acme@0.1.0 was changed in the store"][..], &both].concat());
    project.run_refused(&["node", "install"], &[&["acme@0.1.0 has changed"][..], &both].concat());
    assert_eq!(project.lock(), before);
    project.pack("acme.wasm", Version::First);
    project.done(&["node", "install"]);
    assert_eq!(fs::read(stored).unwrap(), acme(Version::First));
    // The file holds another version of the pack.
    project.pack("acme.wasm", Version::Second);
    fs::remove_file(project.stored_pack()).unwrap();
    project.run_refused(&["node", "install"], &["not acme@0.1.0", "has acme@0.2.0"]);
}

#[test]
fn packs_with_the_names_of_the_catalog_are_refused() {
    let project = Project::new();
    let target = std::path::Path::new(env!("CARGO_BIN_EXE_flowcell")).parent().unwrap().parent().unwrap();
    let data = target.join("guests/wasm32-wasip2/guest/flowcell_data.wasm");
    fs::copy(data, project.path().join("data.wasm")).unwrap();
    project.run_refused(&["node", "install", "./data.wasm"], &["the prefix `data.` is reserved"]);
}
