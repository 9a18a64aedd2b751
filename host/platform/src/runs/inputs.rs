//! The inputs of tasks, which [`Host::task_inputs`](crate::Host::task_inputs) reads.

pub use flowcell_runtime::{
    inputs::{AttemptInput, Input, InputDigest, MadeCall, Reply, TaskInputs, Window},
    paging::PAGE_BYTES,
};
