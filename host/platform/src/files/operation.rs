//! What is asked about files from another process than the one that owns the store.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

use super::{FileError, Files, NewFile};
use crate::operate::documents::to_json;

/// Something about files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "deed", rename_all = "camelCase")]
pub enum Deed {
    /// Put one.
    Put {
        /// What it is called.
        name: String,
        /// Its media type; none: what its content or its name tells.
        mime: Option<String>,
        /// What is noted of it.
        metadata: Json,
        /// Its content, in base64.
        content: String,
    },
    /// Tell one with its content, in base64.
    Get {
        /// Which.
        id: String,
    },
    /// Tell all.
    List,
    /// Remove one.
    Remove {
        /// Which.
        id: String,
    },
}

impl Files<'_> {
    /// Does it, and tells what came of it.
    pub fn operate(&self, deed: &Deed) -> Result<Json, FileError> {
        match deed {
            Deed::Put { name, mime, metadata, content } => {
                let bytes = STANDARD.decode(content).map_err(|_| FileError::Content)?;
                let (name, mime, metadata) = (name.clone(), mime.clone(), metadata.clone());
                Ok(self.put(NewFile { name, mime, metadata, bytes })?.value())
            }
            Deed::Get { id } => {
                let (row, bytes) = self.get(id)?;
                let members = row.value().as_object().cloned().unwrap_or_default();
                let content = ("content".into(), Json::from(STANDARD.encode(bytes)));
                Ok(Json::object(members.into_iter().chain([content])))
            }
            Deed::List => Ok(to_json("files", &self.list()?)?),
            Deed::Remove { id } => {
                self.remove(id)?;
                Ok(Json::object([("done", Json::from(true))]))
            }
        }
    }
}
