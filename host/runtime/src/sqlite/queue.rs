//! What waits for the writer, in order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant};
use parking_lot::{Condvar, Mutex};

use super::sweep::Swept;
use crate::{
    limits::{FLUSH_FACTS, FLUSH_MS},
    ports::Entry,
};

/// One thing to write.
#[expect(clippy::large_enum_variant, reason = "nearly all are entries, and a box would cost each an allocation")]
pub(super) enum Item {
    Entry(Entry),
    /// A run whose facts are removed, with those of the runs below it.
    Forget {
        tenant: Tenant,
        run: RunId,
    },
    Blob {
        tenant: Tenant,
        hash: Arc<str>,
        bytes: Arc<[u8]>,
        mime: Box<str>,
    },
    /// Blobs that nothing names are removed. What was is told when it is durable.
    Sweep {
        tenant: Tenant,
        told: Sender<Swept>,
    },
    /// It is told when everything before it is durable.
    Settle(Sender<()>),
}

/// Filled by everybody, emptied by the writer.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    commits: AtomicU64,
    /// Nanoseconds that every commit takes longer.
    slowed: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    items: Vec<Item>,
    facts: usize,
    /// When the first of them came.
    since: Option<Instant>,
    /// Somebody waits for them.
    forced: bool,
    /// Whoever waits for something to write is to be woken by the first that comes.
    asleep: bool,
    closed: bool,
    abandoned: bool,
    /// What nobody waits for is not written before somebody does.
    held_back: bool,
}

impl Queue {
    /// How many commits there were.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Relaxed)
    }

    /// Has every commit take so much longer.
    pub(super) fn slow_down(&self, each: Duration) {
        self.slowed.store(each.as_nanos() as u64, Relaxed);
    }

    /// The writer has committed. Waits where a slower disk would.
    pub(super) fn committed(&self) {
        self.commits.fetch_add(1, Relaxed);
        let slowed = self.slowed.load(Relaxed);
        if slowed > 0 {
            std::thread::sleep(Duration::from_nanos(slowed));
        }
    }

    pub(super) fn push(&self, item: Item) {
        let mut waiting = self.waiting.lock();
        if waiting.abandoned {
            return;
        }
        if let Item::Entry(entry) = &item {
            waiting.facts += entry.unit.facts.len();
        }
        if waiting.items.is_empty() {
            waiting.since = Some(Instant::now());
        }
        waiting.items.push(item);
        let wake = waiting.asleep || (waiting.facts >= FLUSH_FACTS && !waiting.held_back);
        drop(waiting);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Somebody waits for what is queued. What was taken is being written already.
    pub(super) fn force(&self) {
        let mut waiting = self.waiting.lock();
        if !waiting.items.is_empty() {
            waiting.forced = true;
            drop(waiting);
            self.changed.notify_one();
        }
    }

    /// What nobody waits for is not written any more before somebody waits, or the store is closed.
    pub(super) fn hold_back(&self) {
        self.waiting.lock().held_back = true;
    }

    /// Nothing comes any more.
    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_one();
    }

    /// Nothing is written any more; what waits is dropped, and so is what comes.
    pub(super) fn abandon(&self) {
        let mut waiting = self.waiting.lock();
        waiting.abandoned = true;
        waiting.items.clear();
    }

    /// Takes all that is there, and leaves something empty for what comes.
    pub(super) fn take(&self, empty: Vec<Item>) -> Vec<Item> {
        let mut waiting = self.waiting.lock();
        waiting.facts = 0;
        waiting.forced = false;
        waiting.since = None;
        std::mem::replace(&mut waiting.items, empty)
    }

    /// Waits until something is to be written. False: nothing comes any more.
    ///
    /// What nobody waits for is left for a while, so that a run that only computes is not slowed down by the disk. While
    /// things come, whoever waits here looks by itself and is not woken for each.
    pub(super) fn wait(&self) -> bool {
        let mut waiting = self.waiting.lock();
        let mut idle = false;
        loop {
            let age = waiting.since.map_or(Duration::ZERO, |since| since.elapsed());
            let left = Duration::from_millis(FLUSH_MS).saturating_sub(age);
            let late = waiting.facts >= FLUSH_FACTS || left.is_zero();
            let due = waiting.forced || waiting.closed || (late && !waiting.held_back);
            if !waiting.items.is_empty() && due {
                return true;
            }
            if waiting.items.is_empty() && waiting.closed {
                return false;
            }
            waiting.asleep = idle || waiting.held_back;
            if waiting.asleep {
                self.changed.wait(&mut waiting);
            } else {
                self.changed.wait_for(&mut waiting, left);
            }
            waiting.asleep = false;
            idle = waiting.items.is_empty();
        }
    }
}
