//! The bytes of an open file. They stay in memory until the host writes the whole file.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use parking_lot::Mutex;
use wasmtime_wasi::p2::{
    InputStream, OutputStream, Pollable, StreamError, StreamResult, bindings::filesystem::types::ErrorCode,
};

/// The maximum size of all open files of an attempt, in bytes.
const MAX_OPEN_BYTES: usize = 64 << 20;
/// The maximum size of one file, in bytes, the same as for the capability `files`.
const MAX_FILE_BYTES: usize = 32 << 20;
/// The maximum number of bytes in one read or write.
const MAX_PIECE_BYTES: usize = 1 << 20;

/// The number of bytes that the open files of an attempt may still take.
#[derive(Clone)]
pub(super) struct Budget(Arc<AtomicUsize>);

impl Default for Budget {
    fn default() -> Budget {
        Budget(Arc::new(AtomicUsize::new(MAX_OPEN_BYTES)))
    }
}

/// An open file. Clones refer to the same file.
#[derive(Clone)]
pub(super) struct Opened {
    path: Arc<str>,
    content: Arc<Mutex<Content>>,
}

struct Content {
    bytes: Vec<u8>,
    /// True if the bytes differ from those on the disk.
    changed: bool,
    budget: Budget,
}

impl Opened {
    /// Creates an empty file that must still be written.
    pub(super) fn empty(path: &str, budget: &Budget) -> Opened {
        let content = Content { bytes: Vec::new(), changed: true, budget: budget.clone() };
        Opened { path: path.into(), content: Arc::new(Mutex::new(content)) }
    }

    /// Creates a file with the bytes that were read. Fails if they exceed a limit.
    pub(super) fn read(path: &str, bytes: &[u8], budget: &Budget) -> Result<Opened, ErrorCode> {
        let opened = Opened::empty(path, budget);
        opened.resize(bytes.len())?;
        let mut content = opened.content.lock();
        content.bytes.copy_from_slice(bytes);
        content.changed = false;
        drop(content);
        Ok(opened)
    }

    /// Returns the path in the tenant's folder.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the size in bytes.
    pub(super) fn len(&self) -> usize {
        self.content.lock().bytes.len()
    }

    /// Returns the bytes if they must be written, and marks them as written.
    pub(super) fn take_changed(&self) -> Option<Arc<[u8]>> {
        let mut content = self.content.lock();
        std::mem::take(&mut content.changed).then(|| content.bytes.as_slice().into())
    }

    /// Returns whether the file must be written.
    pub(super) fn is_changed(&self) -> bool {
        self.content.lock().changed
    }

    /// Shortens the file, or fills it up with zeros. Fails if the size exceeds a limit.
    pub(super) fn resize(&self, size: usize) -> Result<(), ErrorCode> {
        self.content.lock().resize(size)
    }

    /// Returns bytes from an offset on: at most `most`, and at most 1 MiB.
    pub(super) fn read_at(&self, offset: u64, most: usize) -> Bytes {
        let content = self.content.lock();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.bytes.len());
        let rest = &content.bytes[from..];
        Bytes::copy_from_slice(&rest[..rest.len().min(most).min(MAX_PIECE_BYTES)])
    }

    /// Writes at an offset. Zeros fill the gap if the offset is beyond the end.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ErrorCode> {
        let mut content = self.content.lock();
        let from = usize::try_from(offset).map_err(|_| ErrorCode::FileTooLarge)?;
        let to = from.checked_add(bytes.len()).ok_or(ErrorCode::FileTooLarge)?;
        if to > content.bytes.len() {
            content.resize(to)?;
        }
        content.bytes[from..to].copy_from_slice(bytes);
        content.changed = true;
        Ok(())
    }
}

impl Content {
    fn resize(&mut self, size: usize) -> Result<(), ErrorCode> {
        if size > MAX_FILE_BYTES {
            return Err(ErrorCode::FileTooLarge);
        }
        let more = size.saturating_sub(self.bytes.len());
        let left = self.budget.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(more));
        left.map_err(|_| ErrorCode::InsufficientMemory)?;
        self.budget.0.fetch_add(self.bytes.len().saturating_sub(size), Relaxed);
        self.bytes.resize(size, 0);
        self.changed = true;
        Ok(())
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes.len(), Relaxed);
    }
}

/// A stream that reads a file, beginning at the offset `at`.
pub(super) struct Reader {
    pub(super) file: Opened,
    pub(super) at: u64,
}

#[wasmtime_wasi::async_trait]
impl Pollable for Reader {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl InputStream for Reader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let bytes = self.file.read_at(self.at, size);
        self.at += bytes.len() as u64;
        if bytes.is_empty() && size > 0 { Err(StreamError::Closed) } else { Ok(bytes) }
    }
}

/// A stream that writes a file, beginning at the offset `at`. If `at` is `None`, the stream always appends at the end.
pub(super) struct Writer {
    pub(super) file: Opened,
    pub(super) at: Option<u64>,
}

#[wasmtime_wasi::async_trait]
impl Pollable for Writer {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Writer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let at = self.at.unwrap_or_else(|| self.file.len() as u64);
        let written = self.file.write_at(at, &bytes);
        written.map_err(|code| StreamError::LastOperationFailed(wasmtime::Error::new(code)))?;
        self.at = self.at.map(|at| at + bytes.len() as u64);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_PIECE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn memory_of_open_files_is_bounded_and_released() {
        let budget = Budget::default();
        let left = || budget.0.load(Relaxed);
        let one = Opened::read("a", b"abc", &budget).unwrap();
        assert_eq!((left(), one.take_changed()), (MAX_OPEN_BYTES - 3, None));
        assert!(matches!(one.resize(MAX_FILE_BYTES + 1), Err(ErrorCode::FileTooLarge)));
        one.resize(MAX_FILE_BYTES).unwrap();
        let other = Opened::empty("b", &budget);
        other.resize(MAX_FILE_BYTES).unwrap();
        let third = Opened::empty("c", &budget);
        assert!(matches!(third.write_at(0, b"x"), Err(ErrorCode::InsufficientMemory)));
        one.resize(1).unwrap();
        third.write_at(2, b"x").unwrap();
        assert_eq!(third.take_changed().unwrap().as_ref(), b"\0\0x");
        assert!(!third.is_changed() && one.is_changed());
        drop((one, other, third));
        assert_eq!(left(), MAX_OPEN_BYTES);
    }

    #[test]
    fn streams_read_and_write_at_their_offsets() {
        let file = Opened::empty("a", &Budget::default());
        Writer { file: file.clone(), at: Some(0) }.write("one".into()).unwrap();
        Writer { file: file.clone(), at: None }.write("two".into()).unwrap();
        let mut reader = Reader { file, at: 1 };
        assert_eq!(reader.read(4).unwrap(), "netw");
        assert_eq!(reader.read(4).unwrap(), "o");
        assert!(matches!(reader.read(4), Err(StreamError::Closed)));
    }
}
