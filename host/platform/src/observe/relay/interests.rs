//! The runs that other processes follow.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::Key;

/// The time after which an interest ends that is not announced again.
pub(super) const INTEREST_TIME: Duration = Duration::from_secs(30);
/// The maximum number of interests that a process remembers. Further ones are ignored.
pub(super) const MAX_INTERESTS: usize = 16_384;

/// The interest of other processes in a run.
pub(super) struct Interest {
    /// The time at which the interest ends, and the number of the first event that is not read yet.
    announced: Mutex<(Instant, u64)>,
    is_attached: AtomicBool,
}

impl Interest {
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.announced.lock().0 > now
    }

    /// Returns whether another process has not read the event with this number yet.
    pub(super) fn includes(&self, seq: u64, now: Instant) -> bool {
        let (until, next) = *self.announced.lock();
        until > now && seq >= next
    }

    /// Returns true for the first caller, until [`Interest::detach`] is called.
    pub(super) fn attach(&self) -> bool {
        !self.is_attached.swap(true, Ordering::AcqRel)
    }

    pub(super) fn detach(&self) {
        self.is_attached.store(false, Ordering::Release);
    }
}

/// The runs that other processes follow.
#[derive(Default)]
pub(super) struct Interests(Mutex<HashMap<Key, Arc<Interest>>>);

impl Interests {
    /// Records an announcement.
    pub(super) fn record(&self, key: &Key, next: u64, now: Instant) {
        let announced = (now + INTEREST_TIME, next);
        let mut all = self.0.lock();
        if let Some(interest) = all.get(key) {
            *interest.announced.lock() = announced;
        } else if all.len() < MAX_INTERESTS {
            let interest = Interest { announced: Mutex::new(announced), is_attached: AtomicBool::new(false) };
            all.insert(key.clone(), Arc::new(interest));
        }
    }

    /// Returns the interest in a run, unless it has ended.
    pub(super) fn current(&self, key: &Key, now: Instant) -> Option<Arc<Interest>> {
        self.0.lock().get(key).filter(|interest| interest.is_current(now)).cloned()
    }

    /// Removes the interests that have ended. Those of runs with a sender stay, so that no run gets a second one.
    pub(super) fn remove_expired(&self, now: Instant) {
        let is_needed =
            |interest: &Arc<Interest>| interest.is_current(now) || interest.is_attached.load(Ordering::Acquire);
        self.0.lock().retain(|_, interest| is_needed(interest));
    }
}
