//! The inputs of tasks; [`Host::task_inputs`](crate::Host::task_inputs) reads them.

pub use flowcell_runtime::{
    inputs::{AttemptInput, Input, InputDigest, MadeCall, TaskInputs, Window},
    paging::PAGE_BYTES,
};
