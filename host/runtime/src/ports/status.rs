//! The stored status of a run.

use crate::result::RunStatus;

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
