//! Files and folders that only their owner may access.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    path::Path,
};

/// The mode of a file that only its owner may read and write.
#[cfg(unix)]
const FILE_MODE: u32 = 0o600;
/// The mode of a folder that only its owner may enter.
#[cfg(unix)]
const FOLDER_MODE: u32 = 0o700;

/// Creates a folder. An existing one keeps its mode, because its owner may share it on purpose.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    match make_new_folder(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made,
    }
}

/// Creates a folder. Fails if it exists, or if its parent is missing.
pub(super) fn make_new_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, FOLDER_MODE);
    builder.create(folder)
}

/// Creates an empty file. An existing file stays unchanged.
pub(super) fn make_file(file: &Path) -> io::Result<()> {
    match options().write(true).create_new(true).open(file) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Replaces the content of a file, or creates it.
pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
    options().write(true).create(true).truncate(true).open(file)?.write_all(text.as_bytes())
}

/// Replaces a file by one with this content. After a crash the file has the old or the new content.
#[cfg(feature = "shared-stores")]
pub(crate) fn replace(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut opened = options().write(true).create(true).truncate(true).open(&new)?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all()?;
    fs::rename(new, file)
}

/// Opens or creates a file for a lock. Every user who may open a file may lock it, so this function removes the
/// access of all users but the owner.
pub(crate) fn open_lock(file: &Path) -> io::Result<File> {
    let file = options().read(true).write(true).create(true).truncate(false).open(file)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if file.metadata()?.permissions().mode() & 0o077 != 0 {
            file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
        }
    }
    Ok(file)
}

fn options() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, FILE_MODE);
    options
}
