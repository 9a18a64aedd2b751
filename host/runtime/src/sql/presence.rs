//! The proof that a process on the same machine has died, so that its runs are taken over before its lease ends.
//!
//! Each open store creates a file and holds an exclusive lock on it. The kernel releases the lock when the process has
//! ended, however it ended, but not while the process is suspended. The rows of the process in the table of owners name
//! the file. Once a second, each process tries to lock the files of the others. If it gets a lock, it deletes the rows
//! that name the file. After that any process may claim the runs, as after the end of a lease, and under the next
//! epoch.
//!
//! Only a lock proves a death; a missing file proves nothing. The lock must be on the file that the owner has locked, so
//! the owner's name contains the id of the running kernel, the name of the file, its device and its inode. While the
//! owner lives, no other file has this inode. Locks of network file systems may end while their holder lives, and
//! may hold on one machine only, so files on them count for nothing. Programs that a process starts do not inherit its
//! file. Where no file can be used, the others wait for the lease.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    Shared,
    connection::{Connection, SqlError, args},
    values::hash,
    writer,
};
use crate::{file_lock::FileLock, limits::DEATH_CHECK_MS, sqlite::private, world::random};

/// The age after which a file that proves nothing is removed, in seconds.
const MAX_UNUSED_FILE_SECONDS: u64 = 24 * 3_600;
/// The age after which a process renews the time of its file, in seconds. Programs that clean folders of temporary files
/// remove old ones.
const TOUCH_SECONDS: u64 = 3_600;
/// Maximum bytes of an owner's name in a file.
const MAX_NAME_BYTES: u64 = 4_096;

/// The name of this process in the table of owners, and its locked file.
pub(super) struct Presence {
    name: String,
    held: Option<Held>,
}

/// A locked file. It is removed when the value is dropped.
struct Held {
    folder: PathBuf,
    path: PathBuf,
    file: FileLock,
}

impl Drop for Held {
    fn drop(&mut self) {
        // A file that stays is removed by another process. A folder with other files stays.
        let _ = fs::remove_file(&self.path).and_then(|()| fs::remove_dir(&self.folder));
    }
}

/// A process that has died.
pub(super) struct Dead {
    name: String,
    path: PathBuf,
    /// Whether its file is so old that it is removed in any case.
    is_old: bool,
}

impl Presence {
    /// Creates and locks a file of the store with this lineage, in a folder for files of all stores. If that fails, the
    /// others wait for the lease of this process, and the log says so.
    pub(super) fn new(folder: Option<&Path>, process: &str, lineage: &str) -> Presence {
        let nothing = || Presence { name: process.to_owned(), held: None };
        let Some(folder) = folder else { return nothing() };
        match hold(folder, process, lineage) {
            Ok((name, held)) => Presence { name, held: Some(held) },
            Err(error) => {
                tracing::warn!(
                    "cannot lock a file in {}, so other processes take over the runs of this one only after its lease if \
                     it dies: {error}",
                    folder.display()
                );
                nothing()
            }
        }
    }

    /// Returns the name of this process in the table of owners.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Finds the processes that have died. Also removes files that prove nothing and are old.
    pub(super) fn find_dead(&self) -> Vec<Dead> {
        let Some(held) = &self.held else { return Vec::new() };
        let entries = fs::read_dir(&held.folder).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        files.filter_map(|entry| dead_of(entry.path()).ok().flatten()).collect()
    }

    /// Removes the file of a process that has no leases any more.
    pub(super) fn leave(&self) {
        if let Some(held) = &self.held {
            let _ = fs::remove_file(&held.path);
        }
    }

    /// Renews the time of the file, if it is due.
    fn touch(&self) {
        if let Some(held) = &self.held
            && is_older_than(&held.file, TOUCH_SECONDS)
        {
            // The next check tries it again.
            let _ = held.file.set_modified(SystemTime::now());
        }
    }
}

fn hold(folder: &Path, process: &str, lineage: &str) -> io::Result<(String, Held)> {
    private::make_folder(folder)?;
    require_private(folder)?;
    let folder = folder.join(hex::encode(&hash(lineage)[..8]));
    let id = format!("{:016x}{:016x}", random(), random());
    let path = folder.join(&id);
    let create = || {
        private::make_folder(&folder)?;
        File::options().read(true).write(true).create_new(true).open(&path)
    };
    // The last process of the store may have removed the folder between the two steps.
    let file = create().or_else(|_| create())?;
    // Other processes read the name before they lock the file, so a file without a name is not locked by them.
    let file = FileLock::lock(file).inspect_err(|_| _ = fs::remove_file(&path))?;
    let mut held = Held { folder, path, file };
    let name = format!("{process} {id}/{}", identity(&held.file)?);
    held.file.write_all(name.as_bytes())?;
    Ok((name, held))
}

/// Returns the process that has locked the file, if it has died.
fn dead_of(path: PathBuf) -> io::Result<Option<Dead>> {
    let file = File::open(&path)?;
    let mut name = String::new();
    Read::take(&file, MAX_NAME_BYTES).read_to_string(&mut name)?;
    let id = path.file_name().unwrap_or_default().to_string_lossy();
    let proves = name.ends_with(&format!(" {id}/{}", identity(&file)?));
    let is_old = is_older_than(&file, MAX_UNUSED_FILE_SECONDS);
    if !(proves || is_old) || file.try_lock_shared().is_err() {
        return Ok(None);
    }
    if !proves {
        fs::remove_file(&path)?;
        return Ok(None);
    }
    Ok(Some(Dead { name, path, is_old }))
}

fn is_older_than(file: &File, seconds: u64) -> bool {
    let age = file.metadata().and_then(|found| found.modified()).map(|time| time.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age.as_secs() >= seconds)
}

/// Returns the default folder for files of all stores: one for each user, in the system's folder of temporary files.
/// Returns `None` on systems other than Linux.
pub(super) fn default_folder() -> Option<PathBuf> {
    #[cfg(target_os = "linux")]
    let folder = Some(std::env::temp_dir().join(format!("flowcell-{}", rustix::process::geteuid().as_raw())));
    #[cfg(not(target_os = "linux"))]
    let folder = None;
    folder
}

/// Fails if another user may change the folder.
#[cfg(target_os = "linux")]
fn require_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::symlink_metadata(folder)?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if is_own && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::PermissionDenied, "the folder must belong to this user alone, with mode 0700"))
}

/// Numbers by which the kernel names local file systems: ext4, tmpfs, XFS, Btrfs, overlayfs, ZFS, F2FS, bcachefs.
#[cfg(target_os = "linux")]
const LOCAL_FILE_SYSTEMS: [u32; 8] =
    [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, 0xca45_1a4e];

/// Returns a text that no other file has while this one is open: the id of the running kernel, the device and the
/// inode. Fails if a lock on the file proves nothing.
#[cfg(target_os = "linux")]
fn identity(file: &File) -> io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    if !LOCAL_FILE_SYSTEMS.contains(&(rustix::fs::fstatfs(file)?.f_type as u32)) {
        return Err(io::Error::new(ErrorKind::Unsupported, "the file system is not known to be local"));
    }
    let kernel = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let found = file.metadata()?;
    Ok(format!("{}/{}-{}", kernel.trim(), found.dev(), found.ino()))
}

#[cfg(not(target_os = "linux"))]
fn require_private(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn identity(_: &File) -> io::Result<String> {
    Err(io::Error::new(ErrorKind::Unsupported, "only Linux names its running kernel"))
}

/// Ends the leases of processes that have died. A file without a lease in this database stays until it is old: it may
/// belong to a process of a copy of the database, which has the same files.
pub(super) async fn end_leases(connection: &mut Connection, dead: &[Dead]) -> Result<(), SqlError> {
    for Dead { name, path, is_old } in dead {
        let valid = "DELETE FROM flowcell_owners WHERE name = ? AND until > {now}";
        let ended = connection.run(valid, args![name.as_str()]).await? > 0;
        if ended {
            let process = name.rsplit_once(' ').map_or(name.as_str(), |(process, _)| process);
            tracing::warn!("`{process}` on this machine has died before its lease ended: its runs are taken over now");
        }
        if ended || *is_old {
            // Another process may have removed it.
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

/// Looks for processes that have died, until the store is closed. A folder that does not answer holds up only this task.
pub(super) async fn watch(shared: Arc<Shared>) {
    // The dead processes whose leases were ended before, and whose files may stay.
    let mut known = HashSet::new();
    while shared.presence.held.is_some() && !shared.queue.is_closed() {
        tokio::time::sleep(Duration::from_millis(DEATH_CHECK_MS)).await;
        let looking = shared.clone();
        let look = move || {
            looking.presence.touch();
            looking.presence.find_dead()
        };
        let found = tokio::task::spawn_blocking(look).await.unwrap_or_default();
        known.retain(|name| found.iter().any(|dead| dead.name == *name));
        let dead: Vec<_> = found.into_iter().filter(|dead| dead.is_old || !known.contains(&dead.name)).collect();
        if dead.is_empty() {
            continue;
        }
        match writer::write(&shared, async |connection| end_leases(connection, &dead).await).await {
            Ok(()) => known.extend(dead.into_iter().map(|dead| dead.name)),
            Err(error) => {
                tracing::debug!("cannot end the leases of processes that have died, and tries again: {error}");
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn private_folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    fn present(folder: &Path) -> Presence {
        Presence::new(Some(folder), "process 1", "a")
    }

    fn names(presence: &Presence) -> Vec<String> {
        presence.find_dead().into_iter().map(|dead| dead.name).collect()
    }

    fn held(presence: &Presence) -> &Held {
        presence.held.as_ref().unwrap()
    }

    #[test]
    fn only_the_end_of_the_lock_proves_a_death() {
        let folder = private_folder();
        let (one, two) = (present(folder.path()), present(folder.path()));
        assert!(one.name().starts_with("process 1 ") && one.name() != two.name());
        assert!(names(&two).is_empty(), "it lives");
        // As the kernel does when a process ends.
        held(&one).file.unlock().unwrap();
        assert_eq!(names(&two), [one.name()]);
        assert!(names(&Presence::new(Some(folder.path()), "process 1", "b")).is_empty(), "another store");
        held(&one).file.lock().unwrap();
        assert!(names(&two).is_empty());
        let path = held(&one).path.clone();
        drop(one);
        assert!(!path.exists() && names(&two).is_empty());
    }

    /// A file that was removed, copied, moved, or written by another kernel is not the file that its owner has locked.
    #[test]
    fn another_file_proves_nothing() {
        let folder = private_folder();
        let (one, two) = (present(folder.path()), present(folder.path()));
        let Held { path, folder: of_store, .. } = held(&one);
        fs::copy(path, of_store.join("copy")).unwrap();
        fs::write(of_store.join("other"), one.name().replace(path.file_name().unwrap().to_str().unwrap(), "other"))
            .unwrap();
        fs::write(of_store.join("empty"), "").unwrap();
        fs::remove_file(path).unwrap();
        assert!(names(&two).is_empty(), "a missing file");
        fs::write(path, one.name()).unwrap();
        assert!(names(&two).is_empty(), "the same name and content, but another inode");
        // Another kernel has started since.
        let own = fs::read_to_string(&held(&two).path).unwrap();
        let kernel = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        fs::write(&held(&two).path, own.replace(kernel.trim(), "0-0")).unwrap();
        held(&two).file.unlock().unwrap();
        assert!(names(&one).is_empty());
        // Unused files stay for a day.
        assert_eq!(fs::read_dir(of_store).unwrap().count(), 5);
        let yesterday = SystemTime::now() - Duration::from_secs(MAX_UNUSED_FILE_SECONDS);
        for entry in fs::read_dir(of_store).unwrap().flatten() {
            File::options().write(true).open(entry.path()).unwrap().set_modified(yesterday).unwrap();
        }
        assert!(names(&one).is_empty());
        assert_eq!(fs::read_dir(of_store).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_others_may_change_is_not_used() {
        let folder = private_folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(present(folder.path()).held.is_none());
        let missing = folder.path().join("new");
        assert!(present(&missing).held.is_some());
        assert_eq!(missing.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::os::unix::fs::symlink(&missing, folder.path().join("link")).unwrap();
        assert!(present(&folder.path().join("link")).held.is_none());
    }

    /// A process that runs for days keeps its file, although programs remove old temporary files.
    #[test]
    fn the_time_of_the_file_is_renewed() {
        let folder = private_folder();
        let one = present(folder.path());
        held(&one).file.set_modified(SystemTime::now() - Duration::from_secs(TOUCH_SECONDS)).unwrap();
        one.touch();
        assert!(!is_older_than(&held(&one).file, TOUCH_SECONDS));
    }
}
