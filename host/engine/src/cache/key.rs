//! The key for the keyed hashes of a cache folder, and writes that complete or leave no file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use rand::Rng;

/// The name of the file that holds the key.
pub(super) const KEY_FILE: &str = "key";

/// Creates the folder, with access for its owner only.
pub(super) fn make_private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Reads the key, or creates one. If several processes create a key at the same time, all get the same one.
pub(super) fn load(dir: &Path) -> io::Result<[u8; 32]> {
    let path = dir.join(KEY_FILE);
    let mut key = [0; 32];
    rand::rng().fill_bytes(&mut key);
    let (fresh, file) = create_temporary(dir)?;
    let made = write_and_close(file, &[&key]).and_then(|()| {
        if let Some(key) = read(&path, &fresh)? {
            return Ok(key);
        }
        remove_if_exists(&path)?;
        match fs::hard_link(&fresh, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        read(&path, &fresh)?.ok_or_else(|| io::Error::other("the key of the cache is not trusted"))
    });
    remove_if_exists(&fresh)?;
    made
}

/// Returns the key. Returns `None` if it is missing, or if another user may have read or written it. The key's owner
/// must be the owner of `mine`, a file that this process has just made.
fn read(path: &Path, mine: &Path) -> io::Result<Option<[u8; 32]>> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?,
    };
    if !metadata.is_file() || !is_private(&metadata, &fs::symlink_metadata(mine)?) {
        return Ok(None);
    }
    Ok(fs::read(path)?.try_into().ok())
}

#[cfg(unix)]
fn is_private(key: &fs::Metadata, mine: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    key.mode() & 0o077 == 0 && key.uid() == mine.uid()
}

#[cfg(not(unix))]
fn is_private(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

/// Writes a file under a temporary name and renames it.
pub(super) fn write_whole(dir: &Path, name: &str, parts: &[&[u8]]) -> io::Result<()> {
    let (path, file) = create_temporary(dir)?;
    let written = write_and_close(file, parts).and_then(|()| fs::rename(&path, dir.join(name)));
    if written.is_err() {
        remove_if_exists(&path)?;
    }
    written
}

fn write_and_close(mut file: File, parts: &[&[u8]]) -> io::Result<()> {
    parts.iter().try_for_each(|part| file.write_all(part))
}

fn create_temporary(dir: &Path) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!(".{}-{count}.new", process::id()));
        match options.open(&path) {
            // A killed process with the same id left this file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (path, file)),
        }
    }
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
