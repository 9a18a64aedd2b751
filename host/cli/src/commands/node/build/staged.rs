//! Copies the sources of a Python project, because the build tool writes byte code next to the files that it reads.

use std::{fs, io, path::Path};

use tempfile::TempDir;

/// Names of folders that are not copied, because they contain no sources. Hidden files and folders are not copied
/// either.
const SKIPPED_FOLDERS: [&str; 6] = ["__pycache__", "dist", "node_modules", "python_modules", "venv", "wit"];

/// Copies the sources of a folder into a temporary folder.
pub(super) fn copy_sources(folder: &Path) -> io::Result<TempDir> {
    let copy = tempfile::tempdir()?;
    copy_into(folder, copy.path())?;
    Ok(copy)
}

fn copy_into(folder: &Path, copy: &Path) -> io::Result<()> {
    fs::create_dir_all(copy)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let left = name.to_str().is_none_or(|name| name.starts_with('.') || SKIPPED_FOLDERS.contains(&name));
        if left {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_into(&entry.path(), &copy.join(name))?;
        } else {
            fs::copy(entry.path(), copy.join(name))?;
        }
    }
    Ok(())
}
