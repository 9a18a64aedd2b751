//! The parts of the host that reach other servers, files and programs.
//!
//! * [`egress`] is the egress guard, which every outgoing connection passes.
//! * [`client`] speaks HTTP/1.1 over guarded connections.
//! * [`pattern`] matches the name patterns of grants.
//! * [`http`], [`files`] and [`model`] are capabilities that nodes call.
//! * [`images`] makes images through an endpoint of the operator.
//! * [`credentials`] adds credentials to requests, and renews their tokens.
//! * [`secrets`] adds secrets to requests without showing them to nodes.
//! * [`mcp`] offers the tools of the operator's MCP servers.
//! * [`distribution`] transfers packs from registries and from URLs of files.
//! * [`webhook`] posts events to the operator's URLs.
//! * [`mail`] sends mail through the operator's server.
//! * [`program`] talks to the operator's programs through [`lines`]; [`watchdog`] ends them if this process is killed.
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
//! All async functions run on the caller's tokio runtime, which needs its I/O driver and its timer (`enable_all`). The
//! runtime should live as long as the client. The client ignores proxies of the environment. It always verifies
//! certificates, against the public roots in this binary and those that the operator adds.

pub mod client;
pub mod code;
pub mod credentials;
pub mod distribution;
pub mod egress;
mod endpoint;
pub mod files;
pub mod http;
pub mod images;
pub mod lines;
pub mod mail;
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
