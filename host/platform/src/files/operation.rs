//! Operations on files that another process sends to the store's owner.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

use super::{FileError, NewFile, TenantFiles};
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
    /// Returns a file with its content, in base64.
    Get {
        /// The file's id.
        id: String,
    },
    /// Lists all files.
    List,
    /// Removes a file.
    Remove {
        /// The file's id.
        id: String,
    },
}

impl TenantFiles<'_> {
    /// Performs an operation and returns its result.
    pub fn operate(&self, deed: &FileOperation) -> Result<Json, FileError> {
        match deed {
            FileOperation::Put { name, mime, metadata, content } => {
                let bytes = STANDARD.decode(content).map_err(|_| FileError::Content)?;
                let (name, mime, metadata) = (name.clone(), mime.clone(), metadata.clone());
                Ok(self.put(NewFile { name, mime, metadata, bytes })?.value())
            }
            FileOperation::Get { id } => {
                let (row, bytes) = self.get(id)?;
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
