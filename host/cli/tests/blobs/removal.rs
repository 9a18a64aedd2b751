//! The removal of objects: those that nothing refers to, those of a tenant, and those that a sweep spares.

use std::{
    collections::BTreeSet,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use super::{Place, SIGNED, exchange, in_folder, json, on_postgres, told};

const SIZE: usize = 2 << 20;

/// Makes all rows of files older than a sweep spares. A folder has one process at a time, so it spares only what that
/// process has stored.
fn age(place: &Place) {
    if let Some((server, database)) = &place.database {
        server.execute(database, &["UPDATE flowcell_blobs SET put_at = 0"]);
    }
}

/// Runs work that uploads one file. Returns the name of its object.
fn uploaded(place: &Place, work: impl FnOnce()) -> String {
    let before = place.objects();
    work();
    let mut new: Vec<_> = place.objects().into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    new.remove(0)
}

/// Puts an object into the bucket that the store has not made.
fn put(place: &Place, name: String) -> String {
    exchange(place.moto.port, &format!("PUT /{}/{name}", place.bucket), SIGNED, b"nothing");
    name
}

fn check_sweeps(place: &Place) {
    for name in ["one.bin", "two.bin", "three.bin"] {
        place.write(name, SIZE);
    }
    let one = uploaded(place, || _ = place.run("a", "one.bin"));
    let (mut value, mut id) = (Value::Null, String::new());
    let two = uploaded(place, || value = place.run("b", "two.bin"));
    let three = uploaded(place, || {
        id = json(&place.done(&["files", "put", "three.bin"]))["fileId"].as_str().unwrap().to_owned();
    });
    // Objects without rows: the name has the time of the upload.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let object = |folder: &str, time: u128| put(place, format!("{folder}/{time:012x}-{:032x}", 7));
    let old = object("pre/fix/t-local", 1_000);
    let spared = [
        object("pre/fix/t-local", now - 23 * 3_600 * 1_000),
        put(place, "pre/fix/t-local/notes.txt".into()),
        object("pre/fix/t-local-2", 1_000),
        object("pre/fix2/t-local", 1_000),
    ];
    let with_spared =
        |more: &[&String]| -> BTreeSet<String> { spared.iter().chain(more.iter().copied()).cloned().collect() };
    let left = || -> BTreeSet<String> { place.objects().into_iter().collect() };
    assert!(left().contains(&old));
    place.done(&["runs", "delete", "a"]);
    if place.database.is_some() {
        assert_eq!(left(), with_spared(&[&one, &two, &three]), "other processes may need files younger than 24 h");
        age(place);
        place.done(&["runs", "gc", "--keep", "1"]);
    }
    assert_eq!(left(), with_spared(&[&two, &three]));
    place.done(&["files", "get", &id, "--out", "got.bin"]);
    place.done(&["files", "rm", &id]);
    age(place);
    place.done(&["runs", "gc", "--keep", "1"]);
    assert_eq!(left(), with_spared(&[&two]));
    place.assert_read(&value, "two.bin");
    age(place);
    let removed = json(&place.done(&["runs", "gc", "--keep", "0", "--json"]));
    assert_eq!(removed["filesLeft"], Value::Null, "{removed}");
    assert_eq!(left(), with_spared(&[]));
}

#[test]
fn a_sweep_of_a_folder_removes_the_objects_that_nothing_refers_to() {
    let Some(place) = in_folder() else { return };
    check_sweeps(&place);
}

#[test]
fn a_sweep_of_postgresql_removes_the_objects_that_nothing_refers_to() {
    let Some(place) = on_postgres() else { return };
    check_sweeps(&place);
}

#[test]
fn a_sweep_spares_what_its_own_process_has_stored() {
    let Some(place) = in_folder() else { return };
    place.write("one.bin", SIZE);
    let driver = place.driver();
    let put = json(&place.done(&["files", "put", "one.bin"]));
    place.done(&["files", "rm", put["fileId"].as_str().unwrap()]);
    place.done(&["runs", "gc", "--keep", "0"]);
    assert_eq!(place.objects().len(), 1);
    driver.stop();
    place.done(&["runs", "gc", "--keep", "0"]);
    assert_eq!(place.objects(), Vec::<String>::new());
}

/// A sweep and the removal of a tenant name the files that they could not remove, and a later one removes them.
fn check_removal_without_the_object_store(place: &Place) {
    place.write("one.bin", SIZE);
    place.write("two.bin", SIZE);
    place.run("a", "one.bin");
    place.done(&["tenant", "create", "shop"]);
    place.done(&["files", "put", "two.bin", "--tenant", "shop"]);
    place.done(&["tenant", "disable", "shop"]);
    assert_eq!(place.objects().len(), 2);
    let without_key = |arguments: &[&str]| place.command(arguments).env_remove("AWS_ACCESS_KEY_ID").output().unwrap();
    let missing = format!(
        "the files of the store are in {}: files in an object store need the variable `AWS_ACCESS_KEY_ID`",
        place.address()
    );
    let refused = told(&without_key(&["tenant", "delete", "shop", "--yes"]), 74);
    assert!(refused.contains(&missing), "{refused}");
    let refused = told(&place.away(&["tenant", "delete", "shop", "--yes"]), 74);
    assert!(refused.contains(&format!("cannot use {}: ", place.address())), "{refused}");
    age(place);
    let swept = told(&without_key(&["runs", "gc", "--keep", "0"]), 0);
    let warning = "warning: files that nothing refers to stay in the object store until a later `flowcell runs gc`: ";
    assert!(swept.contains(&format!("{warning}{missing}")), "{swept}");
    let swept = place.away(&["runs", "gc", "--keep", "0", "--json"]);
    let left = json(&super::stdout(&swept))["filesLeft"].as_str().map(str::to_owned);
    assert!(left.is_some_and(|left| left.contains("check `AWS_ENDPOINT_URL`")), "{swept:?}");
    assert_eq!(place.objects().len(), 2, "nothing was removed");
    place.done(&["tenant", "delete", "shop", "--yes"]);
    let objects = place.objects();
    assert!(matches!(&objects[..], [name] if name.starts_with("pre/fix/t-local/")), "{objects:?}");
}

#[test]
fn a_tenant_of_a_folder_is_not_removed_without_its_objects() {
    let Some(place) = in_folder() else { return };
    check_removal_without_the_object_store(&place);
}

#[test]
fn a_tenant_of_postgresql_is_not_removed_without_its_objects() {
    let Some(place) = on_postgres() else { return };
    check_removal_without_the_object_store(&place);
}
