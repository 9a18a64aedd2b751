//! Files of the tenant. The flow grants paths: `grants: { files: { read: ["data/**"], write: ["out/**"] } }`.
//!
//! A path is relative to the tenant's folder, without `.` and `..`. Links are not followed.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::files::{self, Content, Form},
};

/// A file or a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The path, relative to the tenant's folder.
    pub path: String,
    /// File or folder.
    pub kind: Kind,
    /// Size in bytes; 0 for a folder.
    pub size: u64,
    /// Time of the last change, in ms since 1970.
    pub modified_ms: u64,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A file.
    File,
    /// A folder.
    Folder,
}

/// Reads a file as text.
pub fn read_text(path: &str) -> Result<String> {
    let read = || match files::read(path, Form::Text).map_err(Failure::from_call)? {
        Content::Text(text) => Ok(text),
        _ => Err(unexpected_reply()),
    };
    super::call("files.read", || json!({ "path": path, "as": "text" }), read)
}

/// Reads a file as bytes.
pub fn read_bytes(path: &str) -> Result<Vec<u8>> {
    let read = || match files::read(path, Form::Bytes).map_err(Failure::from_call)? {
        Content::Bytes(bytes) => Ok(bytes),
        _ => Err(unexpected_reply()),
    };
    super::call("files.read", || json!({ "path": path, "as": "bytes" }), read)
}

/// Copies a file to a file value `{ "kind": "file", "fileId": … }`. Use it for files that are too large for the
/// sandbox.
pub fn read_file(path: &str) -> Result<Value> {
    let read = || match files::read(path, Form::File).map_err(Failure::from_call)? {
        Content::File(file) => super::read(&file),
        _ => Err(unexpected_reply()),
    };
    super::call("files.read", || json!({ "path": path, "as": "file" }), read)
}

/// Creates or replaces a file. Returns its size in bytes.
pub fn write_text(path: &str, text: &str) -> Result<u64> {
    let write = || files::write(path, &Content::Text(text.to_owned())).map_err(Failure::from_call);
    super::call("files.write", || json!({ "path": path, "text": text }), write)
}

/// Creates or replaces a file. Returns its size in bytes.
pub fn write_bytes(path: &str, bytes: &[u8]) -> Result<u64> {
    let write = || files::write(path, &Content::Bytes(bytes.to_vec())).map_err(Failure::from_call);
    super::call("files.write", || json!({ "path": path, "size": bytes.len() }), write)
}

/// Creates or replaces a file with the content of a file value. Returns its size in bytes.
pub fn write_file(path: &str, file: &Value) -> Result<u64> {
    let write = || files::write(path, &Content::File(file.to_string())).map_err(Failure::from_call);
    super::call("files.write", || json!({ "path": path, "file": file }), write)
}

/// Returns the entries of a folder, sorted by name. Entries that the flow may not read are left out. The path `""` is
/// the folder of the tenant.
pub fn list(path: &str) -> Result<Vec<Entry>> {
    let list = || Ok(files::list(path).map_err(Failure::from_call)?.into_iter().map(Entry::from_wit).collect());
    super::call("files.list", || json!({ "path": path }), list)
}

/// Returns the entry at a path; none if the path does not exist.
pub fn stat(path: &str) -> Result<Option<Entry>> {
    let stat = || Ok(files::stat(path).map_err(Failure::from_call)?.map(Entry::from_wit));
    super::call("files.stat", || json!({ "path": path }), stat)
}

/// Removes a file or an empty folder. Returns true if it existed; false if there was nothing to remove.
pub fn remove(path: &str) -> Result<bool> {
    let remove = || files::remove(path).map_err(Failure::from_call);
    super::call("files.remove", || json!({ "path": path }), remove)
}

impl Entry {
    fn from_wit(entry: files::Entry) -> Entry {
        let files::Entry { path, kind, size, modified_ms } = entry;
        let kind = match kind {
            files::Kind::File => Kind::File,
            files::Kind::Folder => Kind::Folder,
        };
        Entry { path, kind, size, modified_ms }
    }
}

fn unexpected_reply() -> Failure {
    Failure::new("lost_worker", "the host sent an unexpected reply").retryable()
}
