//! Shows the live events of a run to subscribers in other processes of the same store.
//!
//! A process with subscribers of a run announces its interest in the run each 10 s. The process that drives the run sends
//! the live events of the run, and the numbers of its recorded events, until no process has announced an interest for
//! 30 s. Messages may be lost: recorded events are in the store, and live events are not repeated.
//!
//! | module | content |
//! |---|---|
//! | message | the messages between the processes |
//! | interests | the runs that other processes follow |
//! | sender | the channel of a driven run that sends its events |

mod interests;
mod message;
mod sender;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{FlowRunner, Hubs, LiveEvent, shared::Relay};
use parking_lot::Mutex;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use self::{interests::Interests, message::RelayMessage, sender::RelaySender};

/// Interval between two announcements of an interest.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(10);

/// A run of a tenant.
type Key = (Tenant, RunId);

/// Receives the events of a run that another process drives.
pub trait RemoteEvents: Send + Sync {
    /// Receives a live event of the run, or of a run below it.
    fn on_live(&self, event: &LiveEvent);

    /// Called when the store has an event of the run with this number.
    fn on_recorded(&self, seq: u64, kind: &str);
}

/// A subscription to the events of a run. It ends when it is dropped.
pub struct Subscription {
    key: Key,
    /// The number of the first event that the subscriber has not read from the store.
    next: AtomicU64,
    receiver: Box<dyn RemoteEvents>,
}

impl Subscription {
    /// Records that the subscriber has all events before this number.
    pub fn has_read_until(&self, next: u64) {
        self.next.fetch_max(next, Ordering::AcqRel);
    }

    fn interest(&self) -> RelayMessage {
        let (tenant, run) = self.key.clone();
        RelayMessage::Interest { tenant, run, next: self.next.load(Ordering::Acquire) }
    }
}

/// The relay of live events of one process.
pub struct LiveRelay {
    relay: Arc<dyn Relay>,
    hubs: Arc<Hubs>,
    subscriptions: Mutex<HashMap<Key, Vec<Weak<Subscription>>>>,
    interests: Interests,
    is_started: AtomicBool,
}

impl LiveRelay {
    pub(crate) fn new(relay: Arc<dyn Relay>, hubs: Arc<Hubs>) -> LiveRelay {
        let (subscriptions, interests) = (Mutex::default(), Interests::default());
        LiveRelay { relay, hubs, subscriptions, interests, is_started: AtomicBool::new(false) }
    }

    /// Starts to receive the messages of other processes, until the relay is dropped. Does nothing after the first call.
    pub(crate) fn start(self: &Arc<LiveRelay>) -> io::Result<()> {
        if self.is_started.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (relay, received) = (Arc::downgrade(self), self.relay.receive());
        let thread = std::thread::Builder::new().name("flowcell-live".into());
        thread.spawn(move || runtime.block_on(receive(relay, received))).map(drop)
    }

    /// Subscribes to a run that another process drives. The subscriber has read the events before the number `next`.
    pub fn subscribe(
        &self,
        tenant: &Tenant,
        run: &RunId,
        next: u64,
        receiver: Box<dyn RemoteEvents>,
    ) -> Arc<Subscription> {
        let key = (tenant.clone(), run.clone());
        let subscription = Arc::new(Subscription { key: key.clone(), next: next.into(), receiver });
        self.subscriptions.lock().entry(key).or_default().push(Arc::downgrade(&subscription));
        subscription.interest().send_by(&*self.relay);
        subscription
    }

    /// If other processes follow the run of `runner`, attaches a sender of its events. The runner must not have begun to
    /// drive the run.
    pub fn attach_to(&self, tenant: &Tenant, runner: &mut FlowRunner) {
        let key = (tenant.clone(), runner.run_id().clone());
        if let Some(sender) = self.new_sender(&key, Instant::now()) {
            runner.attach(Arc::new(sender));
        }
    }

    /// Creates a sender for a run that other processes follow. Returns `None` if the run has a sender already.
    fn new_sender(&self, key: &Key, now: Instant) -> Option<RelaySender> {
        let interest = self.interests.current(key, now)?;
        RelaySender::attach(key.clone(), interest, self.relay.clone())
    }

    /// Handles a message of another process.
    fn handle(&self, text: &str, now: Instant) {
        match RelayMessage::parse(text) {
            Some(RelayMessage::Interest { tenant, run, next }) => {
                let key = (tenant, run);
                self.interests.record(&key, next, now);
                let Some(hub) = self.hubs.get(&key.0, &key.1) else { return };
                if let Some(sender) = self.new_sender(&key, now) {
                    // A run that ends meanwhile drops the sender. The queue of a busy run may be full for a while.
                    tokio::spawn(async move { hub.attach(Arc::new(sender)).await });
                }
            }
            Some(RelayMessage::Recorded { tenant, run, seq, kind }) => {
                for subscription in self.subscriptions_to(&(tenant, run)) {
                    subscription.receiver.on_recorded(seq, &kind);
                }
            }
            Some(RelayMessage::Live(live)) => {
                let Some((key, event)) = live.into_event() else { return };
                for subscription in self.subscriptions_to(&key) {
                    subscription.receiver.on_live(&event);
                }
            }
            // A later version of Flowcell has sent it.
            None => {}
        }
    }

    /// Returns the subscriptions of this process to a run.
    fn subscriptions_to(&self, key: &Key) -> Vec<Arc<Subscription>> {
        self.subscriptions.lock().get(key).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Announces the interests of this process, and drops ended subscriptions and interests.
    fn announce(&self, now: Instant) {
        let mut subscriptions = self.subscriptions.lock();
        subscriptions.retain(|_, all| {
            all.retain(|subscription| subscription.strong_count() > 0);
            !all.is_empty()
        });
        let present: Vec<_> = subscriptions.values().filter_map(|all| all.iter().find_map(Weak::upgrade)).collect();
        drop(subscriptions);
        present.iter().for_each(|subscription| subscription.interest().send_by(&*self.relay));
        self.interests.remove_expired(now);
    }
}

/// Handles messages, and announces interests repeatedly.
async fn receive(relay: Weak<LiveRelay>, mut received: Receiver<Arc<str>>) {
    let mut announcing = tokio::time::interval(ANNOUNCE_INTERVAL);
    loop {
        let message = tokio::select! {
            message = received.recv() => Some(message),
            _ = announcing.tick() => None,
        };
        let Some(relay) = relay.upgrade() else { return };
        match message {
            Some(Ok(text)) => relay.handle(&text, Instant::now()),
            Some(Err(RecvError::Lagged(_))) => {}
            Some(Err(RecvError::Closed)) => return,
            None => relay.announce(Instant::now()),
        }
    }
}
