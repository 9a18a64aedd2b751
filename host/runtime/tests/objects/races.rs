//! Writers that store a content while a sweep removes it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use flowcell_contract::Json;
use sha2::{Digest, Sha256};

use super::{age, all, bucket::Memory, content, open, refer, tenant, write};
use crate::stores::backend::{Backend, Store};

/// Opens a second process of a store on a server, or the same store.
fn beside(backend: &Backend, store: &Arc<Store>, bucket: &Memory) -> Arc<Store> {
    if let Backend::Server(..) = backend { Arc::new(open(backend, bucket)) } else { store.clone() }
}

/// The writer begins after the sweep has removed the row, and before it removes the object.
pub(super) fn a_content_that_a_sweep_removes_is_stored_again(backend: &Backend) {
    let bucket = Memory::default();
    let bytes = content(2 << 20, 1);
    let store = open(backend, &bucket);
    write(&store, &bytes);
    let store = Arc::new(age(backend, store, &bucket));
    let writer = beside(backend, &store, &bucket);
    let (done, told) = mpsc::channel();
    let again = bytes.clone();
    bucket.before_removal(move || {
        let blob = write(&writer, &again);
        writer.settle();
        refer(&writer, &blob, true);
        done.send(blob).unwrap();
    });
    assert_eq!(store.sweep.sweep(&tenant()).unwrap().blobs, 1);
    let blob = told.try_recv().expect("the sweep has removed an object");
    assert!(all(&*store.blobs, &blob) == bytes);
    assert_eq!((bucket.uploads(), bucket.files().len()), (2, 1));
    assert_eq!(store.sweep.sweep(&tenant()).unwrap().blobs, 0);
    assert!(all(&*store.blobs, &blob) == bytes);
}

/// The sweep runs after the upload, and before the row is committed.
pub(super) fn an_upload_without_a_row_is_spared(backend: &Backend) {
    let bucket = Memory::default();
    let store = Arc::new(open(backend, &bucket));
    let sweeper = beside(backend, &store, &bucket);
    let (done, told) = mpsc::channel();
    bucket.after_upload(move || done.send(sweeper.sweep.sweep(&tenant()).unwrap().blobs).unwrap());
    let bytes = content(2 << 20, 1);
    let blob = write(&store, &bytes);
    assert_eq!(told.try_recv(), Ok(0));
    store.settle();
    assert!(all(&*store.blobs, &blob) == bytes);
    assert_eq!(bucket.files().len(), 1);
}

/// Each writer stores the same contents again and again, names them, reads them, and names them no longer. A content that
/// no writer uses is made old, so that a sweep removes it while the next writer stores it. If both writers upload a content
/// at once, one of the objects gets no row.
pub(super) fn writers_and_sweeps_at_once_lose_nothing(backend: &Backend) {
    const ROUNDS: u64 = 30;
    // The store in a folder has one process, and its writer does one after the other.
    let Backend::Server(server, database) = backend else { return };
    let bucket = Memory::default();
    let stores = [(); 3].map(|()| Arc::new(open(backend, &bucket)));
    let users: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let is_over = AtomicBool::new(false);
    let round = &|store: &Store, name: &str, seed: u64| {
        let bytes = content((1 << 20) + 1, seed);
        let hash = hex::encode(Sha256::digest(&bytes));
        *users.lock().unwrap().entry(hash.clone()).or_default() += 1;
        let blob = write(store, &bytes);
        store.settle();
        let version = store.documents.get(&tenant(), "file", name).unwrap().map_or(0, |found| found.version);
        let value = Json::from(&*blob.file_id);
        assert!(store.documents.write(&tenant(), "file", name, Some(&value), version).unwrap());
        assert!(all(&*store.blobs, &blob) == bytes, "{name} has lost the content {seed}");
        assert!(store.documents.write(&tenant(), "file", name, None, version + 1).unwrap());
        let mut users = users.lock().unwrap();
        let left = users.get_mut(&hash).unwrap();
        *left -= 1;
        if *left == 0 {
            server.execute(database, &[&format!("UPDATE flowcell_blobs SET put_at = 0 WHERE hash = '{hash}'")]);
        }
    };
    let swept = thread::scope(|scope| {
        let sweeping = scope.spawn(|| {
            let mut swept = 0;
            while !is_over.load(Ordering::SeqCst) {
                swept += stores[0].sweep.sweep(&tenant()).unwrap().blobs;
            }
            swept
        });
        let writing = ["one", "two"]
            .into_iter()
            .zip(&stores[1..])
            .map(|(name, store)| scope.spawn(move || (0..ROUNDS).for_each(|seed| round(store, name, seed % 2))));
        let writing: Vec<_> = writing.collect();
        let written: Vec<_> = writing.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::SeqCst);
        written.into_iter().for_each(|written| written.unwrap());
        sweeping.join().unwrap()
    });
    assert!(swept > 0, "no sweep has removed anything");
}
