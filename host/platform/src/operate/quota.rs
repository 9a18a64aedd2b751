//! The error of a tenant over quota.

use flowcell_contract::{Failure, code};
use flowcell_runtime::ports::StoreError;

/// An error of a tenant over quota.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// The tenant has too many live runs.
    #[error(
        "the tenant has {0} unfinished runs with the runs that they called, which is its limit; cancel some, or wait"
    )]
    LiveRuns(u32),
    /// A daily quota is used up.
    #[error("the tenant has reached its limit per day (`perDay.{what}`: {most}); its runs can continue tomorrow (UTC)")]
    Day {
        /// The name of the quota in the policy.
        what: &'static str,
        /// The limit of the quota, in its unit.
        most: f64,
        /// Seconds until the end of the day.
        seconds: u64,
    },
    /// The price of a model's turn or an image is unknown. The value names the missing configuration.
    #[error("the operator limits the tenant's cost, but the maximum cost of this call is unknown: {0}")]
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
