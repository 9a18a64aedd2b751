//! The outside world: what leaves the host leaves it here.
//!
//! * [`egress`] is the one guard that every outgoing connection passes.
//! * [`client`] speaks HTTP/1.1 over guarded connections.
//! * [`pattern`] is how grants name many things at once.
//! * [`http`], [`files`] and [`model`] are the capabilities that nodes call.
//! * [`images`] are made by an endpoint of the operator's.
//! * [`secrets`] are what the host adds to requests, and no node sees.
//! * [`mcp`] is what the operator's servers of tools offer.
//! * [`distribution`] is how packs travel: registries, and files behind URLs.
//! * [`webhook`] posts what happens to the operator's URLs.
//! * [`program`] speaks with the operator's programs, in [`lines`]; [`watchdog`] ends them if this process is killed.
//!
//! ```
//! # use std::sync::Arc;
//! # use flowcell_contract::{Blobs, Capability, Failure};
//! # use flowcell_services::{client::Client, egress::{Egress, EgressPolicy}, http::{self, HttpCapability}};
//! # fn capabilities(listed: &[String], blobs: Arc<dyn Blobs>) -> Result<(&'static str, Arc<dyn Capability>), Failure> {
//! let wrong = |why: String| Failure::new("invalid_input", why);
//! let allow_private = listed.iter().map(|range| range.parse()).collect::<Result<_, _>>().map_err(wrong)?;
//! let egress = Egress::new(EgressPolicy { allow_private, ..EgressPolicy::default() })?;
//! let http = HttpCapability::new(Client::new(egress), blobs);
//! Ok((http::INTERFACE, Arc::new(http)))
//! # }
//! ```
//!
//! Everything here runs on the caller's tokio runtime, which needs its I/O driver and its timer (`enable_all`) and
//! should live as long as the client. Proxies named in the environment are ignored, and certificates are always
//! verified, against the public roots in this binary and those that the operator adds.

pub mod client;
pub mod code;
pub mod distribution;
pub mod egress;
mod endpoint;
pub mod files;
pub mod http;
pub mod images;
pub mod lines;
pub mod mcp;
pub mod model;
pub mod pattern;
mod preview;
mod process_group;
pub mod program;
mod redaction;
mod secret;
pub mod secrets;
mod sse;
pub mod watchdog;
pub mod webhook;
