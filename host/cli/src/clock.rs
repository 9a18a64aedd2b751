//! The time of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the present time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
