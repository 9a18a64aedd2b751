//! What a run is given before it is driven.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Json, RunId};

use super::{Driver, Given, conflict};
use crate::{
    fact::Write,
    hub::Channel,
    live::{Place, Starting},
    ports::{Again, Change, StageError, StoreError},
};

impl Driver {
    /// What a new run was asked for with, by its digest.
    pub(crate) fn asked_by(&mut self, request: Option<Box<str>>) {
        if let Some(record) = &mut self.outbox.record {
            record.request = request;
        }
    }

    /// The run does again what another did, but for what is given.
    pub(crate) fn do_again(&mut self, again: Again, given: Given) {
        if let Some(record) = &mut self.outbox.record {
            record.again = Some(again);
            self.given = given;
        }
    }

    /// Takes answers to questions that are still to be asked. A new run records them.
    pub(crate) fn answer_with(&mut self, answers: HashMap<String, Json>) {
        if let Some(record) = &mut self.outbox.record {
            record.answers.extend(answers.clone());
        }
        self.answers.extend(answers);
    }

    /// The run was called by this name, and repeats this run.
    pub(super) fn called_as(&mut self, name: &Arc<str>, repeats: Option<RunId>) {
        if let Some(record) = &mut self.outbox.record {
            record.called = Some(name.clone());
        }
        self.repeat(repeats);
    }

    /// The run repeats another one.
    pub(crate) fn repeat(&mut self, repeats: Option<RunId>) {
        if let Some(record) = &mut self.outbox.record {
            record.repeats.clone_from(&repeats);
        }
        self.repeats = repeats;
    }

    pub(crate) fn set_alone(&mut self) {
        self.alone = true;
    }

    pub(crate) fn set_channels(&mut self, channels: Vec<Arc<dyn Channel>>) {
        self.outbox.set_channels(channels);
    }

    /// Counts a new run until the store shows it.
    pub(crate) fn count_as(&mut self, starting: Starting) {
        self.outbox.starting = Some(starting);
    }

    /// Takes the place in which the run is driven.
    pub(crate) fn take(&mut self, place: Place) {
        self.children.take(place);
    }

    /// The run's first unit changes these rows, and writes this state.
    pub(crate) fn begin_with(&mut self, rows: Vec<Change>, writes: Vec<Write>) -> Result<(), StoreError> {
        self.outbox.rows = rows;
        if !writes.is_empty() {
            self.outbox.staged = Some(self.stage(writes).map_err(|error| match error {
                StageError::Conflict(key) => StoreError(conflict(&key).into()),
                StageError::Store(error) => error,
            })?);
        }
        Ok(())
    }
}
