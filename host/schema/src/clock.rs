//! The clock that limits checks.

use std::time::Duration;

/// Returns the CPU time that this thread has used. A limit on it means the same on a busy machine as on an idle one.
#[cfg(unix)]
pub fn thread_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(used.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(used.tv_nsec).unwrap_or_default())
}

/// Returns the time since the first call, because this system does not tell the CPU time of a thread.
#[cfg(not(unix))]
pub fn thread_time() -> Duration {
    static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(std::time::Instant::now).elapsed()
}
