//! The server over HTTP.

pub mod identity;
pub mod spec6;
