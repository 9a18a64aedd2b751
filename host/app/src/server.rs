//! The server over HTTP.

pub mod identity;
