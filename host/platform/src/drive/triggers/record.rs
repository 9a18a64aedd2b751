//! The documents of triggers, by flow and id. They store whether a trigger is disabled, its bound definition, its
//! pending starts by hand, and its progress.

use flowcell_runtime::ports::{MARK, StoreError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::{Host, operate::documents::Documents};

/// The document kind of [`TriggerSettings`].
const SETTINGS: &str = "trigger";
/// Maximum number of tries to write a document, in case of conflicts.
const MAX_WRITE_TRIES: usize = 16;

/// Users' settings of a trigger.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerSettings {
    /// The definition, if the trigger is bound to the flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<serde_json::Value>,
    /// True if the trigger is disabled, and so starts no runs.
    #[serde(default)]
    pub disabled: bool,
    /// The requests of users to start the flow by hand that no server has fulfilled yet, each as its time in
    /// milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<u64>,
    /// The latest keys of such requests, each with its time, so that a repeated request asks for no second start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<(String, u64)>,
}

/// The progress of a trigger. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The digest of the trigger's cause: what the definition says about when the trigger starts its flow. If the
    /// digest changes, the trigger counts as new.
    pub cause: String,
    /// The time from which the trigger is active. Due times and ends of runs before this time start nothing.
    pub since: u64,
    /// The time up to which the due times or the ends of runs are handled.
    pub up_to: u64,
}

/// The trigger documents of a tenant.
pub(super) struct Records<'a>(pub(super) &'a Host);

/// Returns the key of a trigger among the triggers of its tenant.
pub(super) fn key(flow: &str, id: &str) -> String {
    format!("{flow}/{id}")
}

impl Records<'_> {
    /// Returns the settings of each trigger, by its key.
    pub(super) fn settings(&self) -> Result<Vec<(String, TriggerSettings)>, StoreError> {
        Ok(self.documents().all(SETTINGS)?)
    }

    /// Changes the settings of a trigger. `change` receives the present settings, `None` if there are none, and is
    /// called again after each conflict. If `change` returns `Some(Some(settings))`, these settings are written. If it
    /// returns `Some(None)`, the settings are removed. If it returns `None`, nothing is written, and the method returns
    /// `false`.
    pub(super) fn change_settings(
        &self,
        key: &str,
        mut change: impl FnMut(Option<TriggerSettings>) -> Option<Option<TriggerSettings>>,
    ) -> Result<bool, StoreError> {
        for _ in 0..MAX_WRITE_TRIES {
            let found: Option<(TriggerSettings, u64)> = self.get(SETTINGS, key)?;
            let (settings, version) = found.map_or((None, 0), |(settings, version)| (Some(settings), version));
            let Some(next) = change(settings) else { return Ok(false) };
            if next.is_none() && version == 0 || self.put(SETTINGS, key, next.as_ref(), version)? {
                return Ok(true);
            }
        }
        Err(StoreError::conflict(format!("too many processes change the trigger `{key}`; try again")))
    }

    /// Returns the mark of a trigger with the version of the mark. If there is no mark, or if it has another cause than
    /// `cause`, the method writes a new mark that starts at the time `now`.
    pub(super) fn read_or_create_mark(&self, key: &str, cause: &str, now: u64) -> Result<(Mark, u64), StoreError> {
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

    /// Returns the mark of a trigger, if one exists.
    pub(super) fn find_mark(&self, key: &str) -> Result<Option<Mark>, StoreError> {
        Ok(self.get(MARK, key)?.map(|(mark, _)| mark))
    }

    /// Returns the marks of all triggers, by their keys.
    pub(super) fn marks(&self) -> Result<Vec<(String, Mark)>, StoreError> {
        Ok(self.documents().all(MARK)?)
    }

    /// Writes a mark that was read at the version `seen`. If another process has changed the mark since then, that
    /// mark stays.
    pub(super) fn move_mark(&self, key: &str, mark: &Mark, seen: u64) -> Result<(), StoreError> {
        self.put(MARK, key, Some(mark), seen).map(drop)
    }

    /// Removes the mark of a trigger. The trigger then counts as new.
    pub(super) fn remove_mark(&self, key: &str) -> Result<(), StoreError> {
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

/// Returns the digest of a trigger's cause.
pub(super) fn digest(cause: &impl Serialize) -> String {
    let text = serde_json::to_vec(cause).unwrap_or_default();
    hex::encode(&Sha256::digest(text)[..16])
}
