//! The messages that wait for targets. Per tenant and target their number is bounded.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    time::Instant,
};

use flowcell_contract::Tenant;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{
    config::TargetSettings,
    message::{Message, NoticeKind},
};
use crate::operate::policy::OPERATORS;

/// Maximum number of messages about a tenant that wait for a target, and of urgent ones beside them. Further ones are
/// counted.
pub(super) const MAX_WAITING: usize = 50;
/// The time in milliseconds in which messages are counted for the rate.
const WINDOW_MS: u64 = 60_000;

/// The messages of a tenant that wait for a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Queue {
    messages: VecDeque<Message>,
    /// The start of the present window, in milliseconds since 1970.
    window: u64,
    /// The numbers of messages that were queued in the window, by the tenants that they are about: urgent ones, and others.
    /// The tenants differ only in the queue of the process.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    counts: BTreeMap<String, [u32; 2]>,
    /// The messages that were left out since the last message about them, by kinds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    left_out: BTreeMap<NoticeKind, u64>,
}

impl Queue {
    /// Queues a message, or counts it if the window or the queue is full. Returns false if it was left out.
    /// `place` is the tenant of the queue.
    pub(super) fn push(&mut self, place: &str, message: Message, per_minute: u32, now: u64) -> bool {
        if now.abs_diff(self.window) >= WINDOW_MS {
            self.close_window(place, now);
        }
        if self.messages.iter().any(|known| known.id == message.id) {
            return true;
        }
        let (is_full, is_urgent) = (self.is_full_for(&message), message.kind.is_urgent());
        let count = &mut self.counts.entry(message.tenant.clone()).or_default()[usize::from(!is_urgent)];
        if *count >= per_minute || is_full {
            *self.left_out.entry(message.kind).or_default() += 1;
            return false;
        }
        *count += 1;
        self.messages.push_back(Message { queued: now, ..message });
        true
    }

    /// Begins a new window. If messages were left out, a message with their number is queued first. If the queue is full,
    /// they are counted on. Returns whether anything has changed that must be stored.
    pub(super) fn close_window(&mut self, tenant: &str, now: u64) -> bool {
        if now.abs_diff(self.window) < WINDOW_MS {
            return false;
        }
        let began = std::mem::replace(&mut self.window, now);
        self.counts.clear();
        if self.left_out.is_empty() {
            return false;
        }
        let mut message = Message::new(NoticeKind::LeftOut, tenant, None, &[&began.to_string()], now);
        if self.is_full_for(&message) {
            return false;
        }
        let left_out = std::mem::take(&mut self.left_out);
        let kinds: Vec<_> = left_out.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
        let total: u64 = left_out.values().sum();
        message.about = format!("{total} more were left out: {}", kinds.join(", "));
        self.messages.push_back(Message { queued: now, ..message });
        true
    }

    /// Returns whether the room for messages such as this one is used. Urgent ones have room of their own, and so has each
    /// tenant.
    fn is_full_for(&self, message: &Message) -> bool {
        let is_alike =
            |known: &&Message| known.kind.is_urgent() == message.kind.is_urgent() && known.tenant == message.tenant;
        self.messages.iter().filter(is_alike).count() >= MAX_WAITING
    }

    /// Drops the messages that the target does not hear any more, and the texts if it gets no contents. Returns the number of
    /// messages.
    pub(super) fn keep_heard(&mut self, tenant: &str, target: &TargetSettings) -> u64 {
        let known = self.len();
        // Each target has the numbers of the messages that the process itself has left out.
        let hears_place = |tenant: &str| tenant == OPERATORS || target.hears_tenant(tenant);
        self.messages.retain(|message| match message.kind {
            NoticeKind::LeftOut => hears_place(&message.tenant),
            kind => target.hears(kind, &message.tenant, message.flow.as_deref()),
        });
        if !target.answer {
            self.messages.iter_mut().for_each(|message| message.question = None);
        }
        if !target.contents {
            self.messages.iter_mut().for_each(|message| message.text = None);
        }
        let hears = |kind: &NoticeKind| hears_place(tenant) && target.hears_kind(*kind);
        self.left_out.retain(|kind, _| hears(kind));
        known - self.len()
    }

    /// Returns the number of messages that wait or were left out.
    pub(super) fn len(&self) -> u64 {
        self.messages.len() as u64 + self.left_out.values().sum::<u64>()
    }

    /// Returns true if the queue has nothing to store.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        self.len() == 0 && now.abs_diff(self.window) >= WINDOW_MS
    }
}

/// The queues of a tenant, by the names of the targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TenantQueues(pub(super) BTreeMap<String, Queue>);

impl TenantQueues {
    /// Drops the waiting messages that the targets of the file do not hear any more. Returns the names of their targets,
    /// with the numbers of the messages.
    pub(super) fn drop_unheard<'a>(
        &mut self,
        tenant: &Tenant,
        targets: impl Iterator<Item = &'a TargetSettings> + Clone,
    ) -> Vec<(String, u64)> {
        let mut dropped = Vec::new();
        self.0.retain(|name, queue| {
            let target = targets.clone().find(|target| target.name == *name);
            let count = target.map_or(queue.len(), |target| queue.keep_heard(tenant.as_str(), target));
            if count > 0 {
                dropped.push((name.clone(), count));
            }
            target.is_some()
        });
        dropped
    }
}

/// The queues of all tenants, and the signal to the senders.
#[derive(Default)]
pub(super) struct Queues {
    tenants: Mutex<BTreeMap<Tenant, TenantQueues>>,
    /// The tenants whose documents have to be written.
    changed: Mutex<HashSet<Tenant>>,
    /// Wakes the senders.
    pub(super) arrived: Notify,
    /// Wakes the task that writes documents.
    pub(super) sent: Notify,
}

/// The filter of a sender.
pub(super) struct Wanted<'a> {
    /// The name of the target.
    pub(super) target: &'a str,
    /// The tenant of the last message.
    pub(super) after: &'a Tenant,
    /// True in quiet hours.
    pub(super) only_urgent: bool,
    /// False if another process sends the messages of the store.
    pub(super) stored: bool,
    /// The tenant whose messages are only in memory.
    pub(super) process: &'a Tenant,
}

impl Queues {
    /// Adds the queues of a tenant that were read from the store.
    pub(super) fn insert(&self, tenant: &Tenant, queues: TenantQueues) {
        self.tenants.lock().insert(tenant.clone(), queues);
        self.arrived.notify_waiters();
    }

    /// Drops the waiting messages that the targets of the file do not hear any more. Returns their tenants and targets, with
    /// their numbers.
    pub(super) fn drop_unheard<'a>(
        &self,
        targets: impl Iterator<Item = &'a TargetSettings> + Clone,
    ) -> Vec<(Tenant, String, u64)> {
        let mut dropped = Vec::new();
        for (tenant, queues) in self.tenants.lock().iter_mut() {
            let before = queues.clone();
            let of_tenant = queues.drop_unheard(tenant, targets.clone()).into_iter();
            dropped.extend(of_tenant.map(|(target, count)| (tenant.clone(), target, count)));
            if *queues != before {
                self.changed.lock().insert(tenant.clone());
            }
        }
        dropped
    }

    /// Removes the queues of a tenant. Returns the number of messages in them.
    pub(super) fn remove_tenant(&self, tenant: &Tenant) -> u64 {
        self.changed.lock().remove(tenant);
        self.tenants.lock().remove(tenant).map_or(0, |queues| queues.0.values().map(Queue::len).sum())
    }

    /// Returns a copy of the queues of a tenant.
    pub(super) fn of(&self, tenant: &Tenant) -> TenantQueues {
        self.tenants.lock().get(tenant).cloned().unwrap_or_default()
    }

    /// Queues a message of a tenant for a target. Returns whether it was queued, and not left out.
    pub(super) fn push(&self, tenant: &Tenant, target: &str, message: Message, per_minute: u32, now: u64) -> bool {
        let mut tenants = self.tenants.lock();
        let queue = tenants.entry(tenant.clone()).or_default().0.entry(target.to_owned()).or_default();
        let is_queued = queue.push(tenant.as_str(), message, per_minute, now);
        drop(tenants);
        self.changed.lock().insert(tenant.clone());
        self.arrived.notify_waiters();
        is_queued
    }

    /// Begins new windows where they are due, and drops queues without messages.
    pub(super) fn close_windows(&self, tenant: &Tenant, now: u64) {
        let mut tenants = self.tenants.lock();
        let Some(queues) = tenants.get_mut(tenant) else { return };
        let mut is_changed = false;
        for queue in queues.0.values_mut().filter(|queue| queue.len() > 0) {
            is_changed |= queue.close_window(tenant.as_str(), now);
        }
        queues.0.retain(|_, queue| !queue.is_idle(now));
        drop(tenants);
        if is_changed {
            self.changed.lock().insert(tenant.clone());
            self.arrived.notify_waiters();
        }
    }

    /// Returns whether the document of a tenant has to be written, and forgets it.
    pub(super) fn take_changed(&self, tenant: &Tenant) -> bool {
        self.changed.lock().remove(tenant)
    }

    /// Returns the tenants whose documents have to be written.
    pub(super) fn changed(&self) -> Vec<Tenant> {
        self.changed.lock().iter().cloned().collect()
    }

    /// Notes that the document of a tenant has to be written.
    pub(super) fn mark_changed(&self, tenant: &Tenant) {
        self.changed.lock().insert(tenant.clone());
    }

    /// Returns the next message for a target: the first one of the tenant that comes after the last one.
    pub(super) fn pick(&self, wanted: &Wanted<'_>, now: Instant) -> Option<(Tenant, Message)> {
        let tenants = self.tenants.lock();
        let later = tenants.range((std::ops::Bound::Excluded(wanted.after.clone()), std::ops::Bound::Unbounded));
        let earlier = tenants.range(..=wanted.after.clone());
        later.chain(earlier).filter(|(tenant, _)| wanted.stored || *tenant == wanted.process).find_map(
            |(tenant, queues)| {
                let mut messages = queues.0.get(wanted.target)?.messages.iter();
                let fits = |message: &&Message| {
                    (message.kind.is_urgent() || !wanted.only_urgent) && message.next.is_none_or(|next| next <= now)
                };
                Some((tenant.clone(), messages.find(fits)?.clone()))
            },
        )
    }

    /// Removes a message that was sent or given up.
    pub(super) fn remove(&self, tenant: &Tenant, target: &str, id: &str) {
        let mut tenants = self.tenants.lock();
        if let Some(queue) = tenants.get_mut(tenant).and_then(|queues| queues.0.get_mut(target)) {
            queue.messages.retain(|message| message.id != id);
        }
        drop(tenants);
        self.changed.lock().insert(tenant.clone());
        self.sent.notify_one();
    }

    /// Notes a failed attempt at a message, which is not tried again before `next`. `None`: the target as a whole waits.
    pub(super) fn delay(&self, tenant: &Tenant, target: &str, id: &str, next: Option<Instant>) {
        let mut tenants = self.tenants.lock();
        let queue = tenants.get_mut(tenant).and_then(|queues| queues.0.get_mut(target));
        if let Some(message) = queue.and_then(|queue| queue.messages.iter_mut().find(|message| message.id == id)) {
            message.attempts += 1;
            message.refusals += u32::from(next.is_some());
            message.next = next;
        }
    }

    /// Removes the messages for a target that were queued before a time. Returns their number.
    pub(super) fn drop_old(&self, target: &str, before: u64) -> u64 {
        let mut dropped = 0;
        let mut tenants = self.tenants.lock();
        for (tenant, queues) in tenants.iter_mut() {
            let Some(queue) = queues.0.get_mut(target) else { continue };
            let known = queue.messages.len();
            queue.messages.retain(|message| message.queued > before);
            if queue.messages.len() < known {
                dropped += (known - queue.messages.len()) as u64;
                self.changed.lock().insert(tenant.clone());
            }
        }
        dropped
    }

    /// Returns the number of messages that wait for a target.
    pub(super) fn waiting(&self, target: &str) -> u64 {
        self.tenants
            .lock()
            .values()
            .filter_map(|queues| queues.0.get(target))
            .map(|queue| queue.messages.len() as u64)
            .sum()
    }
}
