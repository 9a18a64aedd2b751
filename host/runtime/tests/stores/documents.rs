//! The document store of every kind of store.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use flowcell_contract::{Json, Tenant};
use flowcell_runtime::ports::DocumentStore;

use super::backend::{Backend, Store};
use crate::flows::tenant;

fn put(store: &Store, tenant: &Tenant, kind: &str, key: &str, value: u64) {
    assert!(store.documents.write(tenant, kind, key, Some(&Json::from(value)), 0).unwrap());
}

fn keys(documents: &dyn DocumentStore, kind: &str, after: &str, limit: usize) -> Vec<String> {
    let found = documents.list(&tenant(), kind, after, limit).unwrap();
    found.into_iter().map(|document| document.key).collect()
}

pub(crate) fn documents_are_listed_in_the_order_of_their_keys(backend: &Backend) {
    let store = backend.open();
    let documents = &*store.documents;
    for (at, key) in ["b", "B", "é", "a ", "a"].into_iter().enumerate() {
        put(&store, &tenant(), "token", key, at as u64);
    }
    put(&store, &tenant(), "tokens", "a", 9);
    put(&store, &Tenant::from("other"), "token", "z", 9);
    assert_eq!(keys(documents, "token", "", 9), ["B", "a", "a ", "b", "é"]);
    assert_eq!(keys(documents, "token", "a", 2), ["a ", "b"]);
    assert_eq!(keys(documents, "nothing", "", 9), [""; 0]);
    assert_eq!(documents.last(&tenant(), "token").unwrap().unwrap().key, "é");
    assert_eq!(documents.last(&tenant(), "nothing").unwrap(), None);
    let found = documents.get(&tenant(), "token", "a").unwrap().unwrap();
    assert_eq!((found.value, found.version), (Json::from(4_u64), 1));
    assert_eq!(documents.get(&Tenant::from("other"), "token", "a").unwrap(), None);
}

pub(crate) fn of_several_writers_that_expect_the_same_version_one_succeeds(backend: &Backend) {
    let store = backend.open();
    let documents = &*store.documents;
    let write = |value: Option<u64>, seen| {
        documents.write(&tenant(), "token", "k", value.map(Json::from).as_ref(), seen).unwrap()
    };
    for seen in 0..5 {
        let written: usize = thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|who| scope.spawn(move || usize::from(write(Some(who), seen)))).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!(written, 1);
        assert_eq!(documents.get(&tenant(), "token", "k").unwrap().unwrap().version, seen + 1);
    }
    assert!(!write(Some(1), 0) && !write(Some(1), 4) && !write(None, 4));
    assert!(write(None, 5));
    assert!(!write(None, 5) && !write(Some(1), 5));
    assert_eq!(documents.get(&tenant(), "token", "k").unwrap(), None);
    assert!(write(Some(1), 0));
}

pub(crate) fn a_writer_reads_its_write_beside_other_readers(backend: &Backend) {
    let store = backend.open();
    let documents = &*store.documents;
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !ends.load(Ordering::Acquire) {
                    let found = documents.get(&tenant(), "token", "k").unwrap();
                    let version = found.map_or(0, |found| found.version);
                    assert!(version >= last, "{version} after {last}");
                    last = version;
                }
            });
        }
        for seen in 0..40 {
            put_over(&store, seen);
            let found = documents.get(&tenant(), "token", "k").unwrap().unwrap();
            assert_eq!((found.value, found.version), (Json::from(seen), seen + 1));
        }
        ends.store(true, Ordering::Release);
    });
    assert!(documents.write(&tenant(), "token", "k", None, 40).unwrap());
    assert_eq!(documents.get(&tenant(), "token", "k").unwrap(), None);
}

fn put_over(store: &Store, seen: u64) {
    assert!(store.documents.write(&tenant(), "token", "k", Some(&Json::from(seen)), seen).unwrap());
}

pub(crate) fn documents_outlive_their_process(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    put(&store, &tenant(), "token", "k", 7);
    drop(store);
    let found = backend.open().documents.get(&tenant(), "token", "k").unwrap().unwrap();
    assert_eq!(found.value, Json::from(7_u64));
}
