//! Runs work that blocks its thread, on any thread.

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task,
};

/// Runs work that blocks. On a tokio runtime with several threads, the other tokio tasks of this thread move to another
/// thread meanwhile.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match multi_thread_runtime() {
        Some(_) => task::block_in_place(work),
        None => work(),
    }
}

/// Returns the tokio runtime of this thread if it has several threads, so that one of them may block.
pub fn multi_thread_runtime() -> Option<Handle> {
    Handle::try_current().ok().filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}
