//! Random graphs against a naive reference, and the driver under virtual time.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod driving;
mod graphs;
mod readiness;
mod reference;
