//! A run tree in this process: the entries that wait for a commit, the claims, and what its invocation has to do next.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{
    limits::{FLUSH_FACTS, FLUSH_MS},
    ports::{Durable, Entry, Unit},
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use tokio::sync::{Notify, oneshot};

use crate::{
    state::Decision,
    wire::{Head, Mail},
};

/// The tenant and the top run of a tree.
pub(crate) type Key = (Tenant, RunId);

/// The characters of a tenant's name that a key has in another form: the separator of keys, and the mark of such forms.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

/// Returns the key of an object: of a run tree, or with the name of a flow, of its state. Ids and names may have a `/`,
/// and so may tenants of a program that embeds Flowcell.
pub(crate) fn object_key(tenant: &Tenant, name: &str) -> String {
    format!("{}/{name}", utf8_percent_encode(tenant.as_str(), ESCAPED))
}

/// Parses the key of the objects of a run tree.
pub(crate) fn parse_key(key: &str) -> Option<Key> {
    let (tenant, top) = key.split_once('/')?;
    let tenant = percent_decode_str(tenant).decode_utf8().ok()?;
    Some((Tenant::from(&*tenant), RunId::from(top)))
}

/// The maximum bytes of the units of a commit, unless one unit is larger. The cluster accepts messages of 32 MiB.
const MAX_COMMIT_BYTES: u64 = 8 << 20;

/// The pause before a tree is offered again that was offered in vain.
const OFFER_AGAIN: Duration = Duration::from_secs(1);

/// An entry that waits for a commit.
pub(crate) struct Queued {
    pub(crate) entry: Entry,
    pub(crate) _unsettled: Unsettled,
    /// The keys of state that other runs wait for until the entry is durable or refused.
    pub(crate) _decision: Option<Decision>,
}

/// The number of entries that are neither durable nor refused.
#[derive(Default)]
pub(crate) struct Pending {
    count: Mutex<usize>,
    none: Condvar,
}

/// Counts an entry until it is durable or refused.
pub(crate) struct Unsettled(Arc<Pending>);

impl Pending {
    pub(crate) fn count(self: &Arc<Pending>) -> Unsettled {
        *self.count.lock() += 1;
        Unsettled(self.clone())
    }

    /// Waits until all entries are durable or refused. Returns false if the time is over before.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let mut count = self.count.lock();
        !self.none.wait_while_for(&mut count, |count| *count > 0, patience).timed_out()
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

/// A run tree in this process.
pub(crate) struct Tree {
    pub(crate) key: Key,
    /// Wakes the handler of the invocation.
    pub(crate) changed: Notify,
    state: Mutex<TreeState>,
}

#[derive(Default)]
pub(crate) struct TreeState {
    /// The number of the invocation that this process handles now.
    pub(crate) session: Option<u64>,
    /// True from the request for a first invocation until it has begun.
    pub(crate) is_asked: bool,
    /// The number of the last request for an invocation, or of the invocation that made it.
    pub(crate) asked: u64,
    /// The runs with a driver in this process.
    pub(crate) drivers: HashSet<RunId>,
    /// The number of offers that a supervisor holds.
    pub(crate) offers: usize,
    /// True while the tree waits for a supervisor.
    pub(crate) is_offered: bool,
    /// The time before which the tree is not offered again.
    pub(crate) offer_after: Option<Instant>,
    /// The claims that wait for an invocation.
    pub(crate) claims: HashMap<String, (RunId, oneshot::Sender<()>)>,
    /// The drivers to stop when the invocation is lost.
    pub(crate) durables: Vec<Weak<Durable>>,
    /// True if the top run did not exist when a driver of this process claimed it.
    pub(crate) is_new: bool,
    /// The heads of runs, as of the last commit.
    pub(crate) heads: HashMap<RunId, Head>,
    /// Durable units that the object's state may not show yet.
    tail: HashMap<RunId, Vec<Arc<Unit>>>,
    /// The entries that wait for a commit, in order.
    pub(crate) queue: Vec<Queued>,
    facts: usize,
    pub(crate) is_forced: bool,
    pub(crate) since: Option<Instant>,
    /// The outcomes of messages that wait for a commit.
    pub(crate) outcomes: Vec<(u64, String)>,
    /// The messages that wait for the driver.
    pub(crate) mail: VecDeque<Mail>,
    /// True while a task passes the messages to the driver, one after another.
    pub(crate) is_delivering: bool,
    /// The number of the last message that has arrived here.
    pub(crate) taken: u64,
}

impl Tree {
    pub(crate) fn new(key: Key) -> Arc<Tree> {
        Arc::new(Tree { key, changed: Notify::new(), state: Mutex::default() })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, TreeState> {
        self.state.lock()
    }

    /// Queues an entry. Returns true if no invocation takes it unless the caller asks for one. Drops the entry of a driver
    /// that was refused, because it may follow an entry that is lost.
    pub(crate) fn push(&self, queued: Queued) -> bool {
        let entry = &queued.entry;
        let mut state = self.lock();
        if entry.durable.is_refused() {
            return false;
        }
        let is_known = state.durables.iter().any(|known| known.as_ptr() == Arc::as_ptr(&entry.durable));
        if !is_known {
            state.durables.retain(|known| known.strong_count() > 0);
            state.durables.push(Arc::downgrade(&entry.durable));
        }
        state.is_forced |= entry.force || entry.writes.is_some();
        state.facts += entry.unit.facts.len();
        state.since.get_or_insert_with(Instant::now);
        state.queue.push(queued);
        let (wakes, has_session) = (state.is_forced || state.queue.len() == 1, state.session.is_some());
        drop(state);
        if wakes && has_session {
            self.changed.notify_one();
        }
        !has_session
    }

    /// Makes the queued entries due. Returns true if no invocation takes them unless the caller asks for one.
    pub(crate) fn force(&self) -> bool {
        let mut state = self.lock();
        if state.queue.is_empty() {
            return false;
        }
        state.is_forced = true;
        let has_session = state.session.is_some();
        drop(state);
        self.changed.notify_one();
        !has_session
    }

    /// Returns the durable units of a run that the object's state may not show yet.
    pub(crate) fn tail(&self, run: &RunId) -> Vec<Arc<Unit>> {
        self.lock().tail.get(run).cloned().unwrap_or_default()
    }

    /// Returns true if nothing in this process needs the tree.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.session.is_none()
            && !state.is_asked
            && state.drivers.is_empty()
            && state.offers == 0
            && state.claims.is_empty()
            && state.queue.is_empty()
    }
}

impl TreeState {
    /// Returns true if the queued entries are due at this time.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.queue.is_empty()
            && (self.is_forced || self.facts >= FLUSH_FACTS || self.due_at().is_some_and(|at| at <= now))
    }

    /// Returns the time at which the queued entries are due.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.since.map(|since| since + Duration::from_millis(FLUSH_MS))
    }

    /// Takes all queued entries.
    pub(crate) fn take_queue(&mut self) -> Vec<Queued> {
        (self.is_forced, self.facts, self.since) = (false, 0, None);
        std::mem::take(&mut self.queue)
    }

    /// Takes the first queued entries, as many as one commit may have. The others stay due.
    pub(crate) fn take_some(&mut self) -> Vec<Queued> {
        let mut bytes = 0_u64;
        let count = self.queue.iter().take_while(|queued| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(queued.entry.unit.size().max(1));
            is_first || bytes <= MAX_COMMIT_BYTES
        });
        let count = count.count();
        if count == self.queue.len() {
            return self.take_queue();
        }
        self.is_forced = true;
        self.queue.drain(..count).collect()
    }

    /// Returns true if no driver and no supervisor has the tree.
    pub(crate) fn is_free(&self) -> bool {
        self.drivers.is_empty() && self.offers == 0 && !self.is_offered && self.queue.is_empty()
    }

    /// Claims the top run, which does not exist yet. Returns false if a driver has it.
    pub(crate) fn claim_new(&mut self, run: &RunId) -> bool {
        self.is_new = self.drivers.insert(run.clone());
        self.is_new
    }

    /// Records that an offer ended without a driver.
    pub(crate) fn delay_offer(&mut self) {
        self.offer_after = Some(Instant::now() + OFFER_AGAIN);
    }

    /// Adds a durable unit.
    pub(crate) fn add_to_tail(&mut self, run: &RunId, unit: Arc<Unit>) {
        let tail = self.tail.entry(run.clone()).or_default();
        match tail.last() {
            Some(last) if unit.first_seq < last.next_seq() => {}
            Some(last) if unit.first_seq > last.next_seq() => *tail = vec![unit],
            _ => tail.push(unit),
        }
    }

    /// Drops the units that the object's state has, before these numbers.
    pub(crate) fn cut_tail(&mut self, published: &HashMap<RunId, u64>) {
        for (run, next) in published {
            if let Some(tail) = self.tail.get_mut(run) {
                tail.retain(|unit| unit.next_seq() > *next);
                if tail.is_empty() {
                    self.tail.remove(run);
                }
            }
        }
    }

    /// Stops all drivers of the tree, and drops their entries.
    pub(crate) fn refuse(&mut self) {
        for queued in self.take_queue() {
            queued.entry.durable.refuse();
        }
        self.durables.drain(..).filter_map(|durable| durable.upgrade()).for_each(|durable| durable.refuse());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_two_tenants_are_never_equal() {
        let keys = [("a", "b/c"), ("a/b", "c"), ("a%2fb", "c"), ("a%2Fb", "c"), ("ä b", "c?")];
        for (n, (tenant, top)) in keys.into_iter().enumerate() {
            let key = object_key(&tenant.into(), top);
            assert_eq!(parse_key(&key), Some((tenant.into(), top.into())), "{key}");
            assert!(keys[..n].iter().all(|(other, top)| object_key(&(*other).into(), top) != key), "{key}");
        }
        assert_eq!(parse_key("no run"), None);
    }
}
