//! What waits for the writer, in order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant, Value};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::claims::{Grant, Key};
use crate::{
    limits::{FLUSH_FACTS, FLUSH_MS},
    ports::{Entry, StoreError},
    rows::Swept,
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
    Cache {
        tenant: Tenant,
        key: String,
        value: Value,
        expires: Option<u64>,
    },
    /// A tree that nobody in this process drives any more.
    Release(Grant),
    Turn(Turn),
}

/// What is done between two commits, because it has to see what was written before.
pub(super) enum Turn {
    /// Whether a run may be driven.
    Claim(Key, Sender<Result<Option<Grant>, StoreError>>),
    /// Runs that somebody should drive.
    Work { tenant: Tenant, now: u64, limit: usize, told: Sender<Result<Vec<(Key, Grant)>, StoreError>> },
    /// Blobs that nothing names are removed.
    Sweep(Tenant, Sender<Result<Swept, StoreError>>),
    /// Everything before is written.
    Settle(Sender<Result<(), StoreError>>),
}

/// Filled by everybody, emptied by the writer.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Notify,
    commits: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    items: Vec<Item>,
    facts: usize,
    /// When the first of them came.
    since: Option<Instant>,
    /// Somebody waits for them.
    forced: bool,
    closed: bool,
    abandoned: bool,
}

impl Queue {
    /// How many commits there were.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Relaxed)
    }

    pub(super) fn committed(&self) {
        self.commits.fetch_add(1, Relaxed);
    }

    /// Queues something. False: nothing is written any more.
    pub(super) fn push(&self, item: Item) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.abandoned {
            return false;
        }
        match &item {
            Item::Entry(entry) => {
                waiting.facts += entry.unit.facts.len();
                waiting.forced |= entry.force;
            }
            Item::Turn(_) => waiting.forced = true,
            _ => {}
        }
        let first = waiting.items.is_empty();
        if first {
            waiting.since = Some(Instant::now());
        }
        waiting.items.push(item);
        let wake = first || waiting.forced || waiting.facts >= FLUSH_FACTS;
        drop(waiting);
        if wake {
            self.changed.notify_one();
        }
        true
    }

    /// Somebody waits for what is queued.
    pub(super) fn force(&self) {
        self.waiting.lock().forced = true;
        self.changed.notify_one();
    }

    /// Nothing comes any more.
    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting.lock().closed
    }

    /// Nothing is written any more; what waits is dropped, and so is what comes.
    pub(super) fn abandon(&self) {
        let mut waiting = self.waiting.lock();
        waiting.abandoned = true;
        waiting.items.clear();
    }

    /// Waits until something is to be written, and takes all that is there. None: nothing comes any more.
    ///
    /// What nobody waits for is left for a while, so that a run that only computes is not slowed down by the server.
    pub(super) async fn take(&self) -> Option<Vec<Item>> {
        loop {
            let left = match self.look() {
                Look::Take(items) => return Some(items),
                Look::Over => return None,
                Look::Wait(left) => left,
            };
            match left {
                // A timeout is a reason to look again.
                Some(left) => _ = tokio::time::timeout(left, self.changed.notified()).await,
                None => self.changed.notified().await,
            }
        }
    }

    fn look(&self) -> Look {
        let mut waiting = self.waiting.lock();
        if waiting.items.is_empty() {
            waiting.forced = false;
            return if waiting.closed { Look::Over } else { Look::Wait(None) };
        }
        let age = waiting.since.map_or(Duration::ZERO, |since| since.elapsed());
        let left = Duration::from_millis(FLUSH_MS).saturating_sub(age);
        if !waiting.forced && !waiting.closed && waiting.facts < FLUSH_FACTS && !left.is_zero() {
            return Look::Wait(Some(left));
        }
        waiting.facts = 0;
        waiting.forced = false;
        waiting.since = None;
        Look::Take(std::mem::take(&mut waiting.items))
    }
}

enum Look {
    Take(Vec<Item>),
    Wait(Option<Duration>),
    Over,
}
