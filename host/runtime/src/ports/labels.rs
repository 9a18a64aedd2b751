//! Changes of the labels of stored runs.
//!
//! Labels are metadata by which people find runs. No decision of a run depends on them, so a change is no fact of the
//! run's journal: the store changes the record and the searched rows together, also while a process drives the run and
//! after the run has ended.

use std::collections::BTreeSet;

use flowcell_contract::RunId;
use flowcell_flow::{
    labels::{LabelError, Labels, add_labels, check_label},
    limits::LABELS,
};
use serde::{Deserialize, Serialize};

use super::Record;

/// A change of the labels of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelChange {
    /// The labels that the runs get. They replace labels with the same names.
    #[serde(default)]
    pub set: Labels,
    /// The names of the labels that the runs lose.
    #[serde(default)]
    pub remove: BTreeSet<String>,
}

/// The reason why a run keeps the labels that it has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelabelError {
    /// The run does not exist, or was removed.
    #[error("the run `{0}` does not exist")]
    Unknown(RunId),
    /// The run would have a label that is not valid, or too many labels.
    #[error(transparent)]
    Labels(LabelError),
    /// The record of the run is damaged.
    #[error("the record of the run `{0}` is damaged; check the store with `flowcell store check`")]
    Damaged(RunId),
}

impl RelabelError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            RelabelError::Unknown(_) => "run_not_found",
            RelabelError::Labels(LabelError::TooMany(_)) => "too_many_labels",
            RelabelError::Labels(_) => "bad_request",
            RelabelError::Damaged(_) => "damaged",
        }
    }
}

impl LabelChange {
    /// Checks the change by itself. The error is a sentence for people.
    pub fn check(&self) -> Result<(), String> {
        let LabelChange { set, remove } = self;
        if set.is_empty() && remove.is_empty() {
            return Err("name a label to set or to remove".into());
        }
        if set.len() > LABELS || remove.len() > LABELS {
            return Err(format!("`set` and `remove` may each have at most {LABELS} labels"));
        }
        if let Some(name) = remove.iter().find(|name| set.contains_key(*name)) {
            return Err(format!("`set` and `remove` both name the label `{name}`"));
        }
        let removed = remove.iter().map(|name| check_label(name, "-"));
        let checked = set.iter().map(|(name, value)| check_label(name, value)).chain(removed);
        checked.collect::<Result<(), _>>().map_err(|error| error.to_string())
    }

    /// Changes labels: removes the names in `remove`, and then adds the labels in `set`. Fails if there are then more
    /// than [`LABELS`], or if a label is not valid.
    pub fn apply(&self, labels: &mut Labels) -> Result<(), LabelError> {
        labels.retain(|name, _| !self.remove.contains(name));
        add_labels(labels, self.set.clone())
    }

    /// Returns the record of a run with the changed labels. `text`: the stored record, empty if the run was removed.
    pub(crate) fn of_record(&self, run: &RunId, text: &str) -> Result<Record, RelabelError> {
        if text.is_empty() {
            return Err(RelabelError::Unknown(run.clone()));
        }
        let mut record: Record = serde_json::from_str(text).map_err(|_| RelabelError::Damaged(run.clone()))?;
        self.apply(&mut record.labels).map_err(RelabelError::Labels)?;
        Ok(record)
    }
}

const _: () = assert!(LABELS == 16, "the documentation of jobs names the limit");
