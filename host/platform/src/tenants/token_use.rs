//! The last use of each token, and warnings before a token expires.
//!
//! A request only notes the use in memory. [`TokenUses::flush`] writes it to the store, at most once in
//! [`MIN_WRITE_INTERVAL_MS`] for each token.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{TOKEN, TenantError, Tenants};

/// The kind of the documents with the last use of tokens, by their ids.
pub(super) const TOKEN_USE: &str = "token-use";
/// Minimum milliseconds between two writes of the last use of a token.
pub(super) const MIN_WRITE_INTERVAL_MS: u64 = 60_000;
/// Milliseconds before the end of a token from which on each use of it gives a warning, see
/// [`MIN_WARNING_INTERVAL_MS`].
pub(super) const EXPIRY_WARNING_MS: u64 = 7 * DAY_MS;
/// Milliseconds after its last use for which a token counts as in use, for the metric of the first expiry.
pub(super) const IN_USE_MS: u64 = 7 * DAY_MS;
/// Minimum milliseconds between two warnings of a process about the same token.
const MIN_WARNING_INTERVAL_MS: u64 = DAY_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
const HOUR_MS: u64 = 3_600 * 1_000;

/// The stored last use of a token, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LastUse {
    pub(super) at: u64,
}

/// The uses of tokens that this process has seen.
#[derive(Default)]
pub(super) struct TokenUses(Mutex<HashMap<Box<str>, Seen>>);

#[derive(Clone, Copy, Default)]
struct Seen {
    latest: u64,
    written: u64,
    warned: u64,
}

impl TokenUses {
    /// Notes the use of a valid token. If it expires soon, logs a warning, at most once a day.
    pub(super) fn note(&self, id: &str, tenant: &str, expires: Option<u64>, now: u64) {
        let mut uses = self.0.lock();
        if !uses.contains_key(id) {
            uses.insert(id.into(), Seen::default());
        }
        let Some(seen) = uses.get_mut(id) else { return };
        seen.latest = seen.latest.max(now);
        let Some(warning) = expiry_warning(expires, now) else { return };
        if seen.warned == 0 || now >= seen.warned + MIN_WARNING_INTERVAL_MS {
            seen.warned = now;
            tracing::warn!(target: "flowcell::tenants", token = id, tenant, "a token that is in use {warning}");
        }
    }

    /// Writes the uses that are due. A use that another process has written at the same time counts as written.
    pub(super) fn flush(&self, tenants: &Tenants) -> Result<(), TenantError> {
        let is_due = |seen: &Seen| {
            seen.latest > seen.written && (seen.written == 0 || seen.latest >= seen.written + MIN_WRITE_INTERVAL_MS)
        };
        let due: Vec<_> =
            self.0.lock().iter().filter(|(_, seen)| is_due(seen)).map(|(id, seen)| (id.clone(), seen.latest)).collect();
        for (id, at) in due {
            let stored = tenants.get::<LastUse>(TOKEN_USE, &id)?;
            // The token may have been removed with its tenant.
            let exists = tenants.get::<serde_json::Value>(TOKEN, &id)?.is_some();
            if exists && stored.is_none_or(|(last, _)| at >= last.at + MIN_WRITE_INTERVAL_MS) {
                tenants.put(TOKEN_USE, &id, Some(&LastUse { at }), stored.map_or(0, |(_, version)| version))?;
            }
            if let Some(seen) = self.0.lock().get_mut(&id) {
                seen.written = at;
            }
        }
        Ok(())
    }

    /// Forgets a removed token.
    pub(super) fn forget(&self, id: &str) {
        self.0.lock().remove(id);
    }
}

/// Returns `expires in 3 days` for a token that expires within [`EXPIRY_WARNING_MS`], and `has expired` afterwards.
pub(super) fn expiry_warning(expires: Option<u64>, now: u64) -> Option<String> {
    let left = expires?.checked_sub(now).filter(|left| *left > 0);
    let plural = |count: u64, unit: &str| format!("expires in {count} {unit}{}", if count == 1 { "" } else { "s" });
    match left {
        None => Some("has expired".to_owned()),
        Some(left) if left > EXPIRY_WARNING_MS => None,
        Some(left) if left >= DAY_MS => Some(plural(left / DAY_MS, "day")),
        Some(left) if left >= HOUR_MS => Some(plural(left / HOUR_MS, "hour")),
        Some(_) => Some("expires within an hour".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_expires_soon_is_warned_of() {
        let warning = |left: u64| expiry_warning(Some(1_000 + left), 1_000);
        assert_eq!(expiry_warning(None, 1_000), None);
        assert_eq!(warning(EXPIRY_WARNING_MS + 1), None);
        let told = [
            (EXPIRY_WARNING_MS, "expires in 7 days"),
            (DAY_MS, "expires in 1 day"),
            (DAY_MS - 1, "expires in 23 hours"),
            (HOUR_MS - 1, "expires within an hour"),
            (0, "has expired"),
        ];
        for (left, text) in told {
            assert_eq!(warning(left).as_deref(), Some(text));
        }
        assert_eq!(expiry_warning(Some(0), 1_000).as_deref(), Some("has expired"));
    }
}
