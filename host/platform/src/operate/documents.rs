//! Typed documents of a tenant in the document store.

use flowcell_contract::{Json, Tenant};
use flowcell_runtime::ports::{Document, DocumentStore, StoreError};
use serde::{Serialize, de::DeserializeOwned};

/// Number of documents that are read at a time.
const PAGE: usize = 500;

/// An error of reading or writing a document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The document is damaged.
    #[error("the stored data of `{0}` is damaged: {1}")]
    Damaged(String, String),
    /// Another caller changed the document at the same time.
    #[error("another process changed `{0}` at the same time; try again")]
    Changed(String),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<DocumentError> for StoreError {
    /// Treats a damaged document as an error of the store.
    fn from(error: DocumentError) -> StoreError {
        match error {
            DocumentError::Store(error) => error,
            error @ DocumentError::Damaged(..) => StoreError::damaged(error.to_string()),
            error @ DocumentError::Changed(_) => StoreError::conflict(error.to_string()),
        }
    }
}

/// The documents of a tenant.
pub(crate) struct Documents<'a> {
    pub(crate) store: &'a dyn DocumentStore,
    pub(crate) tenant: &'a Tenant,
}

impl Documents<'_> {
    /// Returns a document with its version.
    pub(crate) fn get<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Result<Option<(T, u64)>, DocumentError> {
        let found = self.store.get(self.tenant, kind, key)?;
        found.map(|found| Ok((read(&found)?, found.version))).transpose()
    }

    /// Returns the document of a kind with the greatest key.
    pub(crate) fn last<T: DeserializeOwned>(&self, kind: &str) -> Result<Option<T>, DocumentError> {
        self.store.last(self.tenant, kind)?.as_ref().map(read).transpose()
    }

    /// Returns all documents of a kind, sorted by their keys.
    pub(crate) fn all<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<(String, T)>, DocumentError> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.store.list(self.tenant, kind, &after, PAGE)?;
            let Some(last) = page.last() else { return Ok(all) };
            after = last.key.clone();
            for found in page {
                let document = read(&found)?;
                all.push((found.key, document));
            }
        }
    }

    /// Writes a document, or removes it if `document` is `None`. Does nothing and returns false if the stored version
    /// is no longer `seen`; `seen` is 0 for a new document.
    pub(crate) fn put<T: Serialize>(
        &self,
        kind: &str,
        key: &str,
        document: Option<&T>,
        seen: u64,
    ) -> Result<bool, DocumentError> {
        let json = document.map(|document| to_json(key, document)).transpose()?;
        Ok(self.store.write(self.tenant, kind, key, json.as_ref(), seen)?)
    }
}

/// Parses a document.
pub(crate) fn read<T: DeserializeOwned>(found: &Document) -> Result<T, DocumentError> {
    serde_json::from_str(&found.value.to_text()).map_err(|error| damaged_error(&found.key, &error))
}

/// Converts a value to the JSON of a document.
pub(crate) fn to_json<T: Serialize>(key: &str, document: &T) -> Result<Json, DocumentError> {
    let text = serde_json::to_string(document).map_err(|error| damaged_error(key, &error))?;
    Json::restore(&text).map_err(|error| damaged_error(key, &error))
}

fn damaged_error(key: &str, why: &dyn std::fmt::Display) -> DocumentError {
    DocumentError::Damaged(key.to_owned(), why.to_string())
}
