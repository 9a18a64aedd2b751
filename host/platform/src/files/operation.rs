//! Operations on files that another process sends to the store's owner.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::{Json, Tenant};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{FileError, NewFile, TenantFiles, Upload};
use crate::operate::documents::to_json;

/// An operation on files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "deed", rename_all = "camelCase")]
pub enum FileOperation {
    /// Stores a file.
    Put {
        /// The file's name.
        name: String,
        /// The media type of the file. Default: derived from its content or its name.
        mime: Option<String>,
        /// The user's metadata, an object.
        metadata: Json,
        /// The content of the file, in base64.
        content: String,
    },
    /// Begins a file whose content arrives in parts. Returns `{ upload }`, its number.
    Begin,
    /// Adds a part to the content of a file.
    Append {
        /// The number of the upload.
        upload: String,
        /// The part, in base64.
        content: String,
    },
    /// Stores a file whose content has arrived in parts.
    PutUpload {
        /// The number of the upload.
        upload: String,
        /// The file's name.
        name: String,
        /// The media type of the file. Default: derived from its content or its name.
        mime: Option<String>,
        /// The user's metadata, an object.
        metadata: Json,
    },
    /// Returns a file with a part of its content, in base64: at most [`MAX_PART`] bytes, none at the end.
    Read {
        /// The file's id.
        id: String,
        /// The offset of the part in bytes.
        offset: u64,
    },
    /// Lists all files.
    List,
    /// Removes a file.
    Remove {
        /// The file's id.
        id: String,
    },
}

/// Maximum size in bytes of a part of a file in one operation.
pub const MAX_PART: usize = 8 << 20;
/// Maximum number of files of all tenants that arrive in parts at a time. A further one discards the one that received no
/// part for the longest time.
const MAX_UPLOADS: usize = 16;

/// The files that arrive in parts, in the order of their latest parts.
static UPLOADS: Mutex<Vec<OpenUpload>> = Mutex::new(Vec::new());

struct OpenUpload {
    /// A random number, so that no other caller hits it.
    id: String,
    tenant: Tenant,
    upload: Upload,
}

impl TenantFiles<'_> {
    /// Takes an upload of the tenant out of the list.
    fn take_upload(&self, id: &str) -> Result<OpenUpload, FileError> {
        let mut open = UPLOADS.lock();
        let place = open.iter().position(|open| open.id == id && open.tenant == *self.tenant());
        place.map(|place| open.remove(place)).ok_or(FileError::Discarded)
    }

    /// Performs an operation and returns its result.
    pub fn operate(&self, deed: &FileOperation) -> Result<Json, FileError> {
        match deed {
            FileOperation::Put { name, mime, metadata, content } => {
                let bytes = STANDARD.decode(content).map_err(|_| FileError::Content)?;
                let (name, mime, metadata) = (name.clone(), mime.clone(), metadata.clone());
                Ok(self.put(NewFile { name, mime, metadata, bytes })?.value())
            }
            FileOperation::Begin => {
                let upload = OpenUpload {
                    id: hex::encode(rand::random::<[u8; 16]>()),
                    tenant: self.tenant().clone(),
                    upload: self.begin()?,
                };
                let id = upload.id.clone();
                let mut open = UPLOADS.lock();
                if open.len() >= MAX_UPLOADS {
                    open.remove(0);
                }
                open.push(upload);
                Ok(Json::object([("upload", Json::from(id))]))
            }
            FileOperation::Append { upload, content } => {
                let bytes = STANDARD.decode(content).map_err(|_| FileError::Content)?;
                let mut open = self.take_upload(upload)?;
                open.upload.write(&bytes)?;
                let size = open.upload.size();
                UPLOADS.lock().push(open);
                Ok(Json::object([("size", Json::from(size))]))
            }
            FileOperation::PutUpload { upload, name, mime, metadata } => {
                let (name, mime, metadata) = (name.clone(), mime.clone(), metadata.clone());
                let new = NewFile { name, mime, metadata, bytes: Vec::new() };
                Ok(self.put_upload(new, self.take_upload(upload)?.upload)?.value())
            }
            FileOperation::Read { id, offset } => {
                let row = self.find(id)?;
                let bytes = self.read(&row, *offset, MAX_PART)?;
                let members = row.value().as_object().cloned().unwrap_or_default();
                let content = ("content".into(), Json::from(STANDARD.encode(bytes)));
                Ok(Json::object(members.into_iter().chain([content])))
            }
            FileOperation::List => Ok(to_json("files", &self.list()?)?),
            FileOperation::Remove { id } => {
                self.remove(id)?;
                Ok(Json::object([("done", Json::from(true))]))
            }
        }
    }
}
