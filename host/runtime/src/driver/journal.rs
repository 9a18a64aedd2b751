//! Functions that read the journal of a run.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use flowcell_contract::{RunId, Tenant};

use super::options::Identity;
use crate::{
    limits::MAX_READ_UNITS,
    ports::{Journal, StoreError, Unit},
    state::RunState,
};

/// Reads all durable units of a run, a page at a time.
pub fn each_unit(
    journal: &dyn Journal,
    tenant: &Tenant,
    run: &RunId,
    mut visit: impl FnMut(Arc<Unit>),
) -> Result<(), StoreError> {
    let mut from = 0;
    loop {
        let page = journal.read(tenant, run, from, MAX_READ_UNITS)?;
        let Some(last) = page.last() else { return Ok(()) };
        from = last.next_seq();
        page.into_iter().for_each(&mut visit);
    }
}

/// Folds the durable facts of a run into its state, and passes each unit to `visit`.
pub(super) fn fold(
    journal: &dyn Journal,
    identity: &Identity,
    state: &mut RunState,
    mut visit: impl FnMut(&Unit),
) -> Result<(), StoreError> {
    let (mut next_seq, mut folded) = (0, Ok(()));
    each_unit(journal, &identity.tenant, &identity.run_id, |unit| {
        if folded.is_err() {
            return;
        }
        // The fold panics on facts that do not fit the state. The panic becomes an error of this run alone.
        folded = panic::catch_unwind(AssertUnwindSafe(|| {
            assert_eq!(unit.first_seq, next_seq, "a unit is missing");
            unit.facts.iter().for_each(|fact| state.apply(fact, unit.ts));
        }));
        next_seq = unit.next_seq();
        visit(&unit);
    })?;
    folded.map_err(|_| {
        let message = format!("the journal of run `{}` does not fit its flow", identity.run_id);
        StoreError::damaged(message)
    })
}
