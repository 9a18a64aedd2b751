//! The capability `files`: the files of a tenant, in a folder of the operator.
//!
//! | function | args | reply |
//! |---|---|---|
//! | `read` | `{ path, as: "text" or "file" }` | `{ text }` or `{ file }` |
//! | `write` | `{ path, text }` or `{ path, file }` | `{ size }` |
//! | `list` | `{ path }` | `{ entries: [{ path, kind, size, modifiedMs }] }` |
//! | `stat` | `{ path }` | an entry, or `null` |
//! | `remove` | `{ path }` | true if the path existed |
//!
//! Patterns grant access to paths ([`FileGrants`]). Each call opens the folder once. The host then goes down the path
//! name by name: it opens each name in the folder that it has just opened, and follows no links. So no path, link or
//! rename leads out of the folder, or around a grant. Files are replaced atomically: the content is on stable storage
//! before the file gets its name.
//!
//! The tenant `local` has the folder itself, every other tenant a folder in `.flowcell-tenants`. Names that begin
//! with `.flowcell` belong to the host, and so do `.tenants` and `.versions`; nodes cannot use them.
//!
//! Every call is idempotent: reads change nothing, and a repeated write has the same effect.
//!
//! | code | when |
//! |---|---|
//! | `denied` | the path is not granted, the host has no folder, a link is in the way, or a file has several names |
//! | `invalid_input` | the path is malformed, or leads to neither a file nor a folder |
//! | `file_not_found` | the path does not exist |
//! | `file_too_large`, `not_text` | the content to read or write is too large, or not text |
//! | `not_empty` | the folder to remove is not empty |
//! | `quota_exceeded` | the tenant has too many files, or too many bytes in them |
//! | `limit_exceeded` | the folder to list has too many entries |
//! | `file_failed` | a disk operation failed; retryable |

mod access;
mod blobs;
mod failures;
mod grant;
mod limits;
mod path;
mod quota;
mod request;
mod root;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_contract::{
    Admission, Blobs, BuiltIn, Call, Caller, Capability, Effect, Failure, Json, Outgoing, PIECE_BYTES, Tenant, Value,
    code as codes, part,
};
use futures_util::future::BoxFuture;

pub(crate) use self::blobs::{AsyncBlobs, AsyncWriter};
use self::{
    access::{Access, Entry, Source},
    quota::Quotas,
    request::{Content, Operation, Request},
    root::Root,
};
pub use self::{grant::FileGrants, limits::Limits};
use crate::code;

/// The name of the capability, in calls and in grants.
pub const INTERFACE: &str = BuiltIn::Files.name();

/// The size of the files of a removed tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedFiles {
    /// Bytes of the files.
    pub bytes: u64,
    /// Number of files, folders and links.
    pub entries: u64,
}

/// Removes the files of a tenant other than `local` from the operator's folder, without following links.
pub fn remove_tenant(folder: &Path, tenant: &Tenant) -> io::Result<RemovedFiles> {
    let quota::Used { bytes, entries } = root::remove_tenant(folder, tenant)?;
    Ok(RemovedFiles { bytes, entries })
}

/// The capability `files`. Clones share their quota counts.
#[derive(Clone)]
pub struct FilesCapability {
    root: Option<Arc<Root>>,
    blobs: AsyncBlobs,
    quotas: Quotas,
    limits: Limits,
}

impl FilesCapability {
    /// Creates the capability for an existing folder. If `folder` is `None`, every call is denied. `blobs` stores the
    /// contents that `read` returns as a `file` and that `write` takes as a `file`.
    pub fn new(folder: Option<PathBuf>, blobs: Arc<dyn Blobs>) -> FilesCapability {
        let root = folder.map(|folder| Arc::new(Root::new(folder)));
        FilesCapability { root, blobs: AsyncBlobs::new(blobs), quotas: Quotas::default(), limits: Limits::default() }
    }

    /// Returns the same capability with other limits.
    pub fn with_limits(self, limits: Limits) -> FilesCapability {
        FilesCapability { limits, ..self }
    }

    /// Parses the request of a call. Fails with `denied` if the node's grants do not cover it.
    fn request(&self, call: &Call, caller: &Caller) -> Result<(Request, FileGrants), Failure> {
        let request = Request::read(call)?;
        let grants = match caller.grants.0.get(INTERFACE) {
            Some(grant) => FileGrants::parse(grant).map_err(|why| denial(format!("grants.files: {why}")))?,
            None => FileGrants::default(),
        };
        let (path, operation) = (&request.path, &request.operation);
        let granted = match operation {
            Operation::Read | Operation::ReadText | Operation::Stat => grants.may_read(path),
            Operation::List => grants.may_list(path),
            Operation::Write(_) | Operation::Remove => grants.may_write(path),
        };
        if !granted {
            let (kind, example) = match operation {
                Operation::Write(_) | Operation::Remove => ("write", path.to_string()),
                Operation::List => ("read", path.pattern_below()),
                _ => ("read", path.to_string()),
            };
            let message = format!(
                "the node has no grant for `files.{}` of `{path}`; add `grants: {{ files: {{ {kind}: [\"{example}\"] \
                 }} }}` to it",
                call.function
            );
            return Err(denial(message));
        }
        Ok((request, grants))
    }

    /// Opens the folder of a tenant. Fails with `denied` if the operator has set no folder for files.
    async fn open(&self, tenant: &Tenant) -> Result<Access, Failure> {
        let root = self.root.clone().ok_or_else(no_folder)?;
        let (tenant, limits) = (tenant.clone(), self.limits.clone());
        let dir = blobs::blocking(move || {
            root.open_tenant(&tenant).map_err(|error| failures::failed("the folder for files", &error))
        });
        Ok(Access { dir: dir.await?, limits })
    }

    async fn answer(self, outgoing: Outgoing) -> Result<Value, Failure> {
        let Outgoing { caller, call, key, .. } = outgoing;
        let (Request { path, operation }, grants) = self.request(&call, &caller)?;
        let access = self.open(&caller.tenant).await?;
        let reply = match operation {
            Operation::ReadText => {
                let bytes = blobs::blocking(move || access.read(&path, access.limits.text)).await?;
                let text =
                    String::from_utf8(bytes).map_err(|_| Failure::new(code::NOT_TEXT, "the file is not UTF-8"))?;
                Json::object([("text", Json::from(text))])
            }
            Operation::Read => {
                let mime = path.mime().to_owned();
                let (store, tenant) = (self.blobs.store(), caller.tenant.clone());
                let blob = blobs::blocking(move || {
                    let mut writer = store.writer(&tenant)?;
                    access.read_parts(&path, access.limits.file, |part| writer.write(part))?;
                    writer.finish(&mime)
                });
                let blob = blob.await?;
                Json::object([("file", Value::from(blob).json().clone())])
            }
            Operation::Write(content) => {
                let quota = self.quotas.for_tenant(&caller.tenant);
                let size = match &content {
                    Content::Text(text) => text.len() as u64,
                    Content::File(blob) => self.blobs.size(&caller.tenant, blob).await?,
                };
                let (store, tenant) = (self.blobs.store(), caller.tenant.clone());
                blobs::blocking(move || {
                    let mut read = |offset| match &content {
                        Content::Text(text) => Ok(part(text.as_bytes(), offset, PIECE_BYTES).to_vec()),
                        Content::File(blob) => {
                            let read = store.read_part(&tenant, blob, offset, PIECE_BYTES)?;
                            read.ok_or_else(|| blobs::missing(blob))
                        }
                    };
                    access.write(&path, Source { size, part: &mut read }, &key, &quota)
                })
                .await?;
                Json::object([("size", Json::from(size))])
            }
            Operation::List => {
                let entries = blobs::blocking(move || access.list(&path, &grants)).await?;
                Json::object([("entries", Json::array(entries.iter().map(Entry::to_json)))])
            }
            Operation::Stat => {
                let entry = blobs::blocking(move || access.stat(&path)).await?;
                entry.map_or(Json::Null, |entry| entry.to_json())
            }
            Operation::Remove => {
                let quota = self.quotas.for_tenant(&caller.tenant);
                Json::from(blobs::blocking(move || access.remove(&path, &quota)).await?)
            }
        };
        Ok(reply.into())
    }
}

impl Capability for FilesCapability {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        let (request, _) = self.request(call, caller)?;
        self.root.as_ref().ok_or_else(no_folder)?;
        let about = Json::object([("path", Json::from(request.path.to_string()))]);
        Ok(Admission::new(Effect::Idempotent, about))
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        Box::pin(self.clone().answer(outgoing))
    }
}

fn denial(message: String) -> Failure {
    Failure::new(codes::DENIED, message)
}

fn no_folder() -> Failure {
    denial("this host has no folder for files; the operator sets it with `--files DIR` or FLOWCELL_FILES".into())
}
