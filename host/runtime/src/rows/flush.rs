//! The flush queue: items that wait for the writer of a store, in order.
//!
//! The writer removes all items from the queue together: when a caller waits for one of them, when they have
//! [`FLUSH_FACTS`] facts, or at the latest when the first item has waited for [`FLUSH_MS`]. So a run that only computes
//! does not wait for the disk or the server. A writer may be a thread, which calls [`FlushQueue::wait`], or a tokio
//! task, which calls [`FlushQueue::ready`].

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::limits::{FLUSH_FACTS, FLUSH_MS};

/// An item of a flush queue.
pub(crate) trait Queued {
    /// Returns the number of facts in the item.
    fn facts(&self) -> usize;

    /// Returns whether a caller waits for the item.
    fn is_awaited(&self) -> bool;
}

/// The queue of one writer.
pub(crate) struct FlushQueue<T> {
    waiting: Mutex<Waiting<T>>,
    thread: Condvar,
    task: Notify,
    commits: AtomicU64,
    /// The additional duration of every commit, in nanoseconds.
    slowed: AtomicU64,
}

struct Waiting<T> {
    items: Vec<T>,
    facts: usize,
    /// The time at which the first item arrived.
    since: Option<Instant>,
    /// True if a caller waits for the items.
    forced: bool,
    /// True if the writer found no items when it checked last.
    idle: bool,
    /// True if the next item has to wake the writer.
    asleep: bool,
    closed: bool,
    abandoned: bool,
    /// True if items stay until a caller waits for them.
    held_back: bool,
}

/// The next step of a writer.
#[derive(Debug, PartialEq)]
enum Next {
    Write,
    /// The writer waits, at most for this time if there is one.
    Wait(Option<Duration>),
    /// The queue is closed and empty.
    End,
}

impl<T> Default for FlushQueue<T> {
    fn default() -> FlushQueue<T> {
        FlushQueue {
            waiting: Mutex::default(),
            thread: Condvar::new(),
            task: Notify::new(),
            commits: AtomicU64::new(0),
            slowed: AtomicU64::new(0),
        }
    }
}

impl<T> Default for Waiting<T> {
    fn default() -> Waiting<T> {
        Waiting {
            items: Vec::new(),
            facts: 0,
            since: None,
            forced: false,
            idle: false,
            asleep: false,
            closed: false,
            abandoned: false,
            held_back: false,
        }
    }
}

impl<T> Waiting<T> {
    /// Decides the next step of the writer. While items arrive, the writer waits at most [`FLUSH_MS`] and then checks
    /// the queue by itself, so that not every item has to wake it. If the writer finds no items for that time, it
    /// sleeps until the next item wakes it.
    fn next(&mut self, now: Instant) -> Next {
        self.asleep = false;
        if self.items.is_empty() {
            if self.closed {
                return Next::End;
            }
            self.forced = false;
        }
        let age = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let left = Duration::from_millis(FLUSH_MS).saturating_sub(age);
        let is_late = self.facts >= FLUSH_FACTS || left.is_zero();
        if !self.items.is_empty() && (self.forced || self.closed || (is_late && !self.held_back)) {
            self.idle = false;
            return Next::Write;
        }
        self.asleep = self.held_back || (self.idle && self.items.is_empty());
        self.idle = self.items.is_empty();
        Next::Wait((!self.asleep).then_some(left))
    }
}

impl<T> FlushQueue<T> {
    /// Returns the number of commits.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Relaxed)
    }

    /// Makes every commit last longer by this duration, for measurements.
    pub(crate) fn slow_down(&self, each: Duration) {
        self.slowed.store(each.as_nanos() as u64, Relaxed);
    }

    /// Counts a commit of the writer. Then sleeps for the duration that [`FlushQueue::slow_down`] has set.
    pub(crate) fn count_commit(&self) {
        self.commits.fetch_add(1, Relaxed);
        let slowed = self.slowed.load(Relaxed);
        if slowed > 0 {
            std::thread::sleep(Duration::from_nanos(slowed));
        }
    }

    /// Makes the writer write the queued items as soon as possible. Does nothing if the queue is empty: then the
    /// writer already has all items.
    pub(crate) fn force(&self) {
        let mut waiting = self.waiting.lock();
        if !waiting.items.is_empty() {
            waiting.forced = true;
            drop(waiting);
            self.wake();
        }
    }

    /// Keeps items in the queue until a caller waits for them, or until the queue is closed.
    pub(crate) fn hold_back(&self) {
        self.waiting.lock().held_back = true;
    }

    /// Ends the queue: the writer writes the queued items and stops.
    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
        self.wake();
    }

    #[cfg(feature = "shared-stores")]
    pub(crate) fn is_closed(&self) -> bool {
        self.waiting.lock().closed
    }

    /// Drops all queued items, and all items that are pushed later, because the writer has failed.
    pub(crate) fn abandon(&self) {
        let mut waiting = self.waiting.lock();
        waiting.abandoned = true;
        waiting.items.clear();
    }

    /// Removes and returns all items. `empty` becomes the list for the next ones.
    pub(crate) fn take(&self, empty: Vec<T>) -> Vec<T> {
        let mut waiting = self.waiting.lock();
        waiting.facts = 0;
        waiting.forced = false;
        waiting.since = None;
        std::mem::replace(&mut waiting.items, empty)
    }

    /// Keeps only the waiting items that meet a condition.
    #[cfg(feature = "shared-stores")]
    pub(crate) fn retain(&self, keeps: impl FnMut(&T) -> bool) {
        self.waiting.lock().items.retain(keeps);
    }

    /// Blocks the thread until items are due. Returns `false` if the queue is closed and empty.
    pub(crate) fn wait(&self) -> bool {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.next(Instant::now()) {
                Next::Write => return true,
                Next::End => return false,
                Next::Wait(Some(left)) => _ = self.thread.wait_for(&mut waiting, left),
                Next::Wait(None) => self.thread.wait(&mut waiting),
            }
        }
    }

    /// Waits until items are due. Returns `false` if the queue is closed and empty.
    #[cfg(feature = "shared-stores")]
    pub(crate) async fn ready(&self) -> bool {
        loop {
            let next = self.waiting.lock().next(Instant::now());
            match next {
                Next::Write => return true,
                Next::End => return false,
                Next::Wait(Some(left)) => _ = tokio::time::timeout(left, self.task.notified()).await,
                Next::Wait(None) => self.task.notified().await,
            }
        }
    }

    fn wake(&self) {
        self.thread.notify_one();
        self.task.notify_one();
    }
}

impl<T: Queued> FlushQueue<T> {
    /// Queues an item.
    pub(crate) fn push(&self, item: T) {
        let mut waiting = self.waiting.lock();
        if waiting.abandoned {
            return;
        }
        let is_awaited = item.is_awaited();
        waiting.facts += item.facts();
        waiting.forced |= is_awaited;
        if waiting.items.is_empty() {
            waiting.since = Some(Instant::now());
        }
        waiting.items.push(item);
        let is_full = waiting.facts >= FLUSH_FACTS && !waiting.held_back;
        let wake = waiting.asleep || is_awaited || is_full;
        drop(waiting);
        if wake {
            self.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An item: the number of its facts, and whether a caller waits for it.
    struct Item(usize, bool);

    impl Queued for Item {
        fn facts(&self) -> usize {
            self.0
        }

        fn is_awaited(&self) -> bool {
            self.1
        }
    }

    const FLUSH: Duration = Duration::from_millis(FLUSH_MS);

    fn queue(items: impl IntoIterator<Item = Item>) -> FlushQueue<Item> {
        let queue = FlushQueue::default();
        items.into_iter().for_each(|item| queue.push(item));
        queue
    }

    /// Returns the next step of the writer at this time after the first item arrived.
    fn next(queue: &FlushQueue<Item>, age: Duration) -> Next {
        let mut waiting = queue.waiting.lock();
        let since = waiting.since.unwrap_or_else(Instant::now);
        waiting.next(since + age)
    }

    #[test]
    fn items_are_due_after_a_time_or_with_many_facts_or_when_awaited() {
        let young = queue([Item(1, false)]);
        assert_eq!(next(&young, FLUSH / 4), Next::Wait(Some(FLUSH - FLUSH / 4)));
        assert_eq!(next(&young, FLUSH), Next::Write);
        assert_eq!(next(&queue([Item(FLUSH_FACTS - 1, false), Item(1, false)]), Duration::ZERO), Next::Write);
        assert_eq!(next(&queue([Item(1, false), Item(0, true)]), Duration::ZERO), Next::Write);
        let forced = queue([Item(1, false)]);
        forced.force();
        assert_eq!(next(&forced, Duration::ZERO), Next::Write);
        assert_eq!(forced.take(Vec::new()).len(), 1);
        forced.force();
        forced.push(Item(1, false));
        assert_eq!(next(&forced, Duration::ZERO), Next::Wait(Some(FLUSH)), "an empty queue cannot be forced");
    }

    #[test]
    fn only_an_idle_writer_has_to_be_woken() {
        let queue = queue([]);
        assert_eq!(next(&queue, Duration::ZERO), Next::Wait(Some(FLUSH)));
        assert_eq!(next(&queue, Duration::ZERO), Next::Wait(None));
        assert!(queue.waiting.lock().asleep);
        queue.push(Item(1, false));
        assert_eq!(next(&queue, Duration::ZERO), Next::Wait(Some(FLUSH)));
        assert!(!queue.waiting.lock().asleep);
    }

    #[test]
    fn items_that_are_held_back_wait_for_a_caller() {
        let queue = queue([Item(FLUSH_FACTS, false)]);
        queue.hold_back();
        assert_eq!(next(&queue, FLUSH * 2), Next::Wait(None));
        queue.push(Item(0, true));
        assert_eq!(next(&queue, Duration::ZERO), Next::Write);
    }

    #[test]
    fn a_closed_queue_is_written_to_its_end() {
        let closed = queue([Item(1, false)]);
        closed.close();
        assert_eq!(next(&closed, Duration::ZERO), Next::Write);
        closed.take(Vec::new());
        assert!(closed.is_closed() && !closed.wait());
        let abandoned = queue([Item(1, true)]);
        abandoned.abandon();
        abandoned.push(Item(1, true));
        assert_eq!(abandoned.take(Vec::new()).len(), 0);
    }

    #[test]
    fn an_awaited_item_wakes_a_thread_and_a_task() {
        let threads: FlushQueue<Item> = queue([]);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| threads.wait());
            threads.push(Item(1, true));
            assert!(writer.join().unwrap());
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let tasks: FlushQueue<Item> = queue([]);
        runtime.block_on(async {
            let push = async { tasks.push(Item(1, true)) };
            let (ready, ()) = tokio::join!(tasks.ready(), push);
            assert!(ready);
        });
    }
}
