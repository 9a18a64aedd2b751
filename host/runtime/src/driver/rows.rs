//! Rows beside the journal, which change with the facts that they follow from.

use flowcell_contract::Json;

use super::Driver;
use crate::{
    capture,
    fact::Write,
    ports::{Change, StageError, StoreError, Unit},
};

impl Driver {
    /// The run's first unit changes these rows, and writes this state.
    pub(crate) fn begin_with(&mut self, rows: Vec<Change>, writes: Vec<Write>) -> Result<(), StoreError> {
        self.rows = rows;
        if writes.is_empty() {
            return Ok(());
        }
        let staged = self.world.state.stage(&self.identity.tenant, &self.state.graph.name, writes);
        self.staged = Some(staged.map_err(|error| match error {
            StageError::Conflict(key) => {
                StoreError(format!("somebody else has written the state `{key}` meanwhile").into())
            }
            StageError::Store(error) => error,
        })?);
        Ok(())
    }

    /// The rows that a unit changes.
    pub(super) fn rows_of(&mut self, unit: &Unit) -> Vec<Change> {
        let mut rows = std::mem::take(&mut self.rows);
        if let Some(projection) = &mut self.projection {
            let state = &self.state;
            rows.extend(projection.project(unit, &|task| capture::render_members(state, task)));
        }
        rows
    }

    /// A unit whose rows were changed when it was written.
    pub(super) fn follow(&mut self, unit: &Unit) {
        if let Some(projection) = &mut self.projection {
            projection.project(unit, &|_| Json::Null);
        }
    }
}
