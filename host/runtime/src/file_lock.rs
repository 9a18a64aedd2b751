//! A file that this process keeps locked.

use std::{
    fs::{File, TryLockError},
    io,
    ops::{Deref, DerefMut},
};

/// A locked file. It is unlocked when the value is dropped.
///
/// The lock belongs to the opened file, which every process has that was forked meanwhile, until it starts its program.
/// Closing the file alone would leave it locked until then.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Waits until no other opened file has the lock.
    ///
    /// # Errors
    ///
    /// If the system cannot lock this file.
    pub fn lock(file: File) -> io::Result<FileLock> {
        file.lock()?;
        Ok(FileLock(file))
    }

    /// Locks the file. It stays locked until the value is dropped.
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`], with the file, if another opened file has the lock.
    pub fn try_lock(file: File) -> Result<FileLock, (File, TryLockError)> {
        match file.try_lock() {
            Ok(()) => Ok(FileLock(file)),
            Err(error) => Err((file, error)),
        }
    }
}

impl Deref for FileLock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for FileLock {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // The end of the process unlocks it too.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is being forked has the opened file, as the clone here.
    #[test]
    fn a_dropped_lock_is_free_although_the_opened_file_is_not_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let lock = FileLock::try_lock(open()).unwrap();
        let _forked = lock.try_clone().unwrap();
        assert!(matches!(FileLock::try_lock(open()), Err((_, TryLockError::WouldBlock))));
        drop(lock);
        drop(FileLock::try_lock(open()).unwrap());
    }
}
