//! The rejected tokens and accounts that have a recent entry in the audit logs.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Minimum milliseconds between two audit entries about the same rejected token or account.
const MIN_REFUSAL_INTERVAL_MS: u64 = 60_000;
/// Maximum number of rejected tokens whose last audit entry is remembered, and of accounts.
const MAX_REMEMBERED: usize = 1_000;

/// The last audit entries about rejected tokens and accounts. They are apart, because a stranger may have as many accounts
/// at a public issuer as it likes, and must not hide the entries about tokens.
#[derive(Default)]
pub(super) struct Refusals {
    tokens: Mutex<Noted>,
    accounts: Mutex<Noted>,
}

/// The times of the last audit entries, in milliseconds since 1970.
#[derive(Default)]
struct Noted(HashMap<Box<str>, u64>);

impl Refusals {
    /// Returns true if the audit log should get an entry about a rejected token at `now`.
    pub(super) fn is_due(&self, token: &str, now: u64) -> bool {
        self.tokens.lock().is_due(token, now)
    }

    /// Returns true if the audit log should get an entry about a rejected account at `now`.
    pub(super) fn is_due_for_account(&self, name: &str, now: u64) -> bool {
        self.accounts.lock().is_due(name, now)
    }
}

impl Noted {
    fn is_due(&mut self, name: &str, now: u64) -> bool {
        if self.0.get(name).is_some_and(|last| now < last + MIN_REFUSAL_INTERVAL_MS) {
            return false;
        }
        self.0.retain(|_, last| now < *last + MIN_REFUSAL_INTERVAL_MS);
        let fits = self.0.len() < MAX_REMEMBERED;
        if fits {
            self.0.insert(name.into(), now);
        }
        fits
    }
}
