//! Files in object stores: with a bucket in memory that fails on request, and with one of `moto`.

mod bucket;
mod failures;
mod files;
mod moto;
mod places;
mod races;
mod server;

use std::sync::Arc;

use flowcell_contract::{BlobRef, BlobWriter, Blobs, Json, Tenant};
use flowcell_runtime::{
    objects::{Chosen, Location, Objects},
    rows::copy_and_check::CopyableStore,
    sql::{Dialect, Options},
};

use self::bucket::Memory;
use crate::stores::backend::{Backend, Store};

/// Runs each test against each kind of store that may have files in an object store.
macro_rules! everywhere {
    ($($room:ident :: $test:ident)*) => {
        mod sqlite { $(#[test] fn $test() { super::$room::$test(&crate::stores::backend::Backend::sqlite()); })* }
        mod mysql { $(#[test] fn $test() { super::on_server(flowcell_runtime::sql::Dialect::MySql, super::$room::$test); })* }
        mod postgres { $(#[test] fn $test() { super::on_server(flowcell_runtime::sql::Dialect::Postgres, super::$room::$test); })* }
    };
}

everywhere! {
    files::large_files_are_objects_and_are_read_in_parts
    files::a_content_is_uploaded_once
    files::a_value_of_a_row_stays_in_the_database
    files::a_sweep_removes_the_objects_that_nothing_refers_to
    files::a_sweep_removes_old_objects_without_rows
    files::the_removal_of_a_tenant_removes_its_objects
    files::copies_have_the_files
    failures::a_file_goes_into_the_database_while_the_object_store_is_away
    failures::a_missing_or_changed_object_is_an_error_and_never_another_content
    places::a_store_remembers_where_its_files_are
    places::a_place_belongs_to_one_store
    races::a_content_that_a_sweep_removes_is_stored_again
    races::an_upload_without_a_row_is_spared
    races::writers_and_sweeps_at_once_lose_nothing
}

fn on_server(dialect: Dialect, test: impl FnOnce(&Backend)) {
    if let Some(backend) = Backend::server(dialect) {
        test(&backend);
    }
}

fn tenant() -> Tenant {
    Tenant::from("acme/é")
}

/// Returns bytes that repeat only after a long time.
fn content(size: usize, seed: u64) -> Vec<u8> {
    (0..size as u64).map(|at| ((at ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn objects(bucket: &Memory) -> Objects {
    Objects::new(Location::parse("s3://files/a/b").unwrap(), Box::new(bucket.clone()))
}

fn open(backend: &Backend, bucket: &Memory) -> Store {
    open_with(backend, objects(bucket))
}

fn open_with(backend: &Backend, objects: Objects) -> Store {
    backend.open_with(Options { objects: Chosen::Exactly(Some(objects)), ..Options::default() })
}

fn begin(store: &Store, bytes: &[u8]) -> Box<dyn BlobWriter> {
    let mut writer = store.blobs.clone().writer(&tenant()).unwrap();
    bytes.chunks(700_003).for_each(|part| writer.write(part).unwrap());
    assert_eq!(writer.size(), bytes.len() as u64);
    writer
}

/// Writes a file in parts.
fn write(store: &Store, bytes: &[u8]) -> BlobRef {
    begin(store, bytes).finish("a/b").unwrap()
}

fn put(store: &Store, bytes: &[u8]) -> BlobRef {
    store.blobs.put(&tenant(), bytes.into(), "a/b")
}

fn all(blobs: &dyn Blobs, blob: &BlobRef) -> Vec<u8> {
    let (mut bytes, mut offset) = (Vec::new(), 0);
    loop {
        let part = blobs.read_part(&tenant(), blob, offset, 3_000_001).unwrap().unwrap();
        if part.is_empty() {
            return bytes;
        }
        offset += part.len() as u64;
        bytes.extend(part);
    }
}

/// Lets a document refer to a file, or no longer.
fn refer(store: &Store, blob: &BlobRef, refers: bool) {
    let version = store.documents.get(&tenant(), "file", &blob.file_id).unwrap().map_or(0, |found| found.version);
    let value = refers.then(|| Json::from(&*blob.file_id));
    assert!(store.documents.write(&tenant(), "file", &blob.file_id, value.as_ref(), version).unwrap());
}

/// Makes all blobs old enough for a sweep. Closes and opens the store.
fn age(backend: &Backend, store: Store, bucket: &Memory) -> Store {
    age_with(backend, store, || open(backend, bucket))
}

fn age_with(backend: &Backend, store: Store, open: impl FnOnce() -> Store) -> Store {
    store.settle();
    drop(store);
    if let Backend::Server(server, database) = backend {
        server.execute(database, &["UPDATE flowcell_blobs SET put_at = 0"]);
    }
    open()
}

fn whole(store: &Store) -> Arc<dyn CopyableStore> {
    match (&store.sqlite, &store.server) {
        (Some(store), _) => store.clone(),
        (_, Some(store)) => store.clone(),
        _ => unreachable!(),
    }
}
