//! The cache of compiled code on disk. An entry carries a keyed hash, so the engine loads only entries that this user's
//! engines wrote. The key lies in the same folder, and only its owner can read it. If the cache fails, the engine
//! compiles the code again.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use blake3::{Hash, Hasher, OUT_LEN};

mod key;

/// The maximum size of the folder, in bytes. The oldest entries are removed first.
const MAX_BYTES: u64 = 1 << 30;

/// A folder of cache entries with keyed hashes.
pub(crate) struct Cache {
    dir: PathBuf,
    key: [u8; blake3::KEY_LEN],
}

impl Cache {
    /// Opens the folder, and creates it if necessary.
    pub(crate) fn open(dir: &Path) -> io::Result<Cache> {
        key::make_private_dir(dir)?;
        Ok(Cache { dir: dir.to_owned(), key: key::load(dir)? })
    }

    /// Returns the payload of an entry, or `None` if the entry is missing or damaged.
    pub(crate) fn get(&self, name: &str) -> Option<Vec<u8>> {
        let mut entry = fs::read(self.dir.join(name)).ok()?;
        let (seal, payload) = entry.split_first_chunk::<OUT_LEN>()?;
        // This comparison takes constant time.
        if self.seal(name, payload) != Hash::from_bytes(*seal) {
            tracing::warn!("the cached entry {name} is damaged or of another host; compiling again");
            return None;
        }
        entry.drain(..OUT_LEN);
        Some(entry)
    }

    /// Writes an entry completely or not at all.
    pub(crate) fn put(&self, name: &str, payload: &[u8]) -> io::Result<()> {
        let seal = self.seal(name, payload);
        key::write_whole(&self.dir, name, &[seal.as_bytes(), payload])?;
        self.sweep()
    }

    fn seal(&self, name: &str, payload: &[u8]) -> Hash {
        let mut hasher = Hasher::new_keyed(&self.key);
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes()).update(payload);
        hasher.finalize()
    }

    fn sweep(&self) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() && entry.file_name() != key::KEY_FILE {
                entries.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len(), entry.path()));
            }
        }
        let mut total: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        entries.sort();
        for (_, bytes, path) in entries {
            if total <= MAX_BYTES {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn an_entry_is_read_only_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        cache.put("a", b"payload").unwrap();
        assert_eq!(Cache::open(dir.path()).unwrap().get("a").unwrap(), b"payload");

        let whole = fs::read(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("b"), &whole).unwrap();
        assert_eq!(cache.get("b"), None, "under another name");
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(dir.path().join("a"), &changed).unwrap();
            assert_eq!(cache.get("a"), None, "bit flipped in byte {at}");
            fs::write(dir.path().join("a"), &whole[..at]).unwrap();
            assert_eq!(cache.get("a"), None, "cut at byte {at}");
        }
    }

    #[test]
    fn an_entry_of_another_key_is_not_read() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Cache::open(one.path()).unwrap().put("a", b"payload").unwrap();
        let other = Cache::open(two.path()).unwrap();
        fs::copy(one.path().join("a"), two.path().join("a")).unwrap();
        assert_eq!(other.get("a"), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_could_read_is_replaced() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        Cache::open(dir.path()).unwrap().put("a", b"payload").unwrap();
        let key = dir.path().join(key::KEY_FILE);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let reopened = Cache::open(dir.path()).unwrap();
        assert_eq!(reopened.get("a"), None);
        assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
