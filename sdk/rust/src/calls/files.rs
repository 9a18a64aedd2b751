//! Files of the tenant. The flow grants which: `grants: { files: { read: ["data/**"], write: ["out/**"] } }`.
//!
//! A path leads down from the tenant's folder, without `.` and `..`. Links are not followed.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::files::{self, Content, Form},
};

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its path.
    pub path: String,
    /// A file or a folder.
    pub kind: Kind,
    /// Bytes; 0 of a folder.
    pub size: u64,
    /// When it was last changed, in ms since 1970.
    pub modified_ms: u64,
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A file.
    File,
    /// A folder.
    Folder,
}

/// The text of a file.
pub fn read_text(path: &str) -> Result<String> {
    let read = || match files::read(path, Form::Text).map_err(Failure::of_call)? {
        Content::Text(text) => Ok(text),
        _ => Err(odd()),
    };
    super::made("files.read", || json!({ "path": path, "as": "text" }), read)
}

/// The bytes of a file.
pub fn read_bytes(path: &str) -> Result<Vec<u8>> {
    let read = || match files::read(path, Form::Bytes).map_err(Failure::of_call)? {
        Content::Bytes(bytes) => Ok(bytes),
        _ => Err(odd()),
    };
    super::made("files.read", || json!({ "path": path, "as": "bytes" }), read)
}

/// A copy of a file, as a file value `{ "kind": "file", "fileId": … }`: for what is too large for the sandbox.
pub fn read_file(path: &str) -> Result<Value> {
    let read = || match files::read(path, Form::File).map_err(Failure::of_call)? {
        Content::File(file) => super::read(&file),
        _ => Err(odd()),
    };
    super::made("files.read", || json!({ "path": path, "as": "file" }), read)
}

/// Replaces a file, or makes it. Gives its size.
pub fn write_text(path: &str, text: &str) -> Result<u64> {
    let write = || files::write(path, &Content::Text(text.to_owned())).map_err(Failure::of_call);
    super::made("files.write", || json!({ "path": path, "text": text }), write)
}

/// Replaces a file, or makes it. Gives its size.
pub fn write_bytes(path: &str, bytes: &[u8]) -> Result<u64> {
    let write = || files::write(path, &Content::Bytes(bytes.to_vec())).map_err(Failure::of_call);
    super::made("files.write", || json!({ "path": path, "size": bytes.len() }), write)
}

/// Replaces a file, or makes it, with what a file value means. Gives its size.
pub fn write_file(path: &str, file: &Value) -> Result<u64> {
    let write = || files::write(path, &Content::File(file.to_string())).map_err(Failure::of_call);
    super::made("files.write", || json!({ "path": path, "file": file }), write)
}

/// What is in a folder, by name, as far as the flow lets it be read. `""` is the tenant's folder.
pub fn list(path: &str) -> Result<Vec<Entry>> {
    let list = || Ok(files::list(path).map_err(Failure::of_call)?.into_iter().map(Entry::from_wit).collect());
    super::made("files.list", || json!({ "path": path }), list)
}

/// What there is at a path, if anything.
pub fn stat(path: &str) -> Result<Option<Entry>> {
    let stat = || Ok(files::stat(path).map_err(Failure::of_call)?.map(Entry::from_wit));
    super::made("files.stat", || json!({ "path": path }), stat)
}

/// Removes a file, or a folder that is empty. Gives whether it was there.
pub fn remove(path: &str) -> Result<bool> {
    let remove = || files::remove(path).map_err(Failure::of_call);
    super::made("files.remove", || json!({ "path": path }), remove)
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

fn odd() -> Failure {
    Failure::new("lost_worker", "the host gave something else than was asked for").retryable()
}
