//! The outside world: what leaves the host leaves it here.
//!
//! * [`egress`] is the one guard that every outgoing connection passes.
//! * [`client`] speaks HTTP/1.1 over guarded connections.
//! * [`http`] is the capability that nodes call.
//!
//! Everything here runs on the caller's tokio runtime, which needs its I/O driver and its timer (`enable_all`).
//! Proxies named in the environment are ignored, and certificates are always verified.

pub mod client;
pub mod code;
pub mod egress;
pub mod http;
