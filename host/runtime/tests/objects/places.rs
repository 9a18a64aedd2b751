//! The place of the files of a store, which the store remembers.

use flowcell_runtime::{
    objects::{Chosen, Location, Objects},
    sql::{Options, SharedStore},
    sqlite::{Reader, SqliteStore, stop_process},
};

use super::{all, bucket::Memory, content, objects, open, write};
use crate::stores::backend::Backend;

/// Opens a store, and returns the error.
fn refused(backend: &Backend, given: Option<Objects>) -> String {
    match backend {
        Backend::Folder(folder) => {
            let chosen = Chosen::Exactly(given);
            SqliteStore::open_with(folder.path(), stop_process, &chosen).err().unwrap().to_string()
        }
        Backend::Server(server, database) => {
            let options = Options { objects: Chosen::Exactly(given), ..Options::default() };
            SharedStore::open(&server.url(database), options).err().unwrap().to_string()
        }
        Backend::Memory => unreachable!(),
    }
}

pub(super) fn a_store_remembers_where_its_files_are(backend: &Backend) {
    let bucket = Memory::default();
    // A place that cannot be reached is not remembered.
    bucket.set_away(true);
    assert!(refused(backend, Some(objects(&bucket))).contains("cannot use s3://files/a/b: no answer"));
    bucket.set_away(false);
    drop(backend.open());
    let store = open(backend, &bucket);
    let blob = write(&store, &content(2 << 20, 1));
    store.settle();
    drop(store);
    let error = refused(backend, None);
    assert!(
        error.contains("the files of the store are in s3://files/a/b: open it with `--blobs s3://files/a/b`"),
        "{error}"
    );
    let other = Objects::new(Location::parse("s3://others").unwrap(), Box::new(bucket.clone()));
    let error = refused(backend, Some(other));
    assert!(error.contains("are in s3://files/a/b, not in s3://others"), "{error}");
    // Another server may have a bucket of the same name.
    let error = refused(backend, Some(objects(&Memory::default())));
    assert!(
        error.contains("s3://files/a/b has no files of this store") && error.contains("a/b/flowcell-store"),
        "{error}"
    );
    // What needs no file needs no object store.
    match backend {
        Backend::Folder(folder) => {
            let reader = Reader::open(folder.path()).unwrap();
            let failure = flowcell_contract::Blobs::get(&reader, &super::tenant(), &blob).unwrap_err();
            assert!(failure.message.contains("AWS_ACCESS_KEY_ID"), "{failure:?}");
        }
        _ => drop(backend.open_with(Options { objects: Chosen::Remembered, ..Options::default() })),
    }
    assert!(all(&*open(backend, &bucket).blobs, &blob) == content(2 << 20, 1));
    // A place that was away at the start is examined before anything is written to it.
    let other = Memory::default();
    other.set_away(true);
    let store = open(backend, &other);
    other.set_away(false);
    write(&store, &content(2 << 20, 2));
    store.settle();
    let left = store.sweep.sweep(&super::tenant()).unwrap().files_left;
    assert!(left.unwrap().contains("has no files of this store"));
    assert_eq!(other.names(), Vec::<String>::new());
}

pub(super) fn a_place_belongs_to_one_store(backend: &Backend) {
    let bucket = Memory::default();
    drop(open(&Backend::sqlite(), &bucket));
    let error = refused(backend, Some(objects(&bucket)));
    assert!(error.contains("s3://files/a/b has the files of another store"), "{error}");
    drop(backend.open());
    assert_eq!(bucket.names(), ["a/b/flowcell-store"], "nothing was changed");
}
