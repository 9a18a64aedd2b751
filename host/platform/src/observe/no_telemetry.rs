//! Replaces telemetry in a build without the feature `otlp`, and refuses a collector.

use flowcell_contract::{RunId, Tenant};
use flowcell_services::egress::Egress;

use crate::observe::observed::{EndedSpan, Observer};

/// An empty type, since this build cannot reach a collector.
#[derive(Clone)]
pub(crate) enum Telemetry {}

/// An error for any collector's address.
#[derive(Debug, thiserror::Error)]
#[error(
    "this build cannot send traces and metrics to `{0}`: it lacks the feature `otlp`; build it with `--features \
     full`, or remove the address of the collector"
)]
pub(crate) struct TelemetryError(String);

impl Telemetry {
    pub(crate) fn new(url: &str, _: &Egress) -> Result<Telemetry, TelemetryError> {
        Err(TelemetryError(url.to_owned()))
    }

    pub(crate) fn start(&self) -> Result<(), TelemetryError> {
        match *self {}
    }

    pub(crate) async fn stop(&self) {
        match *self {}
    }

    pub(crate) fn link(&self, _: &Tenant, _: &RunId, _: &str) {
        match *self {}
    }
}

impl Observer for Telemetry {
    fn ended(&self, _: &RunId, _: &EndedSpan) {
        match *self {}
    }
}
