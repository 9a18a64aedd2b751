//! Files that users upload for a tenant's flows. The store has the bytes under their hash, with a name and a media
//! type. A flow receives a file as a file value. While a file is listed, its bytes stay in the store.
//!
//! | item | limit |
//! |---|---|
//! | a file | 4 GiB in a folder or in an object store; 32 MiB in memory and on a database server |
//! | a file that is in memory as a whole | 32 MiB |
//! | all files of a tenant | 16 GiB, 10,000 files |
//! | a name | 255 bytes |
//! | metadata of a file | 4 KiB as JSON |

mod kind;
pub mod operation;
mod upload;

use std::sync::Arc;

use flowcell_contract::{BlobRef, Blobs, Json, MAX_FILE_BYTES, MAX_WHOLE_BYTES, Tenant, Value, text::has_deceptive};
use flowcell_runtime::ports::DocumentStore;
use serde::{Deserialize, Serialize};

pub(crate) use self::upload::{copy, read_part};
pub use self::{
    kind::{ending, media_type},
    upload::{CopyFileError, Upload},
};
use crate::{
    Host,
    operate::documents::{DocumentError, Documents},
};

/// Maximum size in bytes of a file that arrives in parts.
pub const MAX_FILE: u64 = MAX_FILE_BYTES;
/// Maximum size in bytes of a file that is in memory as a whole.
pub const MAX_WHOLE_FILE: usize = MAX_WHOLE_BYTES;
/// Maximum size in bytes of all files of a tenant.
pub const MAX_TOTAL: u64 = 16 << 30;
/// Maximum number of files of a tenant.
pub const MAX_FILES: usize = 10_000;
/// Maximum size in bytes of a name.
const MAX_NAME: usize = 255;
/// Maximum size in bytes of a media type.
const MAX_MIME: usize = 255;
/// Maximum size in bytes of a file's metadata, as JSON.
const MAX_METADATA: usize = 4 << 10;
/// Maximum number of tries of a write after conflicts.
const MAX_WRITE_TRIES: usize = 100;

const FILE: &str = "file";

/// A listed file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileRow {
    /// The SHA-256 of the file's content, in hexadecimal.
    pub file_id: String,
    /// The file's name.
    pub name: String,
    /// The file's media type.
    pub mime: String,
    /// The size of the file's content, in bytes.
    pub size: u64,
    /// The user's metadata, an object.
    pub metadata: Json,
    /// The time of the file's first upload, in milliseconds since 1970.
    pub created: u64,
}

impl FileRow {
    /// Returns the file value that flows receive.
    pub fn value(&self) -> Json {
        let FileRow { file_id, name, mime, size, .. } = self;
        file_value(file_id, *size, mime, name)
    }
}

/// Builds the file value that flows receive: the blob reference with a name.
fn file_value(file_id: &str, size: u64, mime: &str, name: &str) -> Json {
    let value = Value::from(BlobRef { file_id: file_id.into(), size, mime: mime.into() });
    let members = value.json().as_object().cloned().unwrap_or_default();
    Json::object(members.into_iter().chain([("name".into(), Json::from(name))]))
}

/// A file to store.
#[derive(Clone, Debug, Default)]
pub struct NewFile {
    /// The file's name.
    pub name: String,
    /// The media type of the file. Default: derived from its content or its name.
    pub mime: Option<String>,
    /// The user's metadata, an object. `null` means an empty one.
    pub metadata: Json,
    /// The content of the file.
    pub bytes: Vec<u8>,
}

impl NewFile {
    /// Checks everything but the content. Replaces missing metadata.
    fn checked(mut self) -> Result<NewFile, FileError> {
        check_name(&self.name)?;
        self.mime.as_deref().map_or(Ok(()), check_mime)?;
        if self.metadata.is_null() {
            self.metadata = Json::object::<&str>([]);
        }
        match self.metadata.as_object().is_none() || self.metadata.to_text().len() > MAX_METADATA {
            true => Err(FileError::Metadata),
            false => Ok(self),
        }
    }
}

/// An error of an operation on files.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The tenant has no file with this id.
    #[error("the file `{0}` does not exist; `flowcell files list` lists the files")]
    Unknown(String),
    /// The name is invalid.
    #[error(
        "the name of a file must have 1 to {MAX_NAME} bytes, without `/`, `\\`, control characters and invisible \
         characters"
    )]
    Name,
    /// The media type is invalid.
    #[error("a media type must be like `image/png`, with at most {MAX_MIME} printable ASCII characters")]
    Mime,
    /// The metadata is not an object, or is too large.
    #[error("the metadata of a file must be a JSON object of at most {MAX_METADATA} bytes")]
    Metadata,
    /// The content is not valid base64.
    #[error("the content of a file must be base64")]
    Content,
    /// The file has too many bytes.
    #[error("the file has {0} bytes; a file that is in memory as a whole has at most {MAX_WHOLE_FILE}")]
    TooLarge(usize),
    /// The content has more bytes than the store admits.
    #[error("{0}")]
    Beyond(String),
    /// The upload does not exist any more.
    #[error("the upload does not exist any more, because its process has ended or other uploads began; start it again")]
    Discarded,
    /// The tenant's files would exceed a limit.
    #[error(
        "the tenant's files would exceed {MAX_TOTAL} bytes or {MAX_FILES} files; they have {bytes} bytes in {files} \
         files; remove some with `flowcell files rm ID`"
    )]
    Quota {
        /// Bytes of the listed files.
        bytes: u64,
        /// Number of the listed files.
        files: usize,
    },
    /// Another caller changed the file at the same time.
    #[error("another process changed `{0}` at the same time; try again")]
    Changed(String),
    /// The store does not answer, or a document is damaged.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The bytes cannot be read or written.
    #[error("the store: {0}")]
    Bytes(String),
}

impl FileError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            FileError::Unknown(_) => "file_not_found",
            FileError::Name => "invalid_name",
            FileError::Mime | FileError::Metadata | FileError::Content => "invalid_file",
            FileError::TooLarge(_) | FileError::Beyond(_) => "file_too_large",
            FileError::Quota { .. } => "quota_exceeded",
            FileError::Changed(_) | FileError::Discarded => "conflict",
            FileError::Document(_) | FileError::Bytes(_) => "store_unavailable",
        }
    }
}

/// The files of a tenant.
pub struct TenantFiles<'a> {
    host: &'a Host,
}

/// Performs [`Host::keep_file`].
pub(crate) fn keep(host: &Host, name: &str, bytes: Vec<u8>) -> Result<Json, FileError> {
    check_name(name)?;
    check_size(&bytes)?;
    let mime = media_type(&bytes, name);
    let blob = host.blobs().put(host.tenant(), bytes.into(), &mime);
    Ok(file_value(&blob.file_id, blob.size, &mime, name))
}

/// Performs [`Host::file_bytes`].
pub(crate) fn bytes(host: &Host, value: &Json) -> Result<Arc<[u8]>, FileError> {
    let unknown = || FileError::Unknown(value.get("fileId").and_then(Json::as_str).unwrap_or_default().to_owned());
    let blob = Value::from(value.clone()).blob().ok_or_else(unknown)?;
    host.blobs().get(host.tenant(), &blob)?.ok_or_else(unknown)
}

impl TenantFiles<'_> {
    /// Returns the files of the host's tenant.
    pub(crate) fn of(host: &Host) -> TenantFiles<'_> {
        TenantFiles { host }
    }

    /// Stores a file and adds it to the tenant's list of files. If the list already has a file with the same content,
    /// only the name, media type and metadata of that file are replaced.
    pub fn put(&self, new: NewFile) -> Result<FileRow, FileError> {
        let NewFile { name, mime, metadata, bytes } = new.checked()?;
        check_size(&bytes)?;
        let mime = mime.unwrap_or_else(|| media_type(&bytes, &name));
        let blob = self.blobs().put(self.tenant(), bytes.into(), &mime);
        self.add(&name, blob, metadata)
    }

    /// Adds a stored content to the list.
    fn add(&self, name: &str, blob: BlobRef, metadata: Json) -> Result<FileRow, FileError> {
        let size = blob.size;
        // The bytes of a listed file must be durable before its document.
        self.host.settle().map_err(DocumentError::from)?;
        let id = blob.file_id.to_string();
        for _ in 0..MAX_WRITE_TRIES {
            let found = self.documents().get::<FileRow>(FILE, &id)?;
            if found.is_none() {
                self.check_space(size)?;
            }
            let seen = found.as_ref().map_or(0, |(_, seen)| *seen);
            let created = found.map_or_else(|| self.host.now(), |(row, _)| row.created);
            let (name, mime, metadata) = (name.to_owned(), blob.mime.to_string(), metadata.clone());
            let row = FileRow { file_id: id.clone(), name, mime, size, metadata, created };
            if self.documents().put(FILE, &id, Some(&row), seen)? {
                return Ok(row);
            }
        }
        Err(FileError::Changed(id))
    }

    /// Returns the files, sorted by name.
    pub fn list(&self) -> Result<Vec<FileRow>, FileError> {
        let mut rows: Vec<_> = self.documents().all::<FileRow>(FILE)?.into_iter().map(|(_, row)| row).collect();
        rows.sort_by(|a, b| (&a.name, &a.file_id).cmp(&(&b.name, &b.file_id)));
        Ok(rows)
    }

    /// Returns a file without its content.
    pub fn find(&self, id: &str) -> Result<FileRow, FileError> {
        let found = self.documents().get::<FileRow>(FILE, id)?;
        found.map(|(row, _)| row).ok_or_else(|| FileError::Unknown(id.to_owned()))
    }

    /// Returns a file with its content.
    pub fn get(&self, id: &str) -> Result<(FileRow, Arc<[u8]>), FileError> {
        let row = self.find(id)?;
        let bytes = bytes(self.host, &row.value())?;
        Ok((row, bytes))
    }

    /// Removes a file from the list. The next sweep removes its bytes, unless a run or another value refers to them.
    pub fn remove(&self, id: &str) -> Result<(), FileError> {
        let found = self.documents().get::<FileRow>(FILE, id)?;
        let (_, seen) = found.ok_or_else(|| FileError::Unknown(id.to_owned()))?;
        match self.documents().put::<FileRow>(FILE, id, None, seen)? {
            true => Ok(()),
            false => Err(FileError::Changed(id.to_owned())),
        }
    }

    /// Begins a file whose content arrives in parts.
    pub fn begin(&self) -> Result<Upload, FileError> {
        self.check_space(1)?;
        Upload::begin(self.host)
    }

    /// Stores a file whose content has arrived, and adds it to the tenant's list of files, as [`TenantFiles::put`] does.
    /// The bytes in `new` count for nothing.
    pub fn put_upload(&self, new: NewFile, upload: Upload) -> Result<FileRow, FileError> {
        let new = new.checked()?;
        self.check_space(upload.size())?;
        let blob = upload.finish(new.mime, &new.name)?;
        self.add(&new.name, blob, new.metadata)
    }

    /// Returns at most `length` bytes of a file from `offset` on.
    pub fn read(&self, row: &FileRow, offset: u64, length: usize) -> Result<Vec<u8>, FileError> {
        read_part(self.host, &row.value(), offset, length)
    }

    fn check_space(&self, size: u64) -> Result<(), FileError> {
        let rows = self.list()?;
        let (files, bytes) = (rows.len(), rows.iter().map(|row| row.size).sum::<u64>());
        match files < MAX_FILES && bytes.saturating_add(size) <= MAX_TOTAL {
            true => Ok(()),
            false => Err(FileError::Quota { bytes, files }),
        }
    }

    fn blobs(&self) -> &dyn Blobs {
        &**self.host.blobs()
    }

    fn tenant(&self) -> &Tenant {
        self.host.tenant()
    }

    fn documents(&self) -> Documents<'_> {
        let documents: &dyn DocumentStore = self.host.documents();
        Documents { store: documents, tenant: self.host.tenant() }
    }
}

fn check_name(name: &str) -> Result<(), FileError> {
    let odd = |letter: char| letter.is_control() || matches!(letter, '/' | '\\');
    let dots = name.chars().all(|letter| letter == '.');
    let bad = name.is_empty() || name.len() > MAX_NAME || dots || name.contains(odd) || has_deceptive(name);
    if bad { Err(FileError::Name) } else { Ok(()) }
}

fn check_size(bytes: &[u8]) -> Result<(), FileError> {
    if bytes.len() > MAX_WHOLE_FILE { Err(FileError::TooLarge(bytes.len())) } else { Ok(()) }
}

fn check_mime(mime: &str) -> Result<(), FileError> {
    let printable = mime.len() <= MAX_MIME && mime.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if printable && mime.contains('/') { Ok(()) } else { Err(FileError::Mime) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn host() -> Host {
        Host::builder().without_cache().instances(1).build().unwrap()
    }

    fn new(name: &str, text: &str) -> NewFile {
        NewFile { name: name.into(), bytes: text.into(), ..NewFile::default() }
    }

    #[test]
    fn equal_content_is_stored_once_for_each_tenant() {
        let host = host();
        let row = host.files().put(new("a.txt", "hello")).unwrap();
        assert_eq!((row.mime.as_str(), row.size), ("text/plain", 5));
        let again = host.files().put(NewFile { mime: Some("text/x-a".into()), ..new("b.txt", "hello") }).unwrap();
        assert_eq!((&again.file_id, again.created), (&row.file_id, row.created));
        assert_eq!(host.files().list().unwrap(), std::slice::from_ref(&again));
        assert_eq!(&*host.files().get(&row.file_id).unwrap().1, b"hello");
        let other = host.for_tenant(Tenant::from("other"));
        assert_eq!(other.files().get(&row.file_id).unwrap_err().code(), "file_not_found");
        assert!(other.files().list().unwrap().is_empty());
        host.files().remove(&row.file_id).unwrap();
        assert_eq!(host.files().remove(&row.file_id).unwrap_err().code(), "file_not_found");
        assert_eq!(host.files().get(&row.file_id).unwrap_err().code(), "file_not_found");
    }

    #[test]
    fn invalid_files_are_refused() {
        let host = host();
        let cases = [
            (new("", "x"), "invalid_name"),
            (new("../x", "x"), "invalid_name"),
            (new("..", "x"), "invalid_name"),
            (new("a\nb", "x"), "invalid_name"),
            (new(&"x".repeat(256), "x"), "invalid_name"),
            (NewFile { mime: Some("png".into()), ..new("a", "x") }, "invalid_file"),
            (NewFile { mime: Some("a/b\r\nc: d".into()), ..new("a", "x") }, "invalid_file"),
            (NewFile { metadata: Json::from(true), ..new("a", "x") }, "invalid_file"),
            (NewFile { bytes: vec![0; MAX_WHOLE_FILE + 1], ..new("a", "x") }, "file_too_large"),
        ];
        for (new, code) in cases {
            let name = new.name.clone();
            assert_eq!(host.files().put(new).unwrap_err().code(), code, "{name}");
        }
        assert!(host.files().list().unwrap().is_empty());
    }

    #[test]
    fn the_files_of_a_tenant_are_limited() {
        let host = host();
        let row = host.files().put(new("a", "x")).unwrap();
        let large = FileRow { size: MAX_TOTAL - 1, ..row.clone() };
        assert!(host.files().documents().put(FILE, &row.file_id, Some(&large), 1).unwrap());
        let refused = host.files().put(new("b", "yz")).unwrap_err();
        assert_eq!(refused.code(), "quota_exceeded");
        assert_eq!(host.files().put(new("c", "y")).unwrap().size, 1, "it just fits");
    }
}
