//! Files in an object store: where their bytes are, and which processes read them.

use std::fs;

use super::{Place, done, in_folder, json, on_postgres};
use crate::kit::flowcell;

const LARGE: usize = 7 << 20;

/// Returns whether the store itself has these bytes: in a file of its folder, or in a row of its size.
fn has_itself(place: &Place, bytes: &[u8]) -> bool {
    if let Some((server, database)) = &place.database {
        let sql = "SELECT coalesce(max(length(bytes)), 0)::bigint FROM flowcell_blobs";
        return server.number(database, sql) >= bytes.len() as i64;
    }
    let store = place.path().join(".flowcell");
    let part = &bytes[bytes.len() / 2..][..32];
    let has_part = |file: fs::DirEntry| fs::read(file.path()).unwrap().windows(part.len()).any(|window| window == part);
    let has_large = store.join("flowcell.files").exists();
    has_large || fs::read_dir(store).unwrap().map(Result::unwrap).any(has_part)
}

/// A flow has a file, and other processes read it from the bucket: without `--blobs`, and beside a driver.
fn check_files(place: &Place) {
    let bytes = place.write("large.bin", LARGE);
    let small = place.write("small.bin", 100_000);
    let large_value = place.run("a", "large.bin");
    assert_eq!(large_value["size"], LARGE, "{large_value}");
    let small_value = place.run("b", "small.bin");
    let objects = place.objects();
    assert!(matches!(&objects[..], [name] if name.starts_with("pre/fix/t-local/")), "{objects:?}");
    assert!(place.object(&objects[0]) == bytes, "the object has another content");
    assert!(has_itself(place, &small) && !has_itself(place, &bytes));
    place.assert_read(&large_value, "large.bin");
    place.assert_read(&small_value, "small.bin");
    let other = place.write("other.bin", LARGE + 1);
    let driver = place.driver();
    let put = json(&place.done(&["files", "put", "other.bin"]));
    let id = put["fileId"].as_str().unwrap();
    place.done(&["files", "get", id, "--out", "got.bin"]);
    assert!(fs::read(place.path().join("got.bin")).unwrap() == other);
    driver.stop();
    assert_eq!(place.objects().len(), 2);
    let checked = json(&place.done(&["store", "check"]));
    assert_eq!(checked["damage"], serde_json::json!([]), "{checked}");
    // A backup needs no object store.
    place.done(&["store", "backup", "saved"]);
    done(flowcell(place.path()).args(["files", "get", id, "--out", "saved.bin", "--state", "saved"]));
    assert!(fs::read(place.path().join("saved.bin")).unwrap() == other);
    assert_eq!(place.objects().len(), 2);
}

#[test]
fn files_of_a_folder_are_in_the_bucket_and_other_processes_read_them() {
    let Some(place) = in_folder() else { return };
    check_files(&place);
}

#[test]
fn files_of_postgresql_are_in_the_bucket_and_other_processes_read_them() {
    let Some(place) = on_postgres() else { return };
    check_files(&place);
}

/// Files that a store had before stay where they are. From then on the store is not opened without its object store.
fn check_change(place: &Place) {
    let bytes = place.write("before.bin", 2 << 20);
    place.write("large.bin", LARGE);
    let before = json(&place.done(&["run", "hand.yaml", "-i", "file=@before.bin", "--run-id", "a", "--quiet"]));
    let value = place.run("b", "large.bin");
    // The content that the store has already is not uploaded.
    assert_eq!(place.run("c", "before.bin"), before["file"]);
    assert_eq!(place.objects().len(), 1);
    assert!(has_itself(place, &bytes));
    place.assert_read(&before["file"], "before.bin");
    place.assert_read(&value, "large.bin");
    let address = place.address();
    for command in [&["drive", "--once"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        let refused = super::told(&place.command(command).output().unwrap(), 2);
        let fix = format!("the files of the store are in {address}: open it with `--blobs {address}`");
        assert!(refused.contains(&fix), "{refused}");
    }
    let other = format!("s3://{}/other", place.bucket);
    for command in [&["drive", "--once"][..], &["run", "hand.yaml"]] {
        let given = [command, &["--blobs", &other]].concat();
        let refused = super::told(&place.command(&given).output().unwrap(), 2);
        assert!(refused.contains(&format!("are in {address}, not in {other}: open it with")), "{refused}");
    }
    // A copy has all files at its own place: in another prefix, or in the folder.
    let store = place.database.as_ref().map_or(".flowcell".into(), |(server, database)| server.url(database));
    place.done(&["store", "copy", &store, "moved", "--blobs", &other]);
    place.done(&["store", "copy", "moved", "plain"]);
    let moved: Vec<_> = place.objects().into_iter().filter(|name| name.starts_with("other/t-local/")).collect();
    assert_eq!(moved.len(), 2, "the files, and not the packs, which runs need: {moved:?}");
    for (value, file) in [(&before["file"], "before.bin"), (&value, "large.bin")] {
        done(flowcell(place.path()).args(place.reading(value)).args(["--state", "plain"]));
        let read = |name: &str| fs::read(place.path().join(name)).unwrap();
        assert!(read("read/file.bin") == read(file), "{file}");
    }
    assert_eq!(place.objects().len(), 3);
}

#[test]
fn a_store_in_a_folder_goes_over_to_an_object_store() {
    let Some(place) = in_folder() else { return };
    check_change(&place);
}

#[test]
fn a_store_on_postgresql_goes_over_to_an_object_store() {
    let Some(place) = on_postgres() else { return };
    check_change(&place);
}
