//! New file values, which are written in parts.

use std::io;

use serde_json::Value;

use crate::failure::{Failure, Result};
#[cfg(target_family = "wasm")]
use crate::wit::flowcell::host::file_writer;

/// Size in bytes of the parts that the host receives.
const PART: usize = 1 << 20;

/// Writes a new file value in parts, so that the file may be larger than the memory of the node. No grant is needed.
///
/// Dropping the writer discards the file. If the host fails, writing ends with an [`io::Error`], and
/// [`Writer::finish`] returns the host's failure.
#[derive(Debug)]
pub struct Writer {
    host: HostFile,
    waiting: Vec<u8>,
    failure: Option<Failure>,
}

impl Writer {
    /// Begins a file.
    pub fn new() -> Result<Writer> {
        Ok(Writer { host: HostFile::open()?, waiting: Vec::new(), failure: None })
    }

    /// Ends the file, and returns its file value. `mime` is its media type.
    pub fn finish(mut self, mime: &str) -> Result<Value> {
        let flushed = self.pass_on();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        flushed?;
        self.host.finish(mime)
    }

    fn pass_on(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.host.append(&std::mem::take(&mut self.waiting))
    }
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failure.is_some() {
            return Err(io::Error::other("the file could not be written"));
        }
        let taken = bytes.len().min(PART - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..taken]);
        if self.waiting.len() == PART
            && let Err(failure) = self.pass_on()
        {
            let told = io::Error::other(failure.message.clone());
            self.failure = Some(failure);
            return Err(told);
        }
        Ok(taken)
    }

    /// Does nothing: the host receives whole parts, and the rest with [`Writer::finish`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The unfinished file of the host.
#[cfg(target_family = "wasm")]
#[derive(Debug)]
struct HostFile(Option<u32>);

#[cfg(target_family = "wasm")]
impl HostFile {
    fn open() -> Result<HostFile> {
        file_writer::open().map(|number| HostFile(Some(number))).map_err(Failure::from_call)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        file_writer::append(self.0.unwrap_or_default(), bytes).map(drop).map_err(Failure::from_call)
    }

    fn finish(mut self, mime: &str) -> Result<Value> {
        let value = file_writer::finish(self.0.take().unwrap_or_default(), mime).map_err(Failure::from_call)?;
        Ok(serde_json::from_str(&value)?)
    }
}

#[cfg(target_family = "wasm")]
impl Drop for HostFile {
    fn drop(&mut self) {
        if let Some(number) = self.0.take() {
            file_writer::discard(number);
        }
    }
}

/// The file of a script.
#[cfg(not(target_family = "wasm"))]
#[derive(Debug)]
struct HostFile(Vec<u8>);

#[cfg(not(target_family = "wasm"))]
impl HostFile {
    fn open() -> Result<HostFile> {
        Ok(HostFile(Vec::new()))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self, mime: &str) -> Result<Value> {
        let written = crate::script::keep_file(self.0, mime);
        written.ok_or_else(|| Failure::new("denied", "only a script stores files outside of a host"))
    }
}
