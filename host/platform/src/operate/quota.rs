//! The error of a tenant over quota, and of a store without room.

use flowcell_contract::{Failure, code};
use flowcell_runtime::{QuotaHold, ports::StoreError};

use crate::shape::time;

/// An error of a tenant over quota, or of a store without room.
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
    /// A daily quota is used up, and pauses the tenant's runs.
    #[error(
        "the tenant has reached its limit per day (`{}`), so the run is paused until {}, or until the operator raises the \
         limit; then it goes on by itself", .hold.quota, time(.hold.until)
    )]
    Paused {
        /// The quota, and when it renews.
        hold: QuotaHold,
        /// Seconds until the quota renews.
        seconds: u64,
    },
    /// A call may cost more than a whole daily quota, so waiting for the next day does not help.
    #[error(
        "the call may cost {usd} USD, which is more than the tenant's whole limit per day (`perDay.modelUsd`): {most}"
    )]
    TooCostly {
        /// The maximum cost of the call, in USD.
        usd: f64,
        /// The limit, in USD.
        most: f64,
    },
    /// The price of a model's turn or an image is unknown. The value names the missing configuration.
    #[error("the operator limits the tenant's cost, but the maximum cost of this call is unknown: {0}")]
    NoPrice(&'static str),
    /// The disk of the store has too little free room for new runs.
    #[error(
        "the disk of the store has {} MiB of free room, and new runs need {} MiB; remove old runs with `flowcell runs \
         gc`, or make room", .free >> 20, .least >> 20
    )]
    StoreFull {
        /// The free room in bytes.
        free: u64,
        /// The room in bytes that new runs need.
        least: u64,
    },
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<QuotaError> for Failure {
    fn from(error: QuotaError) -> Failure {
        match error {
            QuotaError::Store(error) => error.into(),
            QuotaError::Paused { ref hold, .. } => hold.failure(error.to_string()),
            error => Failure::new(code::QUOTA_EXCEEDED, error.to_string()),
        }
    }
}
