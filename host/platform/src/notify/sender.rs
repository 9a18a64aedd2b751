//! Sends the messages that wait: one task for each target, and one that watches the store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use flowcell_contract::Tenant;
use parking_lot::Mutex;

use super::{
    config::{DEFAULT_PER_MINUTE, TargetSettings},
    link::{NoLink, link_of},
    message::Message,
    present::Present,
    queue::{Queues, Wanted},
    target::{SendError, Target},
    watch::{self, StoreWatch},
};
use crate::{Host, observe::metrics::NoticeOutcome};

/// The first wait after a failed attempt. Each further one is twice as long.
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait after a failed attempt.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(120);
/// The time in milliseconds after which a message is given up.
pub(super) const GIVE_UP_MS: u64 = 24 * 3_600_000;
/// The number of failed attempts before a message is given up, so that a clock that was set forward loses none.
const MIN_ATTEMPTS: u32 = 8;
/// Time between two lines of the log about refusals by one target for the same reason.
pub(super) const REFUSAL_INTERVAL: Duration = Duration::from_secs(3_600);
/// Time between two looks of a sender that has no message.
const IDLE: Duration = Duration::from_millis(500);
/// Time between two looks at the state of the store.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The state that the tasks share.
pub(super) struct Shared {
    pub(super) host: Host,
    pub(super) present: Present,
    pub(super) queues: Queues,
    /// The time until which this process may send the messages of the store. `None`: always, since it owns the store.
    pub(super) may_send_until: Mutex<Option<Instant>>,
    /// True if the last look has failed.
    pub(super) has_failed: AtomicBool,
    /// True once the senders have to stop.
    pub(super) is_stopping: AtomicBool,
    /// The tenant of messages that are only in memory.
    pub(super) process: Tenant,
}

impl Shared {
    pub(super) fn may_send(&self) -> bool {
        self.may_send_until.lock().is_none_or(|until| Instant::now() < until)
    }

    /// Returns whether the sender of a target has to stop.
    fn has_to_stop(&self, target: &Target) -> bool {
        self.is_stopping.load(Ordering::Acquire) || target.is_replaced.load(Ordering::Acquire)
    }

    /// Waits for a time, or until the sender of the target has to stop.
    async fn pause(&self, target: &Target, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.has_to_stop(target) {
            tokio::time::sleep(IDLE.min(until.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// Queues a message for each target that hears it. `place` is the tenant whose document has it.
    pub(super) fn queue(&self, place: &Tenant, message: &Message, now: u64) {
        for target in &self.present.get().targets {
            let settings = &target.settings;
            if settings.hears(message.kind, &message.tenant, message.flow.as_deref()) {
                let per_minute = settings.per_minute.unwrap_or(DEFAULT_PER_MINUTE);
                let text = message.text.clone().filter(|_| settings.contents);
                let question = message.question.clone().filter(|_| settings.answer);
                let message = Message { text, question, ..message.clone() };
                if !self.queues.push(place, target.name(), message, per_minute, now) {
                    self.host.metrics().count_notices(target.name(), NoticeOutcome::LeftOut, 1);
                }
            }
        }
    }

    pub(super) fn any_hears(&self, tenant: &Tenant, test: impl Fn(&TargetSettings) -> bool) -> bool {
        self.present
            .get()
            .targets
            .iter()
            .any(|target| target.settings.hears_tenant(tenant.as_str()) && test(&target.settings))
    }
}

/// Tells the targets of the server about trouble of the store, which needs no store.
pub(super) async fn watch_store(shared: Arc<Shared>, process: String) {
    let mut watch = StoreWatch::new(process);
    loop {
        let cannot_read = shared.has_failed.load(Ordering::Acquire);
        let trouble = watch::store_trouble(&shared.host, cannot_read);
        let now = shared.host.now();
        if let Some(message) = watch.see(trouble, Instant::now(), now) {
            shared.queue(&shared.process, &message, now);
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Sends the messages for a target, one at a time.
pub(super) async fn send_all(shared: Arc<Shared>, target: Arc<Target>) {
    let (mut last, mut failures) = (shared.process.clone(), 0_u32);
    let mut logged = LoggedRefusal::default();
    let metrics = shared.host.metrics();
    while !shared.has_to_stop(&target) {
        let now = shared.host.now();
        let wanted = Wanted {
            target: target.name(),
            after: &last,
            only_urgent: target.quiet.as_ref().is_some_and(|quiet| quiet.contains(now)),
            stored: shared.may_send(),
            process: &shared.process,
        };
        let Some((tenant, message)) = shared.queues.pick(&wanted, Instant::now()) else {
            // The signal may come before this waits for it, so the wait is short.
            _ = tokio::time::timeout(IDLE, shared.queues.arrived.notified()).await;
            continue;
        };
        last = tenant.clone();
        let sent = match with_link(&shared, &target, (&tenant, &message), now).await {
            // Meanwhile another process may send the messages of the store.
            Ok(_) if !shared.may_send() && tenant != shared.process => continue,
            Ok(message) => target.send(&message, now).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) => {
                failures = 0;
                metrics.count_notices(target.name(), NoticeOutcome::Sent, 1);
                shared.queues.remove(&tenant, target.name(), &message.id);
            }
            Err(error) => {
                if !error.is_refusal {
                    failures = failures.saturating_add(1);
                }
                if let Some(pause) =
                    note_failure(&shared, &target, (&tenant, &message), &error, (failures, &mut logged))
                {
                    shared.pause(&target, pause).await;
                }
            }
        }
    }
}

/// Returns a message with its link. If it cannot have one, the message says so. Fails if the store does not answer now: the
/// message waits for its link, and no other message waits for it.
async fn with_link(
    shared: &Arc<Shared>,
    target: &Arc<Target>,
    (tenant, message): (&Tenant, &Message),
    now: u64,
) -> Result<Message, SendError> {
    let opened = shared.present.get();
    if opened.console.is_none() || message.run_id.is_none() {
        return Ok(message.clone());
    }
    let (shared, target, tenant, message) = (shared.clone(), target.clone(), tenant.clone(), message.clone());
    let id = message.id.clone();
    let bare = message.clone();
    let linked = tokio::task::spawn_blocking(move || {
        let mut message = message;
        match link_of(&shared.host, &opened, &target, (&tenant, &message), now) {
            Ok(link) => message.link = link,
            Err(NoLink::Key(error)) if ["store_unavailable", "conflict"].contains(&error.code()) => {
                let why = format!("its link cannot be signed: {error}");
                return Err(SendError { why, is_refusal: true, wait: None });
            }
            Err(error) => {
                if message.attempts == 0 {
                    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                    let cause = cause.unwrap_or_default();
                    tracing::warn!("the notification `{}` has no link to answer: {error}{cause}", message.id);
                }
                message.about = format!("no link to answer: {error}");
            }
        }
        Ok(message)
    });
    linked.await.unwrap_or_else(|error| {
        tracing::error!("the notification `{id}` has no link: {error}");
        Ok(bare)
    })
}

/// The reason of the last refusal by a target that the log has.
#[derive(Default)]
pub(super) struct LoggedRefusal(Option<(String, Instant)>);

impl LoggedRefusal {
    /// Returns whether the log gets a refusal: one for another reason than the last one, and one for the same reason once in
    /// [`REFUSAL_INTERVAL`].
    pub(super) fn is_new(&mut self, why: &str, now: Instant) -> bool {
        let is_known = |(known, at): &(String, Instant)| known == why && now.duration_since(*at) < REFUSAL_INTERVAL;
        if self.0.as_ref().is_some_and(is_known) {
            return false;
        }
        self.0 = Some((why.to_owned(), now));
        true
    }
}

/// Notes a failed attempt. Gives up what is too old. Returns the time for which the target gets no messages.
fn note_failure(
    shared: &Shared,
    target: &Target,
    (tenant, message): (&Tenant, &Message),
    error: &SendError,
    (failures, logged): (u32, &mut LoggedRefusal),
) -> Option<Duration> {
    let (metrics, now, name) = (shared.host.metrics(), shared.host.now(), target.name());
    metrics.count_notices(name, NoticeOutcome::Failed, 1);
    let attempts = if error.is_refusal { message.attempts + 1 } else { failures };
    // A refusal after an outage is the first refusal, too. A target that refuses all messages for one reason is logged once.
    let is_first = match error.is_refusal {
        true => message.refusals == 0 && logged.is_new(&error.why, Instant::now()),
        false => failures == 1,
    };
    if is_first {
        tracing::warn!("cannot send the notification `{}` to `{name}`, and tries again: {}", message.id, error.why);
    }
    let wait = wait_after(error.wait, attempts);
    let next = error.is_refusal.then(|| Instant::now() + wait);
    shared.queues.delay(tenant, name, &message.id, next);
    let before = now.saturating_sub(GIVE_UP_MS);
    let given_up = match error.is_refusal {
        _ if attempts < MIN_ATTEMPTS => 0,
        true if message.queued <= before => {
            shared.queues.remove(tenant, name, &message.id);
            1
        }
        true => 0,
        false => shared.queues.drop_old(name, before),
    };
    if given_up > 0 {
        metrics.count_notices(name, NoticeOutcome::GivenUp, given_up);
        tracing::error!("gave up {given_up} notifications to `{name}` after 24 hours: {}", error.why);
    }
    next.is_none().then_some(wait)
}

/// Returns the wait before the next attempt: the requested one, and at least the first usual one.
pub(super) fn wait_after(requested: Option<Duration>, attempts: u32) -> Duration {
    requested.map_or_else(|| backoff(attempts), |wait| wait.max(FIRST_WAIT))
}

/// Returns the wait after a number of failed attempts, shortened at random by up to a quarter.
fn backoff(attempts: u32) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    doubled.min(MAX_WAIT).mul_f64(1.0 - rand::random::<f64>() / 4.0)
}
