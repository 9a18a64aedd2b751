//! Tests the supervisor's timers when the clock changes.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flowcell_runtime::{memory::SystemTimers, ports::Timers};
use tokio::time::timeout;

const HOUR: u64 = 3_600_000;
const BEGIN: u64 = 1_000 * HOUR;

/// Returns timers whose wall clock the test sets. Tokio's time passes only while all tokio tasks wait.
fn timers() -> (Arc<AtomicU64>, SystemTimers) {
    let wall = Arc::new(AtomicU64::new(BEGIN));
    let shown = wall.clone();
    (wall, SystemTimers::with_wall_clock(Arc::new(move || shown.load(Ordering::Relaxed))))
}

#[tokio::test(start_paused = true)]
async fn r30_a_clock_that_is_set_ahead_wakes_a_timer_within_seconds() {
    let (wall, timers) = timers();
    let mut waiting = pin!(timers.wait(BEGIN + HOUR));
    assert!(timeout(Duration::from_secs(30), &mut waiting).await.is_err(), "it is not due");
    // As after a suspend of the machine, the monotonic clock has not advanced.
    wall.store(BEGIN + HOUR, Ordering::Relaxed);
    timeout(Duration::from_secs(2), &mut waiting).await.unwrap();
    assert!(timers.now() >= BEGIN + HOUR);
}

#[tokio::test(start_paused = true)]
async fn r30_a_clock_that_is_set_back_delays_no_timer() {
    let (wall, timers) = timers();
    wall.store(0, Ordering::Relaxed);
    assert!(timers.now() >= BEGIN);
    let waited = tokio::time::Instant::now();
    timers.wait(timers.now() + 10_000).await;
    assert!(waited.elapsed() <= Duration::from_secs(11), "{:?}", waited.elapsed());
}
