//! The stored status of a run.

use crate::{
    fact::{Fact, ParkReason, RunEnd},
    result::RunStatus,
};

/// The status of a run in the store, for lists and for processes that look for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredStatus {
    /// A process drives the run, or should drive it.
    Active,
    /// The run waits in the store.
    Parked {
        /// The time of the run's next timer, in milliseconds since 1970. `None`: only an answer or an event continues
        /// the run.
        due: Option<u64>,
        /// True if a person has to decide something.
        needs_attention: bool,
    },
    /// The run has ended.
    Ended(RunStatus),
}

impl StoredStatus {
    /// Returns the status of a run after the facts of a unit. `None`: it stays as it was. `was_parked` says whether the
    /// run was parked before the unit.
    pub(crate) fn after_unit(facts: &[Fact], was_parked: bool) -> Option<StoredStatus> {
        let status = facts.iter().rev().find_map(StoredStatus::after_fact);
        // Any fact after a park makes the run active.
        status.or(was_parked.then_some(StoredStatus::Active))
    }

    fn after_fact(fact: &Fact) -> Option<StoredStatus> {
        match fact {
            Fact::RunStarted { .. } | Fact::RunResumed { .. } => Some(StoredStatus::Active),
            Fact::RunParked { due, reason, .. } => {
                let needs_attention = !matches!(reason, ParkReason::Waiting | ParkReason::QuotaExceeded);
                Some(StoredStatus::Parked { due: *due, needs_attention })
            }
            Fact::RunEnded { end } => Some(StoredStatus::Ended(match **end {
                RunEnd::Succeeded { .. } => RunStatus::Succeeded,
                RunEnd::Failed { .. } => RunStatus::Failed,
                RunEnd::Cancelled { .. } => RunStatus::Cancelled,
            })),
            _ => None,
        }
    }

    /// Returns the columns of a status: its name, the time of the next timer, and whether a person has to decide
    /// something.
    pub(crate) fn columns(self) -> (&'static str, Option<u64>, bool) {
        match self {
            StoredStatus::Parked { due, needs_attention } => ("parked", due, needs_attention),
            StoredStatus::Ended(RunStatus::Succeeded) => ("succeeded", None, false),
            StoredStatus::Ended(RunStatus::Failed) => ("failed", None, false),
            StoredStatus::Ended(RunStatus::Cancelled) => ("cancelled", None, false),
            StoredStatus::Active | StoredStatus::Ended(_) => ("active", None, false),
        }
    }
}
