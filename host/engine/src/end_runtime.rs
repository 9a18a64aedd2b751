//! Ends a tokio runtime.

use std::time::Duration;

use tokio::runtime::{Handle, Runtime};

/// The maximum time that [`end_runtime`] waits for the threads of a runtime.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// Drops the tasks of a runtime and ends its threads. Waits at most 100 ms for work that is still on a thread. On a
/// thread that belongs to a runtime, it does not wait.
///
/// `Runtime::shutdown_background` detaches the threads while they end. Then glibc may read the memory of a thread that
/// is gone, and the process crashes (<https://sourceware.org/bugzilla/show_bug.cgi?id=19951>).
pub fn end_runtime(runtime: Runtime) {
    match Handle::try_current() {
        Ok(_) => runtime.shutdown_background(),
        Err(_) => runtime.shutdown_timeout(MAX_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn the_threads_of_a_runtime_have_ended() {
        const THREADS: usize = 16;
        const WORKERS: usize = 2;
        let ended = Arc::new(AtomicUsize::new(0));
        let count = ended.clone();
        let stop = move || _ = count.fetch_add(1, Ordering::SeqCst);
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).on_thread_stop(stop).build().unwrap();
        let together = Arc::new(Barrier::new(THREADS));
        runtime.block_on(async {
            let work = || {
                let together = together.clone();
                tokio::task::spawn_blocking(move || _ = together.wait())
            };
            for ended in (0..THREADS).map(|_| work()).collect::<Vec<_>>() {
                ended.await.unwrap();
            }
        });
        assert_eq!(ended.load(Ordering::SeqCst), 0);
        end_runtime(runtime);
        assert_eq!(ended.load(Ordering::SeqCst), THREADS + WORKERS);
    }

    #[test]
    fn a_runtime_ends_on_a_thread_of_its_own() {
        let runtime = || Builder::new_current_thread().build().unwrap();
        let inner = runtime();
        runtime().block_on(async { end_runtime(inner) });
    }
}
