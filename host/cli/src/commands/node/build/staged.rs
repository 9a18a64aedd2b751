//! Copies the sources of a Python project into temporary folders, because the code of the project and its packages runs
//! during the build and can write to every folder that the build tool reads. What it writes there is removed.

use std::{fs, io, path::Path};

use tempfile::TempDir;

use crate::{cli_error::CliError, commands::node::project::check_is_inside};

/// Names of folders that are not copied, because they contain no sources. Hidden files and folders are not copied
/// either.
const SKIPPED_FOLDERS: [&str; 6] = ["__pycache__", "dist", "node_modules", "python_modules", "venv", "wit"];
/// The folder of packages in a virtual environment.
const SITE_PACKAGES: &str = "lib/python3.14/site-packages";

/// Copies the sources of a folder into a temporary folder. Fails if it has a link that leads out of it. A missing folder
/// fails too.
pub(super) fn copy_sources(folder: &Path) -> Result<TempDir, CliError> {
    let failed = |error: &io::Error| CliError::wrong(format!("cannot copy {}", folder.display())).because(error);
    let copy = tempfile::tempdir().map_err(|error| failed(&error))?;
    copy_into(folder, folder, copy.path(), &failed)?;
    Ok(copy)
}

/// Creates a virtual environment without packages. Without one, componentize-py lets the code write to the packages of the
/// author's own Python, which runs some of their files at each start.
pub(super) fn empty_environment() -> Result<TempDir, CliError> {
    let made = tempfile::tempdir().and_then(|folder| {
        fs::create_dir_all(folder.path().join(SITE_PACKAGES))?;
        Ok(folder)
    });
    made.map_err(|error| CliError::internal("cannot create a temporary folder").because(&error))
}

fn copy_into(root: &Path, folder: &Path, copy: &Path, failed: &dyn Fn(&io::Error) -> CliError) -> Result<(), CliError> {
    fs::create_dir_all(copy).map_err(|error| failed(&error))?;
    for entry in fs::read_dir(folder).map_err(|error| failed(&error))? {
        let entry = entry.map_err(|error| failed(&error))?;
        let name = entry.file_name();
        let left = name.to_str().is_none_or(|name| name.starts_with('.') || SKIPPED_FOLDERS.contains(&name));
        if left {
            continue;
        }
        check_is_inside(root, &entry.path())?;
        if entry.file_type().map_err(|error| failed(&error))?.is_dir() {
            copy_into(root, &entry.path(), &copy.join(name), failed)?;
        } else {
            fs::copy(entry.path(), copy.join(name)).map_err(|error| failed(&error))?;
        }
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn sources_are_copied_without_files_of_other_folders() {
        let all = tempfile::tempdir().unwrap();
        let project = all.path().join("shop");
        fs::create_dir_all(project.join("lib")).unwrap();
        fs::write(all.path().join("secret.py"), "private").unwrap();
        fs::write(project.join("lib/a.py"), "a").unwrap();
        symlink("lib/a.py", project.join("nodes.py")).unwrap();
        let copy = copy_sources(&project).unwrap();
        assert_eq!(fs::read_to_string(copy.path().join("nodes.py")).unwrap(), "a");
        symlink("../../secret.py", project.join("lib/b.py")).unwrap();
        let refused = copy_sources(&project).unwrap_err().plain();
        assert!(refused.contains("b.py is a link that leads out of"), "{refused}");
    }

    #[test]
    fn an_environment_has_an_empty_folder_of_packages() {
        let folder = empty_environment().unwrap();
        assert_eq!(fs::read_dir(folder.path().join(SITE_PACKAGES)).unwrap().count(), 0);
    }
}
