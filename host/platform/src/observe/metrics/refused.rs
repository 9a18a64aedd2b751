//! Counts the refused posts of each trigger, for notifications. Only triggers that the server has are counted, so senders
//! cannot add any.

use std::collections::HashMap;

use flowcell_contract::Tenant;
use parking_lot::Mutex;

/// The time in milliseconds in which posts are counted together.
const WINDOW_MS: u64 = 15 * 60_000;
/// The number of posts in this time that are not told yet.
const TOLERATED: u64 = 5;
/// Maximum number of triggers that are counted at the same time. Further ones are not.
const MAX_TRIGGERS: usize = 1_000;

/// A trigger that has refused more posts than are tolerated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedTrigger {
    /// The tenant.
    pub tenant: Tenant,
    /// The name of the flow.
    pub flow: String,
    /// The id of the trigger.
    pub trigger: String,
    /// The name of the outcome of the last post.
    pub outcome: &'static str,
    /// The number of posts.
    pub posts: u64,
}

/// The triggers that have refused posts lately.
#[derive(Default)]
pub(crate) struct RefusedTriggers(Mutex<HashMap<(Tenant, String, String), Window>>);

struct Window {
    began: u64,
    posts: u64,
    outcome: &'static str,
    told: bool,
}

impl RefusedTriggers {
    /// Counts a refused post at `now`, in milliseconds since 1970.
    pub(crate) fn count(&self, tenant: &Tenant, flow: &str, trigger: &str, outcome: &'static str, now: u64) {
        let mut all = self.0.lock();
        let key = (tenant.clone(), flow.to_owned(), trigger.to_owned());
        if all.len() >= MAX_TRIGGERS && !all.contains_key(&key) {
            all.retain(|_, window| now.abs_diff(window.began) < WINDOW_MS);
            if all.len() >= MAX_TRIGGERS {
                return;
            }
        }
        let window = all.entry(key).or_insert(Window { began: now, posts: 0, outcome, told: false });
        if now.abs_diff(window.began) >= WINDOW_MS {
            *window = Window { began: now, posts: 0, outcome, told: false };
        }
        window.posts += 1;
        window.outcome = outcome;
    }

    /// Returns the triggers that have refused more than the tolerated posts, once in each window.
    pub(crate) fn take(&self, now: u64) -> Vec<RefusedTrigger> {
        let mut all = self.0.lock();
        all.retain(|_, window| now.abs_diff(window.began) < WINDOW_MS);
        let due = all.iter_mut().filter(|(_, window)| window.posts > TOLERATED && !window.told);
        due.map(|((tenant, flow, trigger), window)| {
            window.told = true;
            let (tenant, flow, trigger) = (tenant.clone(), flow.clone(), trigger.clone());
            RefusedTrigger { tenant, flow, trigger, outcome: window.outcome, posts: window.posts }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_is_told_once_in_a_window_and_the_number_of_triggers_is_bounded() {
        let refused = RefusedTriggers::default();
        let acme = Tenant::from("acme");
        for at in 0..=TOLERATED {
            assert_eq!(refused.take(at), []);
            refused.count(&acme, "pay", "hook", "unsigned", at);
        }
        let told = refused.take(10);
        assert_eq!((told.len(), told[0].posts, told[0].trigger.as_str()), (1, TOLERATED + 1, "hook"));
        refused.count(&acme, "pay", "hook", "unsigned", 11);
        assert_eq!(refused.take(12), []);
        for index in 0..2 * MAX_TRIGGERS {
            refused.count(&acme, "pay", &index.to_string(), "later", 20);
        }
        assert_eq!(refused.0.lock().len(), MAX_TRIGGERS);
        assert_eq!(refused.take(WINDOW_MS + 20), []);
        assert!(refused.0.lock().is_empty());
    }
}
