//! What operators keep beside the runs.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use flowcell_contract::{Json, Tenant};
use flowcell_runtime::ports::Registry;

use super::{
    flows::tenant,
    place::{Place, Store},
};

fn put(store: &Store, tenant: &Tenant, kind: &str, key: &str, value: u64) {
    assert!(store.registry.register(tenant, kind, key, Some(&Json::from(value)), 0).unwrap());
}

fn keys(registry: &dyn Registry, kind: &str, after: &str, limit: usize) -> Vec<String> {
    let found = registry.registered_after(&tenant(), kind, after, limit).unwrap();
    found.into_iter().map(|registered| registered.key).collect()
}

pub(crate) fn what_is_registered_is_found_in_the_order_of_its_keys(place: &Place) {
    let store = place.open();
    let registry = &*store.registry;
    for (at, key) in ["b", "B", "é", "a ", "a"].into_iter().enumerate() {
        put(&store, &tenant(), "token", key, at as u64);
    }
    put(&store, &tenant(), "tokens", "a", 9);
    put(&store, &Tenant::from("other"), "token", "z", 9);
    assert_eq!(keys(registry, "token", "", 9), ["B", "a", "a ", "b", "é"]);
    assert_eq!(keys(registry, "token", "a", 2), ["a ", "b"]);
    assert_eq!(keys(registry, "nothing", "", 9), [""; 0]);
    assert_eq!(registry.last_registered(&tenant(), "token").unwrap().unwrap().key, "é");
    assert_eq!(registry.last_registered(&tenant(), "nothing").unwrap(), None);
    let found = registry.registered(&tenant(), "token", "a").unwrap().unwrap();
    assert_eq!((found.value, found.version), (Json::from(4_u64), 1));
    assert_eq!(registry.registered(&Tenant::from("other"), "token", "a").unwrap(), None);
}

pub(crate) fn of_several_who_have_seen_the_same_one_wins(place: &Place) {
    let store = place.open();
    let registry = &*store.registry;
    let write = |value: Option<u64>, seen| {
        registry.register(&tenant(), "token", "k", value.map(Json::from).as_ref(), seen).unwrap()
    };
    for seen in 0..5 {
        let written: usize = thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|who| scope.spawn(move || usize::from(write(Some(who), seen)))).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!(written, 1);
        assert_eq!(registry.registered(&tenant(), "token", "k").unwrap().unwrap().version, seen + 1);
    }
    assert!(!write(Some(1), 0) && !write(Some(1), 4) && !write(None, 4));
    assert!(write(None, 5));
    assert!(!write(None, 5) && !write(Some(1), 5));
    assert_eq!(registry.registered(&tenant(), "token", "k").unwrap(), None);
    assert!(write(Some(1), 0));
}

pub(crate) fn whoever_has_written_reads_that_whatever_others_read_meanwhile(place: &Place) {
    let store = place.open();
    let registry = &*store.registry;
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !ends.load(Ordering::Acquire) {
                    let found = registry.registered(&tenant(), "token", "k").unwrap();
                    let version = found.map_or(0, |found| found.version);
                    assert!(version >= last, "{version} after {last}");
                    last = version;
                }
            });
        }
        for seen in 0..40 {
            put_over(&store, seen);
            let found = registry.registered(&tenant(), "token", "k").unwrap().unwrap();
            assert_eq!((found.value, found.version), (Json::from(seen), seen + 1));
        }
        ends.store(true, Ordering::Release);
    });
    assert!(registry.register(&tenant(), "token", "k", None, 40).unwrap());
    assert_eq!(registry.registered(&tenant(), "token", "k").unwrap(), None);
}

fn put_over(store: &Store, seen: u64) {
    assert!(store.registry.register(&tenant(), "token", "k", Some(&Json::from(seen)), seen).unwrap());
}

pub(crate) fn what_is_registered_is_there_for_the_next_process(place: &Place) {
    if !place.lasts() {
        return;
    }
    let store = place.open();
    put(&store, &tenant(), "token", "k", 7);
    drop(store);
    let found = place.open().registry.registered(&tenant(), "token", "k").unwrap().unwrap();
    assert_eq!(found.value, Json::from(7_u64));
}
