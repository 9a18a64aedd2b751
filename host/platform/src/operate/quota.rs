//! The error of a tenant over quota.

use flowcell_contract::{Failure, code};
use flowcell_runtime::ports::StoreError;

/// An error of a tenant over quota.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// The tenant has too many live runs.
    #[error(
        "the tenant has {0} runs that are not over, runs below them included, which is as many as it may have; cancel some, or wait"
    )]
    LiveRuns(u32),
    /// A daily quota is used up.
    #[error("the tenant has used up what it may in a day (`perDay.{what}`: {most}); it may go on tomorrow, by UTC")]
    Day {
        /// The name of the quota in the policy.
        what: &'static str,
        /// The limit of the quota, in its unit.
        most: f64,
        /// Seconds until the end of the day.
        seconds: u64,
    },
    /// The price of a model's turn or an image is unknown. The value names the missing configuration.
    #[error("the operator limits what the tenant spends, and nobody knows what this costs at most: {0}")]
    NoPrice(&'static str),
    /// The store does not answer.
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
