//! Work on threads that it may block.

use std::sync::Arc;

use parking_lot::Mutex;

/// Runs work on a thread that it may block. The work continues if the caller drops the future. Returns the reason if the
/// work has panicked.
///
/// Tokio compiles about fifty functions for each type of task. All work here is boxed, so that it has one type.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let result = Arc::new(Mutex::new(None));
    let slot = result.clone();
    let work: Box<dyn FnOnce() + Send> = Box::new(move || {
        let done = work();
        *slot.lock() = Some(done);
    });
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
    let done = result.lock().take();
    done.ok_or_else(|| "the work ended without a result".to_owned())
}
