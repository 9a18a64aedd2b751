//! Observes a process: metrics, traces and logs.
//!
//! | module | contents |
//! |---|---|
//! | observed | the spans of runs, derived from their events |
//! | [`metrics`] | metrics of a process |
//! | telemetry | traces and metrics for a collector, with the feature `otlp` |
//! | [`relay`] | shows live events to subscribers in other processes |
//! | projection | the rows of sessions, derived from facts |

pub mod metrics;
#[cfg(not(feature = "otlp"))]
pub(crate) mod no_telemetry;
pub(crate) mod observed;
pub(crate) mod projection;
pub mod relay;
#[cfg(feature = "otlp")]
pub(crate) mod telemetry;

#[cfg(not(feature = "otlp"))]
pub(crate) use no_telemetry as telemetry;
