//! Flowcell runs flows whose nodes are sandboxed WebAssembly components.
//!
//! This crate re-exports the library `flowcell-platform` as `flowcell`, for programs that embed Flowcell.
//! `default-features = false` leaves out the command line and the server:
//!
//! ```
//! use flowcell::{Host, RunOptions, Source};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::builder().build()?;
//! let text = "flow: { name: hello }\nnodes: [{ id: greet, type: control.noop, input: { value: Hello } }]".into();
//! let flow = host.load_source(Source { name: "hello.yaml".into(), text })?;
//! let runner = host.runner(&flow, RunOptions::default())?;
//! let result = tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(runner.run());
//! assert_eq!(result.outputs.to_text(), r#"{"greet":{"value":"Hello"}}"#);
//! # Ok(())
//! # }
//! ```

pub use flowcell_platform::*;
#[cfg(all(unix, feature = "cli"))]
pub use flowcell_server as server;
