//! A run as it was before one of its events: the row that the store had then, and the end.
//!
//! Rows are not kept. The functions that derive the columns of a row from a unit derive them again from the journal.
//! The time is proportional to the number of facts before the event.

use flowcell_contract::{RunId, Tenant};

use crate::{
    fact::{Fact, Migrated, RunEnd},
    limits::MAX_READ_UNITS,
    ports::{Journal, Record, RunRow, StoreError, StoredStatus, Unit},
    rows::search::{ErrorColumns, parse_wait, wait_text},
};

/// A run as it was before one of its events.
pub struct EarlierRun {
    /// The row that the store had then, with the labels of now.
    pub row: RunRow,
    /// The number of events before that event.
    pub events: u64,
    /// The number of moves of the run to other versions of its flow.
    pub moves: usize,
    /// The end of the run. `None`: it had not ended.
    pub end: Option<RunEnd>,
    was_parked: bool,
}

impl EarlierRun {
    /// Reads a run as it was before the event with the number `end`. `row` and `record` are those of now.
    pub fn read(
        journal: &dyn Journal,
        (tenant, run): (&Tenant, &RunId),
        (row, record): (RunRow, &Record),
        end: u64,
    ) -> Result<EarlierRun, StoreError> {
        let row = RunRow {
            status: StoredStatus::Active.columns().0.to_owned(),
            updated: row.created,
            due: None,
            waits_for: None,
            error: None,
            paused_until: None,
            node: None,
            ..row
        };
        let mut earlier = EarlierRun { row, events: 0, moves: 0, end: None, was_parked: false };
        let mut from = 0;
        loop {
            let units = journal.read(tenant, run, from, MAX_READ_UNITS)?;
            let Some(last) = units.last() else { break };
            from = last.next_seq();
            for unit in &units {
                let counted = unit.facts_before(end);
                if !counted.is_empty() {
                    earlier.add(counted, unit);
                }
                // The first move after that event names the version that the run used.
                if let Some(migration) = unit.facts[counted.len()..].iter().find_map(migration) {
                    earlier.row.version = migration.from_version;
                    return Ok(earlier);
                }
            }
            if from >= end && earlier.moves >= record.moves.len() {
                break;
            }
        }
        Ok(earlier)
    }

    /// Adds the facts at the beginning of a unit.
    fn add(&mut self, facts: &[Fact], unit: &Unit) {
        self.events += facts.len() as u64;
        for fact in facts {
            match fact {
                Fact::RunEnded { end } => self.end = Some(RunEnd::clone(end)),
                Fact::Migrated { migration } => {
                    self.row.version = migration.version;
                    self.moves += 1;
                }
                _ => {}
            }
        }
        let Some(status) = StoredStatus::after_unit(facts, self.was_parked) else { return };
        self.was_parked = matches!(status, StoredStatus::Parked { .. });
        let (name, due, needs_attention) = status.columns();
        let error = ErrorColumns::of_facts(facts);
        self.row.status = if needs_attention { "needs_attention" } else { name }.to_owned();
        (self.row.due, self.row.updated) = (due, unit.ts);
        self.row.waits_for = if self.was_parked { parse_wait(wait_text(facts)) } else { None };
        (self.row.error, self.row.node) = error.map_or((None, None), |error| (Some(error.code), error.node));
        self.row = self.row.clone().with_pause();
    }
}

fn migration(fact: &Fact) -> Option<&Migrated> {
    match fact {
        Fact::Migrated { migration } => Some(migration),
        _ => None,
    }
}
