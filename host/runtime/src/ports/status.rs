//! The stored status of a run.

use crate::result::RunStatus;

/// The status of a run in the store, for lists and for processes that look for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredStatus {
    /// A process drives it, or should.
    Active,
    /// It waits.
    Parked {
        /// The time of its next timer, in milliseconds since 1970; none: only an answer or an event moves it on.
        due: Option<u64>,
        /// True if a person has to decide something.
        needs_attention: bool,
    },
    /// It has ended.
    Ended(RunStatus),
}

impl StoredStatus {
    /// The columns of a status: its name, the time of the next timer, and whether a person has to decide something.
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
