//! The main task of a process: it looks for messages, starts the senders, and takes files that were read again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use flowcell_contract::Tenant;
use parking_lot::Mutex;
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    config::NotifyFile,
    looker::Looker,
    present::{Change, Notifications, Present},
    queue::Queues,
    sender::{Shared, send_all, watch_store},
    target::Opened,
    watch,
};
use crate::{
    Host,
    operate::{identity::Identify, policy::OPERATORS},
};

/// Minimum time between two looks.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// After a look, this number of times its length passes until the next one, but at most [`MAX_REST`].
const REST_FACTOR: u32 = 19;
/// Maximum time between two looks.
const MAX_REST: Duration = Duration::from_secs(5);
/// Minimum time between two writes of documents after messages were sent.
const MIN_REST: Duration = Duration::from_millis(50);
/// The time for messages that are under way when the process stops.
pub const STOP_TIME: Duration = Duration::from_secs(3);

/// Tells the targets of a file what happens in a store.
pub struct Notifier {
    shared: Arc<Shared>,
    looker: Looker,
    id: String,
    control: Notifications,
    changes: mpsc::Receiver<Change>,
}

impl Notifier {
    /// Opens the targets of a file: reads their secrets, and connects to none. The error is a sentence.
    pub async fn open(host: &Host, identity: Arc<dyn Identify>, file: &NotifyFile) -> Result<Notifier, String> {
        let present = Present::new(Opened::new(host, file).await?);
        let (process, id) = (Tenant::from(OPERATORS), watch::process_id());
        let shared = host.shared().is_some();
        let shared = Shared {
            host: host.clone(),
            present: present.clone(),
            queues: Queues::default(),
            may_send_until: Mutex::new(shared.then(Instant::now)),
            has_failed: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            process,
        };
        // One change at a time.
        let (change, changes) = mpsc::channel(1);
        let (host, path) = (host.clone(), None);
        let control = Notifications { host, identity: identity.clone(), present, changes: change, path };
        let looker = Looker::new(identity, id.clone(), control.host.now());
        Ok(Notifier { shared: Arc::new(shared), looker, id, control, changes })
    }

    /// Returns the parts that a server needs, to open links and to read the file again.
    pub fn control(&self) -> Notifications {
        self.control.clone()
    }

    /// Sends messages until `stop` is ready. Then it waits a short time for the messages that are under way, and records
    /// those that were sent.
    pub async fn attend(self, stop: impl Future<Output = ()>) {
        let Notifier { shared, mut looker, id, control, mut changes } = self;
        // So that the channel of changes ends with the last server.
        drop(control);
        let mut senders = begin_senders(&shared);
        let mut watching = JoinSet::new();
        watching.spawn(watch_store(shared.clone(), id));
        let (mut stop, mut is_last, mut next_look) = (std::pin::pin!(stop), false, Instant::now());
        let mut next_change = None;
        loop {
            let looking = shared.clone();
            let began = Instant::now();
            let is_look = !is_last && began >= next_look;
            let change = next_change.take();
            let looked = tokio::task::spawn_blocking(move || {
                match () {
                    () if change.is_some() => looker.adopt(&looking, change),
                    () if is_look => looker.look(&looking),
                    () if is_last => looker.end(&looking),
                    () => looker.record_sent(&looking),
                }
                looker
            });
            match looked.await {
                Ok(returned) => looker = returned,
                Err(error) => {
                    // The senders go on. Without a look they get no further messages, and other processes take over.
                    tracing::error!("notifications have stopped: {error}");
                    // A reload fails then, and does not wait.
                    drop(changes);
                    return while senders.join_next().await.is_some() {};
                }
            }
            if is_last {
                return;
            }
            if senders.is_empty() {
                senders = begin_senders(&shared);
            }
            let took = began.elapsed();
            if is_look {
                next_look = Instant::now() + LOOK_INTERVAL.max(took * REST_FACTOR).min(MAX_REST);
            }
            let rest = next_look.saturating_duration_since(Instant::now());
            let has_sent = async {
                shared.queues.sent.notified().await;
                tokio::time::sleep(took.max(MIN_REST)).await;
            };
            tokio::select! {
                _ = tokio::time::timeout(rest, has_sent) => {}
                Some(change) = changes.recv() => {
                    shared.present.get().targets.iter().for_each(|target| target.is_replaced.store(true, Ordering::Release));
                    end_senders(&shared, &mut senders).await;
                    next_change = Some(change);
                }
                () = &mut stop => {
                    is_last = true;
                    shared.is_stopping.store(true, Ordering::Release);
                    end_senders(&shared, &mut senders).await;
                }
            }
        }
    }
}

/// Starts the senders of the targets in force.
fn begin_senders(shared: &Arc<Shared>) -> JoinSet<()> {
    shared.present.get().targets.iter().map(|target| send_all(shared.clone(), target.clone())).collect()
}

/// Gives the senders a short time for the messages that are under way, and ends them.
async fn end_senders(shared: &Shared, senders: &mut JoinSet<()>) {
    shared.queues.arrived.notify_waiters();
    _ = tokio::time::timeout(STOP_TIME, async { while senders.join_next().await.is_some() {} }).await;
    // A message that is cut off here was not recorded, so it is sent again.
    senders.shutdown().await;
}
