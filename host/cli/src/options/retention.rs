//! The arguments of retention.

use std::path::Path;

use clap::Args;
use flowcell::{
    Host,
    retention::{RetentionRule, check},
    tenants::retention::Retention,
};

use crate::cli_error::CliError;

/// The rules for removing old runs, for a process that drives runs.
#[derive(Args, Default)]
pub(crate) struct RetentionArgs {
    /// Remove ended runs by this rule, such as `olderThan=30d` or `flow=report,status=failed,keepLatest=100`, for
    /// tenants whose policy has no rules; may be repeated, and the first rule that fits a run decides
    #[arg(long, value_name = "RULE")]
    retention: Vec<RetentionRule>,
}

impl RetentionArgs {
    /// Returns the retention of a host's store. `flows` is the folder with the flows of all tenants, if this process
    /// starts their triggers. Fails if the rules contradict each other.
    pub(crate) fn of(&self, host: &Host, flows: Option<&Path>) -> Result<Retention, CliError> {
        self.check()?;
        Ok(Retention::new(host, self.retention.clone(), flows.map(Path::to_owned)))
    }

    /// Checks that each rule can be used.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        check(&self.retention).map_err(CliError::wrong)
    }
}
