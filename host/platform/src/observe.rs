//! What a process does, for those who count, trace and log.
//!
//! | room | what it is |
//! |---|---|
//! | observed | what has happened in runs |
//! | [`metrics`] | numbers about what a process does |
//! | telemetry | traces and numbers for a collector |
//! | projection | the rows of sessions, as they follow from facts |

pub mod metrics;
pub(crate) mod observed;
pub(crate) mod projection;
pub(crate) mod telemetry;
