//! Components: the only crate that knows wasmtime.
//!
//! An [`Engine`] takes packs in and runs attempts at their node types, each in a fresh instance of precompiled code that
//! can do nothing but what its manifest asks for, within [`Limits`]. It is the runtime's
//! [`NodeRunner`](flowcell_contract::NodeRunner).

mod answer;
mod bindings;
mod cache;
mod code;
mod compiler;
mod config;
mod engine;
mod failure;
mod limits;
mod link;
mod machine;
mod pack;
mod room;
mod run;
mod sandbox;
mod schema;
mod shelf;
mod text;
mod ticker;
mod trap;
mod turns;

/// What runs the components.
pub const RUNTIME: &str = "wasmtime 48";

pub use compiler::{Compiler, compile};
pub use config::Config;
pub use engine::Engine;
pub use limits::Limits;
pub use pack::{Inspection, Pack, PackError, Refusal, digest, embed, inspect, is_reserved};
pub use room::{Place, Room};
