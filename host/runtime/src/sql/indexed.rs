//! The runs whose journals are in another store, as lists show them.

use flowcell_contract::{RunId, Tenant};
use serde::{Deserialize, Serialize};

use crate::{
    ports::{Record, RunRow, StoredStatus, Unit},
    rows::search::{ErrorColumns, parse_wait, wait_text},
};

/// The place of the journals of a store's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Journals {
    /// In the database.
    #[default]
    Here,
    /// In another store. The database has only the rows of the runs, and everything that belongs to no run.
    Elsewhere,
}

/// The part of a run's last change of status that lists show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusNote {
    /// The time of the change, in milliseconds since 1970.
    pub ts: u64,
    /// The code of the error of a failed run, or of one that is parked for a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The node that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The words of the error, or the first item that a parked run waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

impl StatusNote {
    /// Returns the note of a unit that changes the status of its run.
    pub fn of_unit(unit: &Unit) -> StatusNote {
        match ErrorColumns::of_facts(&unit.facts) {
            Some(ErrorColumns { code, node, words }) => {
                StatusNote { ts: unit.ts, error: Some(code), node, words: Some(words) }
            }
            None => StatusNote { ts: unit.ts, words: wait_text(&unit.facts), ..StatusNote::default() },
        }
    }
}

/// The row of a run whose journal is in another store.
#[derive(Clone, Debug)]
pub struct IndexedRun {
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The id of the run.
    pub run: RunId,
    /// The metadata of the run.
    pub record: Record,
    /// The number of the fact after the last change of the metadata.
    pub record_seq: u64,
    /// The time of the start, in milliseconds since 1970.
    pub created: u64,
    /// The status of the run.
    pub status: StoredStatus,
    /// The part of the last change of the status that lists show.
    pub note: StatusNote,
    /// The number of the fact after the last change of the status or the metadata.
    pub next_seq: u64,
}

impl IndexedRun {
    /// Returns the run's row in a list.
    pub fn row(&self) -> RunRow {
        let (name, due, attention) = self.status.columns();
        let status = if name == "parked" && attention { "needs_attention" } else { name };
        let waits_for = if name == "parked" { parse_wait(self.note.words.clone()) } else { None };
        let row = RunRow {
            run_id: self.run.clone(),
            flow: self.record.flow.to_string(),
            status: status.to_owned(),
            created: self.created,
            updated: self.note.ts,
            due,
            version: self.record.version,
            labels: self.record.labels.clone(),
            trigger: self.record.trigger.as_deref().map(str::to_owned),
            retry_of: self.record.repeats.clone().filter(|_| self.record.depth == 0),
            error: self.note.error.clone(),
            node: self.note.node.clone(),
            waits_for,
            paused_until: None,
        };
        row.with_pause()
    }
}
