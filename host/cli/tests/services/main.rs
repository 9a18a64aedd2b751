//! Tests the operator's services in the real program: a component calls them, and an endpoint makes images over HTTP.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod answers;
mod fake;
#[path = "../guests/mod.rs"]
mod guests;
mod images;
#[path = "../kit/mod.rs"]
mod kit;
mod project;
mod simulated;
