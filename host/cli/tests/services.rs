//! Tests the operator's services in the real program: a component calls them, and an endpoint makes images over HTTP.

mod answers;
pub(crate) mod fake;
mod images;
mod project;
mod simulated;
