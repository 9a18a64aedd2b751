//! The clock that interrupts guests. It advances wasmtime's epoch while attempts run, and sleeps otherwise.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, Thread},
    time::Duration,
};

use wasmtime::EngineWeak;

/// The time between two interrupts. If other guests compute all the time, an attempt waits about this long until it may
/// compute.
const TICK: Duration = Duration::from_millis(2);
/// After this number of ticks without an attempt, the ticker's thread goes to sleep. It does not sleep earlier, because
/// a stream of short attempts would wake it again and again.
const IDLE_TICKS: u32 = 100;

/// The ticker. It starts its thread when the first attempt begins.
pub(crate) struct Ticker {
    engine: EngineWeak,
    shared: Arc<Shared>,
    thread: OnceLock<Option<Thread>>,
}

#[derive(Default)]
struct Shared {
    in_flight: AtomicUsize,
    parked: AtomicBool,
    closed: AtomicBool,
}

/// Counts a running attempt. The ticker runs while any such value exists.
pub(crate) struct RunningAttempt(Arc<Shared>);

impl Ticker {
    pub(crate) fn new(engine: &wasmtime::Engine) -> Ticker {
        Ticker { engine: engine.weak(), shared: Arc::default(), thread: OnceLock::new() }
    }

    /// Counts a running attempt until the returned value is dropped.
    pub(crate) fn enter(&self) -> RunningAttempt {
        self.shared.in_flight.fetch_add(1, SeqCst);
        let thread = self.thread.get_or_init(|| self.start());
        // The thread announces that it parks before it reads the count a last time. So either this code sees the
        // announcement, or the thread sees the count.
        if self.shared.parked.load(SeqCst)
            && self.shared.parked.swap(false, SeqCst)
            && let Some(thread) = thread
        {
            thread.unpark();
        }
        RunningAttempt(self.shared.clone())
    }

    fn start(&self) -> Option<Thread> {
        let (engine, shared) = (self.engine.clone(), self.shared.clone());
        let spawned = thread::Builder::new().name("flowcell-ticker".into()).spawn(move || tick(&engine, &shared));
        match spawned {
            Ok(handle) => Some(handle.thread().clone()),
            Err(error) => {
                tracing::error!("cannot start the ticker thread, so guests that spin cannot be interrupted: {error}");
                None
            }
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.closed.store(true, SeqCst);
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, SeqCst);
    }
}

fn tick(engine: &EngineWeak, shared: &Shared) {
    let mut idle = 0;
    while !shared.closed.load(SeqCst) {
        thread::sleep(TICK);
        let Some(engine) = engine.upgrade() else { return };
        engine.increment_epoch();
        idle = if shared.in_flight.load(SeqCst) == 0 { idle + 1 } else { 0 };
        if idle > IDLE_TICKS {
            park(shared);
            idle = 0;
        }
    }
}

fn park(shared: &Shared) {
    shared.parked.store(true, SeqCst);
    while shared.parked.load(SeqCst) && shared.in_flight.load(SeqCst) == 0 && !shared.closed.load(SeqCst) {
        thread::park();
    }
    shared.parked.store(false, SeqCst);
}
