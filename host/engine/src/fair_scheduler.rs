//! Schedules computing time: whenever a thread is free, it serves the tenant that has recently computed least.
//!
//! Each tenant has a queue of attempts that are ready to continue. The guest threads take from the queue of the tenant
//! that has computed least. An attempt computes until it waits, or until a tick of the clock interrupts it. So even a
//! tenant with very many spinning attempts delays an attempt of another tenant by only one tick.
//!
//! A queue remembers its tenant's computing time. If work arrives in an empty queue, and the queue that was served last
//! has a larger computing time, the empty queue takes over that larger time. So a tenant gets no advantage from the
//! time during which it had no work.
//!
//! Short attempts may also compute *inline*, on the thread that drives their run. They do not wait in these queues, so a
//! tenant has at most [`MAX_INLINE`] of them. After one of them has computed for more than [`MAX_INLINE_TIME`] at a time,
//! the next [`INLINE_BAN`] attempts of the tenant use the queues.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use async_task::{Runnable, Task};
use flowcell_contract::Tenant;
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// If there are more queues than this, the empty ones are removed, and their computing times are forgotten. This hardly
/// matters: the time of an empty queue is at most about one tick more than the time that a new queue begins with.
const MAX_KEPT_QUEUES: usize = 64;

/// Maximum number of attempts of a tenant that may compute inline at the same time, also counting those that wait.
const MAX_INLINE: u32 = 64;
/// The time that an attempt may compute inline without a stop. Longer, and the tenant loses its inline places for a while.
const MAX_INLINE_TIME: Duration = Duration::from_micros(500);
/// The number of attempts for which a tenant loses its inline places.
const INLINE_BAN: u32 = 64;

/// The queues of all tenants and their computing times. A clone is another handle to the same queues.
#[derive(Clone)]
pub(crate) struct FairScheduler {
    queues: Arc<Mutex<RunQueues<Runnable>>>,
    runtime: Handle,
}

/// The queues of all tenants.
struct RunQueues<T> {
    by_tenant: HashMap<Tenant, RunQueue<T>>,
    /// The computing time `spent` that the queue served last had when it was served.
    clock: Duration,
    /// The computing time of each tenant since the last [`FairScheduler::take_computing_times`].
    computed: HashMap<Tenant, Duration>,
    /// The tenants with inline attempts, and those that have lost their inline places.
    inline: HashMap<Tenant, Inline>,
}

/// The inline attempts of one tenant.
#[derive(Default)]
struct Inline {
    places: u32,
    /// The number of the next attempts that get no place.
    banned: u32,
}

/// The right of one attempt to compute inline. It ends when this value is dropped.
pub(crate) struct InlinePlace {
    scheduler: FairScheduler,
    tenant: Tenant,
}

impl Drop for InlinePlace {
    fn drop(&mut self) {
        self.scheduler.queues.lock().release_place(&self.tenant);
    }
}

/// The queue of one tenant.
struct RunQueue<T> {
    ready: VecDeque<T>,
    /// The computing time of the tenant, comparable with `clock`.
    spent: Duration,
}

impl FairScheduler {
    /// Creates empty queues. The attempts compute on the threads of this tokio runtime.
    pub(crate) fn new(runtime: Handle) -> FairScheduler {
        FairScheduler { queues: Arc::new(Mutex::new(RunQueues::new())), runtime }
    }

    /// Runs `work` for a tenant, as soon as the tenant is next. Dropping the returned async task stops the work at its
    /// next yield.
    pub(crate) fn spawn<F>(&self, tenant: Tenant, work: F) -> Task<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let scheduler = self.clone();
        let schedule = move |runnable| {
            scheduler.queues.lock().push(tenant.clone(), runnable);
            let next = scheduler.clone();
            // The spawned task takes the most urgent work, which need not be this one.
            scheduler.runtime.spawn(async move { next.run_next() });
        };
        let (runnable, task) = async_task::spawn(work, schedule);
        runnable.schedule();
        task
    }

    fn run_next(&self) {
        let Some((tenant, runnable)) = self.queues.lock().pop() else { return };
        let charged = ChargeOnDrop { scheduler: self, tenant, since: Instant::now() };
        let interrupted = runnable.run();
        drop(charged);
        if interrupted {
            // Let threads that answer requests run now, before the system interrupts this one.
            thread::yield_now();
        }
    }

    /// Returns a place for an attempt of this tenant to compute inline, or `None` if the attempt has to use the queues.
    pub(crate) fn inline_place(&self, tenant: &Tenant) -> Option<InlinePlace> {
        let is_free = self.queues.lock().take_place(tenant);
        is_free.then(|| InlinePlace { scheduler: self.clone(), tenant: tenant.clone() })
    }

    /// Adds computing time that an attempt of a tenant has used inline without a stop.
    pub(crate) fn charge_inline(&self, tenant: &Tenant, time: Duration) {
        let mut queues = self.queues.lock();
        queues.charge(tenant, time);
        if time > MAX_INLINE_TIME {
            queues.ban(tenant);
        }
    }

    /// Adds computing time that a tenant has used on another thread.
    pub(crate) fn charge(&self, tenant: &Tenant, time: Duration) {
        self.queues.lock().charge(tenant, time);
    }

    /// Returns the computing time of each tenant since this method was last called.
    pub(crate) fn take_computing_times(&self) -> HashMap<Tenant, Duration> {
        std::mem::take(&mut self.queues.lock().computed)
    }
}

/// Charges a tenant with the time until this value is dropped, even if the work panics.
struct ChargeOnDrop<'a> {
    scheduler: &'a FairScheduler,
    tenant: Tenant,
    since: Instant,
}

impl Drop for ChargeOnDrop<'_> {
    fn drop(&mut self) {
        self.scheduler.charge(&self.tenant, self.since.elapsed());
    }
}

impl<T> RunQueues<T> {
    fn new() -> RunQueues<T> {
        RunQueues { by_tenant: HashMap::new(), clock: Duration::ZERO, computed: HashMap::new(), inline: HashMap::new() }
    }

    fn push(&mut self, tenant: Tenant, ready: T) {
        let clock = self.clock;
        if self.by_tenant.len() > MAX_KEPT_QUEUES {
            self.by_tenant.retain(|_, queue| !queue.ready.is_empty());
        }
        let queue = self.by_tenant.entry(tenant).or_insert_with(|| RunQueue { ready: VecDeque::new(), spent: clock });
        if queue.ready.is_empty() {
            queue.spent = queue.spent.max(clock);
        }
        queue.ready.push_back(ready);
    }

    /// Removes and returns the first entry of the queue whose tenant has computed least.
    fn pop(&mut self) -> Option<(Tenant, T)> {
        let waiting = self.by_tenant.iter_mut().filter(|(_, queue)| !queue.ready.is_empty());
        let (tenant, queue) = waiting.min_by_key(|(_, queue)| queue.spent)?;
        self.clock = self.clock.max(queue.spent);
        Some((tenant.clone(), queue.ready.pop_front()?))
    }

    /// Takes an inline place. Returns false if the tenant has lost its places, or has none left.
    fn take_place(&mut self, tenant: &Tenant) -> bool {
        let inline = match self.inline.get_mut(tenant) {
            Some(inline) => inline,
            None => self.inline.entry(tenant.clone()).or_default(),
        };
        if inline.banned > 0 {
            inline.banned -= 1;
            self.forget_inline(tenant);
            return false;
        }
        let is_free = inline.places < MAX_INLINE;
        inline.places += u32::from(is_free);
        is_free
    }

    fn release_place(&mut self, tenant: &Tenant) {
        if let Some(inline) = self.inline.get_mut(tenant) {
            inline.places -= 1;
            self.forget_inline(tenant);
        }
    }

    fn ban(&mut self, tenant: &Tenant) {
        self.inline.entry(tenant.clone()).or_default().banned = INLINE_BAN;
    }

    fn forget_inline(&mut self, tenant: &Tenant) {
        if self.inline.get(tenant).is_some_and(|inline| inline.places == 0 && inline.banned == 0) {
            self.inline.remove(tenant);
        }
    }

    fn charge(&mut self, tenant: &Tenant, time: Duration) {
        if let Some(queue) = self.by_tenant.get_mut(tenant) {
            queue.spent += time;
        }
        match self.computed.get_mut(tenant) {
            Some(computed) => *computed += time,
            None => _ = self.computed.insert(tenant.clone(), time),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const TICK: Duration = Duration::from_millis(10);

    fn served(queues: &mut RunQueues<u32>, time: Duration) -> String {
        let (tenant, _) = queues.pop().unwrap();
        queues.charge(&tenant, time);
        tenant.to_string()
    }

    #[test]
    fn a_new_tenant_is_next_however_many_attempts_spin() {
        let mut queues = RunQueues::new();
        (0..1_000).for_each(|spinner| queues.push("a".into(), spinner));
        for spinner in 0..50 {
            assert_eq!(served(&mut queues, TICK), "a");
            queues.push("a".into(), spinner);
        }
        queues.push("b".into(), 0);
        assert_eq!(served(&mut queues, TICK / 10), "b");
        assert_eq!(served(&mut queues, TICK), "a");
    }

    #[test]
    fn two_spinning_tenants_get_half_of_the_time_each() {
        let mut queues = RunQueues::new();
        (0..100).for_each(|spinner| queues.push("a".into(), spinner));
        (0..500).for_each(|_| {
            assert_eq!(served(&mut queues, TICK), "a");
            queues.push("a".into(), 0);
        });
        queues.push("b".into(), 0);
        let mut turns = HashMap::new();
        for _ in 0..1_000 {
            let tenant = served(&mut queues, TICK);
            queues.push(tenant.as_str().into(), 0);
            *turns.entry(tenant).or_insert(0) += 1;
        }
        assert!((499..=501).contains(&turns["b"]), "{turns:?}");
        assert_eq!(queues.computed[&Tenant::from("b")], TICK * turns["b"]);
    }

    #[test]
    fn a_tenant_with_shorter_turns_gets_more_turns() {
        let mut queues = RunQueues::new();
        for tenant in ["long", "short"] {
            (0..2_000).for_each(|entry| queues.push(tenant.into(), entry));
        }
        let mut short = 0;
        for _ in 0..1_100 {
            let tenant = queues.pop().unwrap().0;
            let is_short = tenant.as_str() == "short";
            queues.charge(&tenant, if is_short { TICK / 10 } else { TICK });
            short += u32::from(is_short);
        }
        assert!((999..=1_001).contains(&short), "{short}");
    }

    #[test]
    fn a_tenant_has_a_limited_number_of_inline_places() {
        let mut queues = RunQueues::<u32>::new();
        let (one, other) = (Tenant::from("a"), Tenant::from("b"));
        (0..MAX_INLINE).for_each(|_| assert!(queues.take_place(&one)));
        assert!(!queues.take_place(&one));
        assert!(queues.take_place(&other));
        queues.release_place(&one);
        assert!(queues.take_place(&one) && !queues.take_place(&one));
    }

    #[test]
    fn a_tenant_that_computes_long_inline_loses_its_places_for_a_while() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let scheduler = FairScheduler::new(runtime.handle().clone());
        let (one, other) = (Tenant::from("a"), Tenant::from("b"));
        scheduler.charge_inline(&one, MAX_INLINE_TIME);
        let held = scheduler.inline_place(&one);
        assert!(held.is_some());
        scheduler.charge_inline(&one, MAX_INLINE_TIME + Duration::from_nanos(1));
        for _ in 0..INLINE_BAN {
            assert!(scheduler.inline_place(&one).is_none() && scheduler.inline_place(&other).is_some());
        }
        assert!(scheduler.inline_place(&one).is_some());
        drop(held);
        assert!(scheduler.queues.lock().inline.is_empty(), "nothing is kept of a tenant without attempts");
    }

    #[test]
    fn many_empty_queues_are_removed() {
        let mut queues = RunQueues::new();
        for tenant in 0..1_000 {
            queues.push(format!("t{tenant}").as_str().into(), 0);
            served(&mut queues, TICK);
        }
        assert!(queues.by_tenant.len() <= MAX_KEPT_QUEUES + 2, "{}", queues.by_tenant.len());
    }
}
