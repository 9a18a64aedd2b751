//! `flowcell:host/file-writer`: new file values that the guest writes in parts.

use std::collections::HashMap;

use flowcell_contract::{BINARY, BlobWriter, Failure, MAX_FILE_BYTES, Value, code};

use tokio::runtime::Handle;

use super::{Sandbox, capability::Answer};
use crate::{bindings::file_writer, failure};

/// The maximum number of files that a guest writes at a time.
const MAX_OPEN_WRITERS: usize = 8;
/// The maximum number of bytes of one append.
const MAX_APPENDED_BYTES: usize = 1 << 20;
/// The maximum number of bytes that an attempt may write to files, finished or not.
const MAX_WRITTEN_BYTES: u64 = MAX_FILE_BYTES;
/// The maximum length of a media type, in bytes.
const MAX_MIME_BYTES: usize = 255;

/// The unfinished files of an attempt. They go away with the attempt.
#[derive(Default)]
pub(super) struct WrittenFiles {
    open: HashMap<u32, Box<dyn BlobWriter>>,
    last: u32,
    bytes: u64,
}

impl WrittenFiles {
    fn take(&mut self, writer: u32) -> Result<Box<dyn BlobWriter>, Failure> {
        self.open.remove(&writer).ok_or_else(|| {
            let message = format!("no file is written under the number {writer}: it is finished, discarded or unknown");
            Failure::new(code::INVALID_INPUT, message)
        })
    }
}

impl Sandbox {
    fn open_writer(&mut self) -> Result<u32, Failure> {
        if self.written_files.open.len() >= MAX_OPEN_WRITERS {
            let message = format!("the node writes {MAX_OPEN_WRITERS} files already; finish or discard one first");
            return Err(Failure::new(code::LIMIT_EXCEEDED, message));
        }
        let writer = self.calls.file_writer()?;
        let files = &mut self.written_files;
        files.last += 1;
        files.open.insert(files.last, writer);
        Ok(files.last)
    }

    async fn append_bytes(&mut self, number: u32, bytes: Vec<u8>) -> Result<u64, Failure> {
        if bytes.len() > MAX_APPENDED_BYTES {
            let message = format!("an append has at most {MAX_APPENDED_BYTES} bytes; write the file in more parts");
            return Err(Failure::new(code::INVALID_INPUT, message));
        }
        let written = self.written_files.bytes + bytes.len() as u64;
        if written > MAX_WRITTEN_BYTES {
            let message = format!("an attempt writes at most {MAX_WRITTEN_BYTES} bytes to files");
            return Err(Failure::new(code::LIMIT_EXCEEDED, message));
        }
        self.written_files.bytes = written;
        let mut writer = self.written_files.take(number)?;
        // A failed append leaves no file, because its content would have a hole.
        let writer = blocking(move || writer.write(&bytes).map(|()| writer)).await?;
        let size = writer.size();
        self.written_files.open.insert(number, writer);
        Ok(size)
    }

    async fn finish_file(&mut self, number: u32, mime: &str) -> Result<String, Failure> {
        let mime = mime.trim();
        let shown =
            !mime.is_empty() && mime.len() <= MAX_MIME_BYTES && mime.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let mime = if shown { mime } else { BINARY }.to_owned();
        let writer = self.written_files.take(number)?;
        let blob = blocking(move || writer.finish(&mime)).await?;
        Ok(Value::from(blob).text().to_owned())
    }
}

/// Writes on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    let Ok(runtime) = Handle::try_current() else { return work() };
    let ended = runtime.spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(Failure::retryable(code::STORE_FAILED, format!("the file store failed: {error}"))))
}

impl file_writer::Host for Sandbox {
    async fn open(&mut self) -> Answer<u32> {
        self.meter.count_call()?;
        Ok(self.open_writer().map_err(failure::to_guest))
    }

    async fn append(&mut self, writer: u32, bytes: Vec<u8>) -> Answer<u64> {
        self.meter.count_call()?;
        Ok(self.append_bytes(writer, bytes).await.map_err(failure::to_guest))
    }

    async fn finish(&mut self, writer: u32, mime: String) -> Answer<String> {
        self.meter.count_call()?;
        Ok(self.finish_file(writer, &mime).await.map_err(failure::to_guest))
    }

    async fn discard(&mut self, writer: u32) -> wasmtime::Result<()> {
        self.meter.count_call()?;
        let discarded = self.written_files.open.remove(&writer);
        // The removal of an unfinished file may wait for the disk.
        if let Some(writer) = discarded
            && let Ok(runtime) = Handle::try_current()
        {
            drop(runtime.spawn_blocking(move || drop(writer)));
        }
        Ok(())
    }
}
