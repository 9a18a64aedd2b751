//! The store of the runs of `flowcell dev`, which one process uses at a time.

use std::{
    env,
    fs::{self, File, TryLockError},
    io,
    path::{Component, Path, PathBuf},
};

use flowcell::{FileLock, remove_store};

use crate::cli_error::CliError;

/// The folder of the stores, one for each flow.
const STORES: &str = ".flowcell/dev";

/// The store of one flow. No other `flowcell dev` uses it until the value is dropped.
pub(super) struct DevStore {
    folder: PathBuf,
    _lock: FileLock,
}

impl DevStore {
    /// Locks the store of a flow, and removes the runs of an earlier command. Fails if another process uses the store.
    pub(super) fn empty(flow: &Path) -> Result<DevStore, CliError> {
        let unusable = |error: io::Error| {
            CliError::wrong(format!("cannot prepare the folder of the runs of {}", flow.display())).because(&error)
        };
        let folder = folder_of(flow).map_err(unusable)?;
        fs::create_dir_all(folder.parent().unwrap_or(Path::new(STORES))).map_err(unusable)?;
        // The lock lies beside the store, because the store is removed.
        let lock = File::options().create(true).truncate(false).write(true).open(folder.with_added_extension("lock"));
        let lock = match FileLock::try_lock(lock.map_err(unusable)?) {
            Ok(lock) => lock,
            Err((_, TryLockError::WouldBlock)) => {
                let message = format!("another `flowcell dev` uses the store {} of this flow", folder.display());
                return Err(CliError::wrong(message).hint("end it first"));
            }
            Err((_, TryLockError::Error(error))) => return Err(unusable(error)),
        };
        // A run of a command that was killed may still go on.
        remove_store(&folder).map_err(flowcell::Error::Store)?;
        Ok(DevStore { folder, _lock: lock })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Returns the folder of a flow's store. Its name is the path of the flow in the current folder; for a flow outside it,
/// the whole path.
fn folder_of(flow: &Path) -> io::Result<PathBuf> {
    let beside = flow.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let path = beside.canonicalize()?.join(flow.file_name().unwrap_or_default());
    let path = path.strip_prefix(env::current_dir()?.canonicalize()?).unwrap_or(&path);
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(part) => Some(part),
        _ => None,
    });
    Ok(Path::new(STORES).join(parts.collect::<PathBuf>()))
}
