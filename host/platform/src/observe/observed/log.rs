//! Logs the start and end of runs, runs that need a person, and failed attempts. The log contains no more than the
//! spans.

use flowcell_contract::{RunId, Tenant};

use super::{EndedSpan, Observer, SpanSubject};

/// Writes the spans of runs to the log.
pub(crate) struct Log;

impl Observer for Log {
    fn started(&self, tenant: &Tenant, run: &RunId, flow: &str) {
        tracing::info!(target: "flowcell::runs", tenant = tenant.as_str(), run = run.as_str(), flow, "run started");
    }

    fn needs_attention(&self, tenant: &Tenant, run: &RunId, reason: &str) {
        let (tenant, run) = (tenant.as_str(), run.as_str());
        tracing::warn!(target: "flowcell::runs", tenant, run, reason, "run needs attention");
    }

    fn paused(&self, tenant: &Tenant, run: &RunId, quota: &str, until: u64) {
        let (tenant, run) = (tenant.as_str(), run.as_str());
        tracing::info!(target: "flowcell::runs", tenant, run, quota, until, "run paused");
    }

    fn ended(&self, _root: &RunId, ended: &EndedSpan) {
        let (tenant, run) = (ended.tenant.as_str(), ended.run.as_str());
        let (ms, outcome) = (ended.ended - ended.began, ended.outcome);
        let error = ended.error.as_deref().unwrap_or_default();
        match &ended.what {
            SpanSubject::Run { flow } => {
                tracing::info!(target: "flowcell::runs", tenant, run, flow, outcome, error, ms, "run ended");
            }
            SpanSubject::Attempt { task, node_type } if !error.is_empty() => {
                let (task, attempt) = (task.task.as_str(), task.attempt);
                tracing::info!(
                    target: "flowcell::runs", tenant, run, task, attempt, node_type, outcome, error, ms, "attempt failed"
                );
            }
            _ => {}
        }
    }
}
