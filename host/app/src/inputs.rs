//! The inputs of tasks; [`Host::task_inputs`](crate::Host::task_inputs) reads them.

pub use flowcell_runtime::inputs::{AttemptInput, Input, InputDigest, MadeCall, TaskInputs, Window};

/// Bytes of a page of inputs, as JSON text, at most; a page has one attempt at least.
pub const PAGE_BYTES: u64 = 16 << 20;
