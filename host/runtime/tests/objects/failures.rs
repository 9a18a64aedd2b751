//! Object stores that are away, and objects that are missing or have changed.

use flowcell_runtime::{
    limits::{MAX_ROW_FILE_BYTES, OBJECT_PART_BYTES},
    rows::copy_and_check::check,
};

use super::{all, begin, bucket::Memory, content, open, put, tenant, whole, write};
use crate::stores::backend::Backend;

pub(super) fn a_file_goes_into_the_database_while_the_object_store_is_away(backend: &Backend) {
    let bucket = Memory::default();
    let store = open(backend, &bucket);
    let before = write(&store, &content(OBJECT_PART_BYTES + 1, 1));
    store.settle();
    let mut begun = begin(&store, &content(3 * OBJECT_PART_BYTES, 2));
    bucket.set_away(true);
    // What is in memory as a whole is kept at once.
    let small = content(MAX_ROW_FILE_BYTES + 1, 3);
    let kept = [put(&store, &small), write(&store, &content(OBJECT_PART_BYTES, 4))];
    store.settle();
    assert!(all(&*store.blobs, &kept[0]) == small && all(&*store.blobs, &kept[1]).len() == OBJECT_PART_BYTES);
    // What is not, fails, and the attempt can be repeated.
    let failure = begun.write(&content(2 * OBJECT_PART_BYTES, 5)).unwrap_err();
    assert_eq!((&*failure.code, failure.retryable), ("store_failed", true));
    let failure = store.blobs.read_part(&tenant(), &before, 0, 1).unwrap_err();
    assert_eq!((&*failure.code, failure.retryable), ("store_failed", true));
    assert!(failure.message.contains("s3://files/a/b"), "{failure:?}");
    // The process may start again meanwhile.
    drop((begun, store));
    let store = open(backend, &bucket);
    assert!(all(&*store.blobs, &kept[0]) == small);
    bucket.set_away(false);
    assert!(all(&*store.blobs, &before) == content(OBJECT_PART_BYTES + 1, 1));
    assert_eq!(bucket.files().len(), 1);
}

pub(super) fn a_missing_or_changed_object_is_an_error_and_never_another_content(backend: &Backend) {
    let bucket = Memory::default();
    let store = open(backend, &bucket);
    let bytes = content(3 << 20, 1);
    let blob = write(&store, &bytes);
    store.settle();
    let name = bucket.files().remove(0);
    let read = |offset: u64| store.blobs.read_part(&tenant(), &blob, offset, 10);
    let mut changed = bucket.get(&name);
    changed[(1 << 20) + 7] ^= 1;
    bucket.set(&name, Some(changed));
    assert_eq!(read(0).unwrap().unwrap(), bytes[..10], "other pieces are intact");
    for offset in [1 << 20, (1 << 20) - 5] {
        assert_eq!(read(offset).unwrap_err().code, "store_failed");
    }
    assert!(store.blobs.get(&tenant(), &blob).is_err());
    let damage = check(&*whole(&store)).unwrap().damage;
    assert!(damage.len() == 1 && damage[0].contains(&*blob.file_id), "{damage:?}");
    for other in [Some(bytes[..2 << 20].to_vec()), Some(Vec::new()), None] {
        bucket.set(&name, other);
        let failure = read(2 << 20).unwrap_err();
        assert_eq!((&*failure.code, failure.retryable), ("store_failed", false));
        assert_eq!(check(&*whole(&store)).unwrap().damage.len(), 1);
    }
}
