//! Tests node types of the catalog with external effects, in the real program.

mod credentials;
mod ported;
mod requests;
mod secrets;
pub(crate) mod server;
