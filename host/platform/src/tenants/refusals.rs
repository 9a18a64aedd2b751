//! The rejected tokens about which the audit logs have a recent entry.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Minimum milliseconds between two audit entries about the same rejected token.
const MIN_REFUSAL_INTERVAL_MS: u64 = 60_000;
/// Maximum number of rejected tokens whose last audit entry is remembered.
const MAX_REMEMBERED_TOKENS: usize = 1_000;

/// The time of the last audit entry about each rejected token, in milliseconds since 1970.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<Box<str>, u64>>);

impl Refusals {
    /// Returns true if the audit log should get an entry about a rejected token at `now`.
    pub(super) fn is_due(&self, token: &str, now: u64) -> bool {
        let mut noted = self.0.lock();
        if noted.get(token).is_some_and(|last| now < last + MIN_REFUSAL_INTERVAL_MS) {
            return false;
        }
        noted.retain(|_, last| now < *last + MIN_REFUSAL_INTERVAL_MS);
        let fits = noted.len() < MAX_REMEMBERED_TOKENS;
        if fits {
            noted.insert(token.into(), now);
        }
        fits
    }
}
