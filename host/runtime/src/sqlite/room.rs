//! The free room of the disk with the store.
//!
//! A full disk ends the process that writes to the store. So a process may watch the free room, and refuse new runs
//! before the disk is full. The removal of runs needs some room, too. A reserve file holds it, and
//! [`release_reserve`] gives it back.

use std::{
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::limits::RESERVE_BYTES;

/// The reserve file beside the database.
const RESERVE: &str = "flowcell.reserve";
/// The time for which a measurement counts.
const MEASURED: Duration = Duration::from_secs(1);

/// The free room of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeRoom {
    /// The free room in bytes.
    pub free: u64,
    /// The room in bytes that new runs need.
    pub least: u64,
}

impl FreeRoom {
    /// Returns true if new runs are refused.
    pub fn is_low(self) -> bool {
        self.free < self.least
    }
}

/// Watches the free room of a folder's disk.
pub(super) struct RoomWatch {
    folder: PathBuf,
    least: u64,
    measured: Option<(Instant, u64)>,
}

impl RoomWatch {
    pub(super) fn new(folder: PathBuf, least: u64) -> RoomWatch {
        RoomWatch { folder, least, measured: None }
    }

    /// Measures the free room, at most once a second. Creates the reserve file while the disk has enough room. Returns
    /// `None` if the system does not tell the room.
    pub(super) fn room(&mut self, now: Instant) -> Option<FreeRoom> {
        let recent = self.measured.filter(|(at, _)| now.saturating_duration_since(*at) < MEASURED);
        let free = match recent {
            Some((_, free)) => free,
            None => {
                let free = free_bytes(&self.folder)?;
                self.measured = Some((now, free));
                let room = FreeRoom { free, least: self.least };
                if !room.is_low()
                    && free > 2 * RESERVE_BYTES
                    && let Err(error) = reserve(&self.folder)
                {
                    tracing::warn!("cannot create the reserve file of the store: {error}");
                }
                free
            }
        };
        Some(FreeRoom { free, least: self.least })
    }
}

/// Returns the free room of a folder's disk for this user, in bytes.
fn free_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let disk = rustix::fs::statvfs(folder).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

/// Creates the reserve file if it is missing. A file that cannot be allocated as a whole is removed again.
fn reserve(folder: &Path) -> io::Result<()> {
    let path = folder.join(RESERVE);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = match options.open(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        opened => opened?,
    };
    let filled = fill(&file);
    if filled.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    filled
}

/// Writes the bytes of the reserve file. They are not all zero, so that no file system leaves them out.
fn fill(mut file: &std::fs::File) -> io::Result<()> {
    use io::Write;
    let block = [0x5a; 64 << 10];
    for _ in 0..RESERVE_BYTES / block.len() as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()
}

/// Removes the reserve file of the store in a folder if the disk is nearly full, so that runs can be removed. Returns
/// true if it did. The next process that watches the room creates the file again.
pub fn release_reserve(folder: &Path) -> bool {
    free_bytes(folder).is_some_and(|free| free < RESERVE_BYTES) && std::fs::remove_file(folder.join(RESERVE)).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn the_room_is_measured_once_a_second_and_the_reserve_is_made_while_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = folder.path().join(RESERVE);
        let began = Instant::now();
        let mut low = RoomWatch::new(folder.path().to_owned(), u64::MAX);
        assert!(low.room(began).unwrap().is_low());
        assert!(!reserve.exists(), "a disk without room gets no reserve");
        let mut watch = RoomWatch::new(folder.path().to_owned(), 0);
        assert!(!watch.room(began).unwrap().is_low());
        assert_eq!(reserve.metadata().unwrap().len(), RESERVE_BYTES);
        watch.measured = Some((began, 7));
        assert_eq!(watch.room(began + Duration::from_millis(999)).unwrap().free, 7);
        assert_ne!(watch.room(began + Duration::from_secs(1)).unwrap().free, 7);
        assert!(!release_reserve(folder.path()), "the disk is not full");
        let gone = RoomWatch::new(folder.path().join("none"), 0).room(began);
        assert_eq!(gone, None);
    }
}
