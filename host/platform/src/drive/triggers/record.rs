//! What the document store has of triggers, by flow and id: whether one is on, what was bound to a flow beside its file, starts that
//! somebody asked for, and how far each has come.

use flowcell_runtime::ports::{MARK, StoreError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::{Host, operate::documents::Documents};

/// What people have said of a trigger.
const SAID: &str = "trigger";
/// Times that one document is written again because somebody else has written it.
const TRIES: usize = 16;

/// What people have said of a trigger.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Said {
    /// The trigger, if it is bound to the flow from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<serde_json::Value>,
    /// It starts nothing.
    #[serde(default)]
    pub disabled: bool,
    /// Starts that were asked for and are still to be made, by when that was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<u64>,
}

/// How far a trigger has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The digest of what it waits for: another one is a new trigger.
    pub cause: String,
    /// When it was first seen: what was before starts nothing.
    pub since: u64,
    /// What it has dealt with.
    pub up_to: u64,
}

/// The records of a tenant.
pub(super) struct Records<'a>(pub(super) &'a Host);

/// A trigger among those of a tenant.
pub(super) fn key(flow: &str, id: &str) -> String {
    format!("{flow}/{id}")
}

impl Records<'_> {
    /// What was said of each trigger, by its key.
    pub(super) fn said(&self) -> Result<Vec<(String, Said)>, StoreError> {
        Ok(self.documents().all(SAID)?)
    }

    /// Changes what is said of one, also while others do. Nothing is written if the change has none.
    pub(super) fn say(
        &self,
        key: &str,
        mut change: impl FnMut(Option<Said>) -> Option<Option<Said>>,
    ) -> Result<bool, StoreError> {
        for _ in 0..TRIES {
            let found: Option<(Said, u64)> = self.get(SAID, key)?;
            let (said, version) = found.map_or((None, 0), |(said, version)| (Some(said), version));
            let Some(next) = change(said) else { return Ok(false) };
            if next.is_none() && version == 0 || self.put(SAID, key, next.as_ref(), version)? {
                return Ok(true);
            }
        }
        Err(StoreError(format!("the trigger `{key}` is changed by many at the same time").into()))
    }

    /// The mark of a trigger; a new one if there is none, or if it was of another cause: from now on.
    pub(super) fn mark(&self, key: &str, cause: &str, now: u64) -> Result<(Mark, u64), StoreError> {
        loop {
            let found: Option<(Mark, u64)> = self.get(MARK, key)?;
            let version = match found {
                Some((mark, version)) if mark.cause == cause => return Ok((mark, version)),
                Some((_, version)) => version,
                None => 0,
            };
            let mark = Mark { cause: cause.to_owned(), since: now, up_to: now };
            if self.put(MARK, key, Some(&mark), version)? {
                return Ok((mark, version + 1));
            }
        }
    }

    /// The mark of a trigger, if it was seen.
    pub(super) fn last_mark(&self, key: &str) -> Result<Option<Mark>, StoreError> {
        Ok(self.get(MARK, key)?.map(|(mark, _)| mark))
    }

    /// Moves a mark that was seen at a version. If somebody else has moved it, theirs is as good.
    pub(super) fn move_mark(&self, key: &str, mark: &Mark, seen: u64) -> Result<(), StoreError> {
        self.put(MARK, key, Some(mark), seen).map(drop)
    }

    /// Forgets how far a trigger has come: it is a new one.
    pub(super) fn forget(&self, key: &str) -> Result<(), StoreError> {
        while let Some((_, version)) = self.get::<Mark>(MARK, key)? {
            if self.put::<Mark>(MARK, key, None, version)? {
                break;
            }
        }
        Ok(())
    }

    fn get<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Result<Option<(T, u64)>, StoreError> {
        Ok(self.documents().get(kind, key)?)
    }

    fn put<T: Serialize>(&self, kind: &str, key: &str, value: Option<&T>, seen: u64) -> Result<bool, StoreError> {
        Ok(self.documents().put(kind, key, value, seen)?)
    }

    fn documents(&self) -> Documents<'_> {
        Documents { store: self.0.documents(), tenant: self.0.tenant() }
    }
}

/// The digest of what a trigger waits for.
pub(super) fn digest(cause: &impl Serialize) -> String {
    let text = serde_json::to_vec(cause).unwrap_or_default();
    hex::encode(&Sha256::digest(text)[..16])
}
