//! Access to the files of a store: only the user that owns them may open the folder, and read or lock the files.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use flowcell_runtime::{
    ports::Journal,
    sqlite::{BackupError, NewCopy},
};

use super::{COUNTS, open, options, run};

/// Returns the paths of a folder and its files that other users may access, each with its mode.
fn open_to_others(folder: &Path) -> Vec<(String, u32)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let modes = entries.chain([folder.to_owned()]).map(|path| {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        (path.display().to_string(), mode)
    });
    modes.filter(|(_, mode)| mode & 0o077 != 0).collect()
}

#[test]
fn a_store_and_its_copies_are_its_owners_alone() {
    let place = tempfile::tempdir().unwrap();
    let (folder, copy) = (place.path().join("new/state"), place.path().join("copy"));
    let store = open(&folder);
    run(&store, COUNTS, options("r"));
    assert!(["flowcell.db", "owner.lock", "epoch"].iter().all(|file| folder.join(file).exists()));
    assert_eq!(open_to_others(&folder), []);
    let unfinished = NewCopy::begin(&copy).unwrap();
    unfinished.copy_database(&folder).unwrap();
    assert_eq!([open_to_others(&copy), open_to_others(unfinished.folder())], [[], []]);
    assert!(matches!(NewCopy::begin(&copy), Err(BackupError::Unfinished(_))));
    assert_eq!(unfinished.check().unwrap().damage, Vec::<String>::new());
    unfinished.finish().unwrap();
    assert_eq!(open_to_others(&copy), []);
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 1, "only the database stays");
    assert!(matches!(NewCopy::begin(&copy), Err(BackupError::NotEmpty(_))), "a copy is not written over");
    let copied = open(&copy);
    assert_eq!(copied.reader().read(&super::tenant(), &"r".into(), 0, 1).unwrap().len(), 1);
}

#[test]
fn a_lock_that_others_may_open_is_closed_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("owner.lock");
    File::create(&lock).unwrap();
    fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
    let _store = open(folder.path());
    assert_eq!(lock.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}
