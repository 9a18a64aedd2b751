//! Runs WebAssembly components. No other crate depends on wasmtime.
//!
//! An [`Engine`] loads packs and runs attempts at their node types. Each attempt gets a fresh instance of precompiled
//! code, within [`Limits`]. The instance can use only the capabilities that its manifest asks for. The engine
//! implements the runtime's [`NodeRunner`](flowcell_contract::NodeRunner).

mod answer;
mod append_only_map;
mod bindings;
mod cache;
mod code;
mod compiler;
mod config;
mod cost;
mod end_runtime;
mod engine;
mod failure;
mod fair_scheduler;
mod fair_semaphore;
mod granted;
mod limits;
mod link;
mod machine;
mod pack;
mod profile;
mod run;
mod sandbox;
mod schema;
mod text;
mod ticker;
mod trap;

/// The name and major version of the WebAssembly runtime.
pub const RUNTIME: &str = "wasmtime 48";

pub use compiler::{Compiler, compile};
pub use config::Config;
pub use cost::{Cost, Measured};
pub use end_runtime::end_runtime;
pub use engine::Engine;
pub use fair_semaphore::{FairSemaphore, Permit};
pub use limits::Limits;
pub use pack::{Inspection, Pack, PackError, PackErrorKind, digest, embed, embed_readme, inspect, is_reserved};
pub use profile::Profile;
