//! The clock that interrupts guests: it advances the epoch while attempts are in flight, and sleeps otherwise.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, Thread},
    time::Duration,
};

use wasmtime::EngineWeak;

/// The longest that a guest runs without yielding, once it has run as long. Whoever waits for its turn beside guests that spin
/// waits so long at each node.
const TICK: Duration = Duration::from_millis(2);
/// Idle ticks before the thread parks, so that a stream of short attempts does not wake it again and again.
const IDLE_TICKS: u32 = 100;

/// Starts its thread when the first attempt begins.
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

/// Keeps the ticker running.
pub(crate) struct InFlight(Arc<Shared>);

impl Ticker {
    pub(crate) fn new(engine: &wasmtime::Engine) -> Ticker {
        Ticker { engine: engine.weak(), shared: Arc::default(), thread: OnceLock::new() }
    }

    /// Counts an attempt in, until the guard is dropped.
    pub(crate) fn enter(&self) -> InFlight {
        self.shared.in_flight.fetch_add(1, SeqCst);
        let thread = self.thread.get_or_init(|| self.start());
        // The thread announces that it parks before it looks at the count a last time, so one of the two sides sees
        // the other.
        if self.shared.parked.load(SeqCst)
            && self.shared.parked.swap(false, SeqCst)
            && let Some(thread) = thread
        {
            thread.unpark();
        }
        InFlight(self.shared.clone())
    }

    fn start(&self) -> Option<Thread> {
        let (engine, shared) = (self.engine.clone(), self.shared.clone());
        let spawned = thread::Builder::new().name("flowcell-ticker".into()).spawn(move || tick(&engine, &shared));
        match spawned {
            Ok(handle) => Some(handle.thread().clone()),
            Err(error) => {
                tracing::error!("no ticker thread, guests that spin cannot be interrupted: {error}");
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

impl Drop for InFlight {
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
