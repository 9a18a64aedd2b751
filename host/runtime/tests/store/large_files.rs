//! Files of a store that are written in parts and lie beside the database.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_contract::{BlobRef, BlobWriter, Blobs, MAX_WHOLE_BYTES, PIECE_BYTES, Tenant, Value};
use flowcell_runtime::{
    ports::{Erase, Journal, Sweep},
    rows::copy_and_check::{check, copy},
    sqlite::{NewCopy, Reader, SqliteStore},
};
use sha2::{Digest, Sha256};

use super::{
    forget,
    large::{entry, outputs},
    open, tenant,
};

/// Returns bytes that repeat only after a long time.
fn content(size: usize) -> Vec<u8> {
    (0..size as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Writes a file in parts of an odd size.
fn begin(store: &Arc<SqliteStore>, tenant: &Tenant, bytes: &[u8]) -> Box<dyn BlobWriter> {
    let mut writer = store.clone().writer(tenant).unwrap();
    bytes.chunks(100_003).for_each(|part| writer.write(part).unwrap());
    assert_eq!(writer.size(), bytes.len() as u64);
    writer
}

fn put(store: &Arc<SqliteStore>, bytes: &[u8]) -> BlobRef {
    begin(store, &tenant(), bytes).finish("a/b").unwrap()
}

fn all(blobs: &dyn Blobs, blob: &BlobRef) -> Vec<u8> {
    let (mut bytes, mut offset) = (Vec::new(), 0);
    loop {
        let part = blobs.read_part(&tenant(), blob, offset, 700_001).unwrap().unwrap();
        if part.is_empty() {
            return bytes;
        }
        offset += part.len() as u64;
        bytes.extend(part);
    }
}

/// Returns the large files in the folder of a store, with those that are unfinished.
fn files(folder: &Path) -> Vec<PathBuf> {
    let within = |folder: &Path| fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        within(&folder.join("flowcell.files")).flat_map(|folder| within(&folder).collect::<Vec<_>>()).collect();
    files.sort();
    files
}

#[test]
fn a_large_file_is_beside_the_database_and_read_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for size in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 17] {
        let bytes = content(size);
        let blob = put(&store, &bytes);
        assert_eq!((&*blob.file_id, blob.size), (hex::encode(Sha256::digest(&bytes)).as_str(), size as u64));
        for durable in [false, true] {
            if durable {
                store.settle().unwrap();
            }
            assert_eq!(all(&*store, &blob), bytes, "{size}");
            assert_eq!(store.size(&tenant(), &blob).unwrap(), Some(size as u64));
            assert_eq!(Blobs::get(&*store, &tenant(), &blob).unwrap().as_deref(), Some(&*bytes));
            for (offset, length) in
                [(0, 0), (size, 1), (u64::MAX as usize, 5), (size / 2, usize::MAX), (size.saturating_sub(1), 9)]
            {
                let expected = &bytes[offset.min(size)..offset.saturating_add(length).min(size)];
                let read = store.read_part(&tenant(), &blob, offset as u64, length).unwrap().unwrap();
                assert_eq!(read, expected, "{size} {offset} {length}");
            }
        }
        assert_eq!(all(&Reader::open(folder.path()).unwrap(), &blob), bytes);
        let other = Tenant::from("other");
        assert_eq!(store.read_part(&other, &blob, 0, 1).unwrap(), None, "it is another tenant's file");
        assert_eq!((store.size(&other, &blob).unwrap(), Blobs::get(&*store, &other, &blob).unwrap()), (None, None));
    }
    assert_eq!(files(folder.path()).len(), 3, "smaller ones are in the database");
    let database = fs::metadata(folder.path().join("flowcell.db")).unwrap().len();
    assert!(database < 3 * PIECE_BYTES as u64, "{database}");
}

#[test]
fn a_file_that_is_too_large_for_memory_is_only_read_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let bytes = content(MAX_WHOLE_BYTES + 1);
    let blob = put(&store, &bytes);
    assert_eq!(Blobs::get(&*store, &tenant(), &blob).unwrap_err().code, "file_too_large");
    assert!(all(&*store, &blob) == bytes);
    // The size in a file value is what its writer says.
    let claims = BlobRef { size: 1, ..blob };
    assert_eq!(store.size(&tenant(), &claims).unwrap(), Some(bytes.len() as u64));
    let path = BlobRef { file_id: "../../flowcell.db".into(), ..claims };
    assert_eq!(store.read_part(&tenant(), &path, 0, 1).unwrap(), None, "an id is no path");
}

#[test]
fn the_same_content_is_one_file_also_if_the_database_had_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let bytes = content(2 * PIECE_BYTES);
    let whole = store.put(&tenant(), bytes.as_slice().into(), "a/b");
    store.settle().unwrap();
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    assert_eq!((put(&store, &bytes), put(&store, &bytes)), (whole.clone(), whole.clone()));
    assert_eq!(store.put(&tenant(), bytes.as_slice().into(), "a/b"), whole);
    store.settle().unwrap();
    assert_eq!(files(folder.path()).len(), 1);
    assert_eq!(all(&*store, &whole), bytes);
}

#[test]
fn unfinished_files_and_files_without_rows_go_away() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let kept = put(&store, &content(PIECE_BYTES + 1));
    drop(begin(&store, &tenant(), &content(PIECE_BYTES + 2)));
    assert_eq!(files(folder.path()).len(), 1, "a dropped file is removed");
    // A process that is killed leaves its unfinished file, and the next owner removes it.
    let unfinished = begin(&store, &tenant(), &content(PIECE_BYTES + 3));
    store.settle().unwrap();
    let named = files(folder.path()).into_iter().find(|file| !file.parent().unwrap().ends_with("unfinished")).unwrap();
    fs::copy(&named, named.with_file_name("f".repeat(64))).unwrap();
    fs::write(folder.path().join("flowcell.files/unfinished/1-1"), "of a killed process").unwrap();
    assert_eq!(files(folder.path()).len(), 4);
    drop(unfinished);
    drop(store);
    let store = open(folder.path());
    assert_eq!(files(folder.path()), [named]);
    assert!(store.size(&tenant(), &kept).unwrap().is_some());
}

#[test]
fn a_sweep_removes_the_files_that_nothing_refers_to() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let [kept, gone] = [1, 2].map(|more| put(&store, &content(PIECE_BYTES + more)));
    store.append(entry("r", outputs([Value::from(kept.clone()).json().clone()]).remove(0)));
    store.settle().unwrap();
    assert_eq!(store.sweep(&tenant()).unwrap().blobs, 0, "new files are spared");
    drop(store);
    let store = open(folder.path());
    let swept = store.sweep(&tenant()).unwrap();
    assert_eq!((swept.blobs, swept.bytes), (1, gone.size));
    assert_eq!(store.size(&tenant(), &gone).unwrap(), None);
    assert_eq!((files(folder.path()).len(), all(&*store, &kept).len() as u64), (1, kept.size));
    // A file that is written again is stored again.
    assert_eq!(put(&store, &content(PIECE_BYTES + 2)), gone);
    forget(&store, "r");
    assert_eq!(store.sweep(&tenant()).unwrap().blobs, 1);
    assert_eq!(all(&*store, &gone).len() as u64, gone.size);
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn the_removal_of_a_tenant_removes_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let [acme, other] = ["acme", "Acme"].map(Tenant::from);
    let bytes = content(PIECE_BYTES + 1);
    let blob = begin(&store, &acme, &bytes).finish("a/b").unwrap();
    begin(&store, &other, &bytes).finish("a/b").unwrap();
    let late = begin(&store, &acme, &content(PIECE_BYTES + 2));
    store.settle().unwrap();
    assert_eq!(store.rows_of(&acme).unwrap()["blobs"], 1);
    while store.erase_some(&acme).unwrap() > 0 {}
    assert_eq!(late.finish("a/b").unwrap_err().code, "denied", "nothing is written for a removed tenant");
    assert_eq!((store.size(&acme, &blob).unwrap(), store.size(&other, &blob).unwrap()), (None, Some(blob.size)));
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn a_damaged_or_missing_file_is_an_error_and_never_another_content() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let bytes = content(3 * PIECE_BYTES + 5);
    let blob = put(&store, &bytes);
    store.settle().unwrap();
    assert_eq!(check(&*store).unwrap().damage, Vec::<String>::new());
    let path = files(folder.path()).remove(0);
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(PIECE_BYTES as u64 + 7)).unwrap();
    file.write_all(&[bytes[PIECE_BYTES + 7] ^ 1]).unwrap();
    let read = |offset: usize| store.read_part(&tenant(), &blob, offset as u64, 10);
    assert_eq!(read(0).unwrap().unwrap(), bytes[..10], "other pieces are intact");
    assert_eq!(read(PIECE_BYTES).unwrap_err().code, "store_failed");
    assert_eq!(read(PIECE_BYTES - 5).unwrap_err().code, "store_failed");
    assert_eq!(check(&*store).unwrap().damage.len(), 1);
    file.set_len(PIECE_BYTES as u64).unwrap();
    assert_eq!(read(2 * PIECE_BYTES).unwrap_err().code, "store_failed");
    fs::remove_file(&path).unwrap();
    assert_eq!(read(0).unwrap_err().code, "store_failed");
    let damage = check(&*store).unwrap().damage;
    assert!(damage.len() == 1 && damage[0].contains(&*blob.file_id), "{damage:?}");
}

#[test]
fn r31_backups_and_copies_have_the_files() {
    let [folder, backup, copied] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let store = open(folder.path());
    let sizes = [PIECE_BYTES + 1, MAX_WHOLE_BYTES + 1];
    let blobs = sizes.map(|size| put(&store, &content(size)));
    store.settle().unwrap();
    let begun = NewCopy::begin(backup.path()).unwrap();
    begun.copy_database(folder.path()).unwrap();
    assert_eq!(begun.check().unwrap().damage, Vec::<String>::new());
    assert!(begun.finish().unwrap() > sizes.iter().sum::<usize>() as u64);
    let mut names: Vec<_> = fs::read_dir(backup.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["flowcell.db", "flowcell.files"]);
    let to = open(copied.path());
    copy(&*store, &*to).unwrap();
    drop(to);
    for place in [&backup, &copied] {
        let made = open(place.path());
        assert_eq!(check(&*made).unwrap().damage, Vec::<String>::new());
        for (blob, size) in blobs.iter().zip(sizes) {
            assert!(all(&*made, blob) == content(size));
        }
    }
    // A copy whose file is missing is reported as damaged.
    fs::remove_file(files(folder.path()).remove(0)).unwrap();
    let second = tempfile::tempdir().unwrap();
    let begun = NewCopy::begin(second.path()).unwrap();
    begun.copy_database(folder.path()).unwrap();
    assert_eq!(begun.check().unwrap().damage.len(), 1);
}

#[cfg(unix)]
#[test]
fn large_files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    put(&store, &content(PIECE_BYTES + 1));
    let _unfinished = begin(&store, &tenant(), &content(PIECE_BYTES + 2));
    let files = files(folder.path());
    assert_eq!(files.len(), 2);
    for path in files.iter().flat_map(|file| file.ancestors().take(3)) {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o077, 0, "{}", path.display());
    }
}

/// A content beyond the limit of a store in memory is refused while it is written, and nothing of it stays.
#[test]
fn a_store_in_memory_has_no_larger_files() {
    let blobs = Arc::new(flowcell_runtime::memory::MemoryBlobs::default());
    let mut writer = blobs.clone().writer(&tenant()).unwrap();
    writer.write(&content(MAX_WHOLE_BYTES)).unwrap();
    assert_eq!(writer.write(b"x").unwrap_err().code, "file_too_large");
    let blob = writer.finish("a/b").unwrap();
    assert_eq!(blob.size, MAX_WHOLE_BYTES as u64);
    let mut first = Vec::new();
    blobs.read_part(&tenant(), &blob, 0, 3).unwrap().unwrap().as_slice().read_to_end(&mut first).unwrap();
    assert_eq!(first, content(3));
}
