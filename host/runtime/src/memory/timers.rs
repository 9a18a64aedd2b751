//! Timers that use the clocks of this machine.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::{limits::CLOCK_RECHECK_MS, ports::Timers};

/// A clock that shows the later of two times: the present time of the wall clock, and the time that the wall clock had
/// at the start plus the monotonic time since then. So setting the wall clock back delays no timer, and setting it
/// ahead wakes the timers that are due by then. While the machine is suspended, the monotonic clock stops and the wall
/// clock continues.
#[derive(Clone)]
pub struct SystemTimers {
    started: Instant,
    started_ms: u64,
    wall: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Default for SystemTimers {
    fn default() -> SystemTimers {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        SystemTimers::with_wall_clock(Arc::new(now))
    }
}

impl SystemTimers {
    /// Creates timers with another wall clock, in milliseconds since 1970.
    pub fn with_wall_clock(wall: Arc<dyn Fn() -> u64 + Send + Sync>) -> SystemTimers {
        SystemTimers { started: Instant::now(), started_ms: wall(), wall }
    }
}

impl Timers for SystemTimers {
    fn now(&self) -> u64 {
        let steady = self.started_ms + self.started.elapsed().as_millis() as u64;
        steady.max((self.wall)())
    }

    fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
        let timers = self.clone();
        Box::pin(async move {
            loop {
                let left = due.saturating_sub(timers.now());
                tokio::time::sleep(Duration::from_millis(left.min(CLOCK_RECHECK_MS))).await;
                if left <= CLOCK_RECHECK_MS {
                    return;
                }
            }
        })
    }
}
