//! Files that arrive and leave in parts, so that a file may be larger than the memory for it.

use std::io::{self, Write};

use flowcell_contract::{BlobRef, BlobWriter, Failure, Json, PIECE_BYTES, Value, code};

use super::{FileError, check_name, file_value, media_type};
use crate::Host;

/// Number of bytes at the beginning of a file that show its media type.
const HEAD_BYTES: usize = 64;

/// The content of a new file that arrives in parts. Dropping it discards the content.
pub struct Upload {
    writer: Box<dyn BlobWriter>,
    head: Vec<u8>,
}

impl Upload {
    /// Begins a content of the host's tenant.
    pub(crate) fn begin(host: &Host) -> Result<Upload, FileError> {
        let writer = host.blobs().clone().writer(host.tenant())?;
        Ok(Upload { writer, head: Vec::new() })
    }

    /// Adds bytes at the end. It may wait for the disk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let missing = HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(missing)]);
        Ok(self.writer.write(bytes)?)
    }

    /// Returns the number of bytes so far.
    pub fn size(&self) -> u64 {
        self.writer.size()
    }

    /// Stores the content for a new run, and returns the file value. The file does not appear in the tenant's list of
    /// files.
    pub fn keep(self, name: &str) -> Result<Json, FileError> {
        check_name(name)?;
        let blob = self.finish(None, name)?;
        Ok(file_value(&blob.file_id, blob.size, &blob.mime, name))
    }

    /// Stores the content. Without a media type, the content or the name decides it.
    pub(super) fn finish(self, mime: Option<String>, name: &str) -> Result<BlobRef, FileError> {
        let mime = mime.unwrap_or_else(|| media_type(&self.head, name));
        Ok(self.writer.finish(&mime)?)
    }
}

impl From<Failure> for FileError {
    fn from(failure: Failure) -> FileError {
        match failure.code == code::FILE_TOO_LARGE {
            true => FileError::Beyond(failure.message),
            false => FileError::Bytes(failure.message),
        }
    }
}

/// Performs [`Host::read_file`].
pub(crate) fn read_part(host: &Host, value: &Json, offset: u64, length: usize) -> Result<Vec<u8>, FileError> {
    let unknown = || FileError::Unknown(value.get("fileId").and_then(Json::as_str).unwrap_or_default().to_owned());
    let blob = Value::from(value.clone()).blob().ok_or_else(unknown)?;
    host.blobs().read_part(host.tenant(), &blob, offset, length)?.ok_or_else(unknown)
}

/// An error of writing the content of a file somewhere.
#[derive(Debug, thiserror::Error)]
pub enum CopyFileError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Performs [`Host::copy_file`].
pub(crate) fn copy(host: &Host, value: &Json, out: &mut dyn Write) -> Result<u64, CopyFileError> {
    let mut offset = 0;
    loop {
        let piece = read_part(host, value, offset, PIECE_BYTES)?;
        if piece.is_empty() {
            out.flush()?;
            return Ok(offset);
        }
        out.write_all(&piece)?;
        offset += piece.len() as u64;
    }
}
