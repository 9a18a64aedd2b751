//! Files in an object store: how they are stored, read, found and removed.

use std::collections::BTreeMap;

use flowcell_contract::{Json, MAX_WHOLE_BYTES, Tenant, Value};
use flowcell_runtime::{
    fact::Write,
    limits::{MAX_ROW_FILE_BYTES, OBJECT_PART_BYTES},
    ports::{Entry, Erase},
    rows::copy_and_check::{check, copy},
};
use sha2::{Digest, Sha256};

use super::{age, all, begin, bucket::Memory, content, open, put, refer, tenant, whole, write};
use crate::stores::{
    backend::{Backend, Store},
    units::{entry, unit},
};

pub(super) fn large_files_are_objects_and_are_read_in_parts(backend: &Backend) {
    let bucket = Memory::default();
    let store = open(backend, &bucket);
    let sizes =
        [MAX_ROW_FILE_BYTES, MAX_ROW_FILE_BYTES + 1, OBJECT_PART_BYTES, 2 * OBJECT_PART_BYTES, MAX_WHOLE_BYTES + 7];
    for (seed, size) in (1..).zip(sizes) {
        let bytes = content(size, seed);
        let blob = if seed % 2 == 0 { put(&store, &bytes) } else { write(&store, &bytes) };
        assert_eq!((&*blob.file_id, blob.size), (hex::encode(Sha256::digest(&bytes)).as_str(), size as u64));
        for durable in [false, true] {
            if durable {
                store.settle();
            }
            assert!(all(&*store.blobs, &blob) == bytes, "{size}");
            assert_eq!(store.blobs.size(&tenant(), &blob).unwrap(), Some(size as u64));
            match store.blobs.get(&tenant(), &blob) {
                Err(failure) if size > MAX_WHOLE_BYTES => assert_eq!(failure.code, "file_too_large"),
                found => assert!(found.unwrap().as_deref() == Some(&*bytes)),
            }
            for (offset, length) in [(0, 0), (size, 1), (u64::MAX as usize, 5), (size / 2, 2 << 20), (size - 1, 9)] {
                let expected = &bytes[offset.min(size)..offset.saturating_add(length).min(size)];
                let read = store.blobs.read_part(&tenant(), &blob, offset as u64, length).unwrap().unwrap();
                assert!(read == expected, "{size} {offset} {length}");
            }
            let other = Tenant::from("acme");
            assert_eq!(store.blobs.read_part(&other, &blob, 0, 1).unwrap(), None, "it is another tenant's file");
        }
    }
    let files = bucket.files();
    assert_eq!(files.len(), sizes.len() - 1, "a smaller one is in the database: {files:?}");
    assert!(files.iter().all(|name| name.starts_with("a/b/t-acme=2F=C3=A9/")), "{files:?}");
    assert_eq!(check(&*whole(&store)).unwrap().damage, Vec::<String>::new());
}

pub(super) fn a_content_is_uploaded_once(backend: &Backend) {
    let bucket = Memory::default();
    let store = open(backend, &bucket);
    let bytes = content(2 * OBJECT_PART_BYTES, 1);
    let blob = write(&store, &bytes);
    store.settle();
    assert_eq!((put(&store, &bytes), write(&store, &bytes)), (blob.clone(), blob.clone()));
    store.settle();
    assert_eq!((bucket.uploads(), bucket.files().len()), (1, 1));
    drop(begin(&store, &content(3 * OBJECT_PART_BYTES, 2)));
    assert_eq!(bucket.files().len(), 1, "a dropped file leaves nothing");
    drop(store);
    assert!(all(&*open(backend, &bucket).blobs, &blob) == bytes);
}

/// Appends a run that keeps a value as the state of a flow.
fn keep_value(store: &Store, run: &str, text: &str) {
    let write = Write { key: run.into(), value: Value::from(Json::from(text)), expected: None };
    let staged = store.state.stage(&tenant(), &"f".into(), vec![write]).unwrap();
    let lease = store.leases.claim(&tenant(), &run.into()).unwrap();
    store.journal.append(Entry { tenant: tenant(), writes: Some(staged), ..entry(run, unit(0)) });
    store.settle();
    drop(lease);
}

/// A value and a file may have the same content. The value is read without the object store.
pub(super) fn a_value_of_a_row_stays_in_the_database(backend: &Backend) {
    let bucket = Memory::default();
    let store = open(backend, &bucket);
    let texts = ["x", "y"].map(|letter| letter.repeat(2 << 20));
    let json = texts.each_ref().map(|text| format!("\"{text}\"").into_bytes());
    let before = write(&store, &json[0]);
    store.settle();
    keep_value(&store, "r0", &texts[0]);
    keep_value(&store, "r1", &texts[1]);
    let after = write(&store, &json[1]);
    store.settle();
    drop(store);
    let store = open(backend, &bucket);
    assert!(all(&*store.blobs, &before) == json[0] && all(&*store.blobs, &after) == json[1]);
    bucket.set_away(true);
    for (key, text) in ["r0", "r1"].iter().zip(&texts) {
        let (value, _) = store.state.get(&tenant(), "f", key).unwrap().unwrap();
        assert!(*value.json() == Json::from(text.as_str()), "{key}");
    }
    assert!(all(&*store.blobs, &before) == json[0], "the file is the value");
}

pub(super) fn a_sweep_removes_the_objects_that_nothing_refers_to(backend: &Backend) {
    let bucket = Memory::default();
    let store = open(backend, &bucket);
    let [kept, gone] = [1, 2].map(|seed| write(&store, &content(OBJECT_PART_BYTES + 1, seed)));
    refer(&store, &kept, true);
    store.settle();
    assert_eq!(store.sweep.sweep(&tenant()).unwrap().blobs, 0, "new files are spared");
    let store = age(backend, store, &bucket);
    let swept = store.sweep.sweep(&tenant()).unwrap();
    assert_eq!((swept.blobs, swept.bytes), (1, gone.size));
    assert_eq!((store.blobs.size(&tenant(), &gone).unwrap(), bucket.files().len()), (None, 1));
    assert!(all(&*store.blobs, &kept) == content(OBJECT_PART_BYTES + 1, 1));
    // An object store that is away keeps the object, and a later sweep removes it.
    refer(&store, &kept, false);
    let store = age(backend, store, &bucket);
    let away = bucket.clone();
    bucket.before_removal(move || away.set_away(true));
    assert_eq!(store.sweep.sweep(&tenant()).map_or(1, |swept| swept.blobs), 1);
}

/// A crash between an upload and the commit leaves such objects. Those of other programs stay.
pub(super) fn a_sweep_removes_old_objects_without_rows(backend: &Backend) {
    let bucket = Memory::default();
    let store = open(backend, &bucket);
    let kept = write(&store, &content(OBJECT_PART_BYTES + 1, 1));
    store.settle();
    let named = bucket.files();
    let folder = "a/b/t-acme=2F=C3=A9";
    let young = named[0].rsplit('/').next().unwrap().replace(|letter: char| letter.is_ascii_digit(), "a");
    let young = format!("{}-{young}", named[0].rsplit('/').next().unwrap().split('-').next().unwrap());
    let stay =
        [format!("{folder}/notes"), format!("{folder}/{young}"), "a/b/t-acme/00000001-0".into(), "c/00000001-0".into()];
    let go = format!("{folder}/00000001-0");
    stay.iter().chain([&go]).for_each(|name| bucket.set(name, Some(vec![1])));
    store.sweep.sweep(&tenant()).unwrap();
    let left = bucket.files();
    assert!(!left.contains(&go) && left.len() == 1 + stay.len(), "{left:?}");
    assert!(all(&*store.blobs, &kept).len() as u64 == kept.size);
}

pub(super) fn the_removal_of_a_tenant_removes_its_objects(backend: &Backend) {
    let bucket = Memory::default();
    let store = open(backend, &bucket);
    let bytes = content(OBJECT_PART_BYTES + 1, 1);
    let blob = write(&store, &bytes);
    let other = Tenant::from("acme");
    store.blobs.put(&other, bytes.as_slice().into(), "a/b");
    store.settle();
    assert_eq!(bucket.files().len(), 2);
    let erase: &dyn Erase = match (&store.sqlite, &store.server) {
        (Some(store), _) => &**store,
        (_, store) => &**store.as_ref().unwrap(),
    };
    bucket.set_away(true);
    let mut away = erase.erase_some(&tenant());
    while matches!(away, Ok(erased) if erased > 0) {
        away = erase.erase_some(&tenant());
    }
    assert!(away.unwrap_err().to_string().contains("s3://files/a/b"), "the objects are not removed yet");
    bucket.set_away(false);
    assert_eq!(erase.erase_some(&tenant()).unwrap(), 0);
    assert_eq!((store.blobs.size(&tenant(), &blob).unwrap(), bucket.files().len()), (None, 1));
    assert_eq!(store.blobs.size(&other, &blob).unwrap(), Some(blob.size));
}

pub(super) fn copies_have_the_files(backend: &Backend) {
    let buckets = [(); 2].map(|()| Memory::default());
    let store = open(backend, &buckets[0]);
    let sizes = [MAX_ROW_FILE_BYTES + 1, MAX_WHOLE_BYTES + 1];
    let blobs: BTreeMap<usize, _> = sizes.into_iter().map(|size| (size, write(&store, &content(size, 1)))).collect();
    keep_value(&store, "r", &"x".repeat(2 << 20));
    // Into a folder, with files of its own and with an object store.
    for target in [None, Some(&buckets[1])] {
        let other = Backend::sqlite();
        let to = match target {
            Some(bucket) => open(&other, bucket),
            None => other.open(),
        };
        copy(&*whole(&store), &*whole(&to)).unwrap();
        drop(to);
        let to = match target {
            Some(bucket) => open(&other, bucket),
            None => other.open(),
        };
        assert_eq!(check(&*whole(&to)).unwrap().damage, Vec::<String>::new());
        blobs.iter().for_each(|(size, blob)| assert!(all(&*to.blobs, blob) == content(*size, 1)));
        if target.is_some() {
            assert_eq!(buckets[1].files().len(), 2, "the value stays in the database");
            // And from there into a store of the first kind.
            let third = match backend {
                Backend::Server(server, _) => Backend::Server(server, server.database()),
                _ => Backend::sqlite(),
            };
            let bucket = Memory::default();
            let last = open(&third, &bucket);
            copy(&*whole(&to), &*whole(&last)).unwrap();
            assert_eq!(check(&*whole(&last)).unwrap().damage, Vec::<String>::new());
            blobs.iter().for_each(|(size, blob)| assert!(all(&*last.blobs, blob) == content(*size, 1)));
            assert_eq!(bucket.files().len(), 2);
        }
    }
}
