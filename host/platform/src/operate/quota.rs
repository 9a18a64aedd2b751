//! The error of a tenant that may have no more.

use flowcell_contract::{Failure, code};
use flowcell_runtime::ports::StoreError;

/// Why a tenant may have no more.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// There are too many runs.
    #[error(
        "the tenant has {0} runs that are not over, runs below them included, which is as many as it may have; cancel some, or wait"
    )]
    LiveRuns(u32),
    /// It has used up what it may in a day.
    #[error("the tenant has used up what it may in a day (`perDay.{what}`: {most}); it may go on tomorrow, by UTC")]
    Day {
        /// Of what, as the policy names it.
        what: &'static str,
        /// How much.
        most: f64,
        /// Seconds until the day is over.
        seconds: u64,
    },
    /// Nobody knows what a turn of a model costs, or an image; and what has to be configured for that.
    #[error("the operator limits what the tenant spends, and nobody knows what this costs at most: {0}")]
    NoPrice(&'static str),
    /// Nobody can say how much there is.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<QuotaError> for Failure {
    fn from(error: QuotaError) -> Failure {
        match error {
            QuotaError::Store(error) => error.into(),
            error => Failure::new(code::QUOTA_EXCEEDED, error.to_string()),
        }
    }
}
