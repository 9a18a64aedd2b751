//! What a process does, for those who count, trace and log.
//!
//! | room | what it is |
//! |---|---|
//! | observed | what has happened in runs |
//! | [`metrics`] | numbers about what a process does |
//! | telemetry | traces and numbers for a collector, with the feature `otlp` |
//! | projection | the rows of sessions, as they follow from facts |

pub mod metrics;
pub(crate) mod observed;
pub(crate) mod projection;
#[cfg(feature = "otlp")]
pub(crate) mod telemetry;
#[cfg(not(feature = "otlp"))]
#[path = "observe/no_telemetry.rs"]
pub(crate) mod telemetry;
