//! The path of facts from a run to the journal, and from there to subscribers and callers.

use std::sync::Arc;

use flowcell_contract::Json;
use flowcell_flow::graph::Node;
use tokio::sync::oneshot;

use super::{
    durability::{self, DurabilityQueue, OnDurable},
    journal::each_unit,
    options::Identity,
};
use crate::{
    capture,
    command::HubError,
    event::{Event, LiveEvent},
    fact::{AboutRun, Write},
    hub::Channel,
    ports::{Change, Entry, Journal, Projection, Record, StageError, Staged, StateStore, StoredStatus, Unit},
    publish::{FLOW_STEP, Projector},
    state::RunState,
};

/// The additions to the next unit, and the effects that wait until units are durable.
pub(super) struct Outbox {
    identity: Identity,
    /// The number of the next fact.
    pub(super) next_seq: u64,
    /// The record of a new run, or its changed record. The journal gets it with the next unit.
    pub(super) record: Option<Record>,
    /// State writes that become durable with the next unit.
    staged: Option<Staged>,
    /// Rows that the next unit changes.
    pub(super) rows: Vec<Change>,
    /// The message of the store's inbox that the next unit records as delivered.
    pub(super) delivered: Option<u64>,
    /// Derives the changes of sessions and step states from facts. `None`: the flow has no sessions.
    projection: Option<Box<dyn Projection>>,
    queue: DurabilityQueue,
    /// True if a caller waits for the journal, and the journal is not forced yet.
    hurried: bool,
    /// True if the store lists the run as parked.
    parked: bool,
    /// What a new run holds until the store lists it.
    pub(super) until_listed: Vec<Box<dyn Send>>,
    projector: Projector,
    channels: Vec<Arc<dyn Channel>>,
}

impl Outbox {
    /// Creates the outbox of a new run.
    pub(super) fn new(
        identity: Identity,
        record: Record,
        projection: Option<Box<dyn Projection>>,
        projector: Projector,
    ) -> Outbox {
        Outbox {
            identity,
            next_seq: 0,
            record: Some(record),
            staged: None,
            rows: Vec::new(),
            delivered: None,
            projection,
            queue: DurabilityQueue::default(),
            hurried: false,
            parked: false,
            until_listed: Vec::new(),
            projector,
            channels: Vec::new(),
        }
    }

    /// Adds a unit, and returns its entry for the journal. `top`: the run has no parent.
    pub(super) fn add(&mut self, unit: &Arc<Unit>, state: &RunState, top: bool) -> Entry {
        self.next_seq = unit.next_seq();
        let status = StoredStatus::after_unit(&unit.facts, self.parked);
        self.parked = matches!(status, Some(StoredStatus::Parked { .. }));
        let mut rows = std::mem::take(&mut self.rows);
        if let Some(projection) = &mut self.projection {
            rows.extend(projection.project(unit, &|task| capture::render_members(state, task)));
        }
        let force = unit.facts.iter().any(|fact| durability::is_waited_for(fact, top));
        self.hurried |= force;
        Entry {
            tenant: self.identity.tenant.clone(),
            run: self.identity.run_id.clone(),
            unit: unit.clone(),
            record: self.record.take(),
            writes: self.staged.take(),
            rows,
            status,
            force,
            durable: self.queue.durable(),
            delivered: self.delivered.take(),
        }
    }

    /// Folds a unit that the journal already has into the projections.
    pub(super) fn recover(&mut self, unit: &Unit) {
        self.next_seq = unit.next_seq();
        self.projector.project(unit);
        if let Some(projection) = &mut self.projection {
            // The writer of the unit has already changed its rows.
            projection.project(unit, &|_| Json::Null);
        }
        self.parked = matches!(StoredStatus::after_unit(&unit.facts, self.parked), Some(StoredStatus::Parked { .. }));
    }

    /// Records that all units so far are durable and published.
    pub(super) fn finish_recovery(&mut self) {
        self.record = None;
        self.queue = DurabilityQueue::from(self.next_seq);
    }

    /// Makes state writes visible to other attempts and runs. The writes become durable with the next unit.
    pub(super) fn stage(
        &mut self,
        store: &dyn StateStore,
        flow: &Arc<str>,
        writes: Vec<Write>,
    ) -> Result<(), StageError> {
        if !writes.is_empty() {
            self.staged = Some(store.stage(&self.identity.tenant, flow, writes)?);
        }
        Ok(())
    }

    /// Holds an effect back until all units so far are durable.
    pub(super) fn hold(&mut self, deferred: OnDurable) {
        self.queue.add(self.next_seq, deferred);
    }

    /// Holds back an effect that a caller waits for. The driver then forces the journal.
    pub(super) fn hold_and_hurry(&mut self, deferred: OnDurable) {
        self.hold(deferred);
        self.hurried = true;
    }

    /// Answers a request when all units so far are durable. So the facts of an acknowledged request are on stable
    /// storage, and so are the facts that caused a refusal.
    pub(super) fn acknowledge(&mut self, answer: oneshot::Sender<Result<(), HubError>>, outcome: Result<(), HubError>) {
        self.hold_and_hurry(OnDurable::Acknowledge(answer, outcome));
    }

    /// Removes and returns the next effect whose facts are durable.
    pub(super) fn next_effect(&mut self) -> Option<OnDurable> {
        self.queue.next_effect()
    }

    /// Returns the effects that are held back.
    pub(super) fn queue(&mut self) -> &mut DurabilityQueue {
        &mut self.queue
    }

    /// Returns true if the store lists the run as parked.
    pub(super) fn is_parked(&self) -> bool {
        self.parked
    }

    /// Returns whether the store refuses all further units of this driver.
    pub(super) fn is_refused(&self) -> bool {
        self.queue.is_refused()
    }

    /// Returns whether a caller waits for the journal, and the journal is not forced yet.
    pub(super) fn is_hurried(&self) -> bool {
        self.hurried
    }

    /// Returns true if the journal has to be forced now, and resets the flag. One force serves all callers that wait.
    pub(super) fn take_force_request(&mut self) -> bool {
        std::mem::take(&mut self.hurried)
    }

    pub(super) fn channels(&self) -> &[Arc<dyn Channel>] {
        &self.channels
    }

    pub(super) fn set_channels(&mut self, channels: Vec<Arc<dyn Channel>>) {
        self.channels = channels;
    }

    /// Attaches a channel after replaying the earlier events to it.
    pub(super) fn attach(&mut self, channel: Arc<dyn Channel>, mut projector: Projector, journal: &dyn Journal) {
        let Identity { tenant, run_id, .. } = &self.identity;
        let published = self.queue.published_until();
        let read = each_unit(journal, tenant, run_id, |unit| {
            if unit.next_seq() <= published {
                projector.project(&unit).iter().for_each(|event| channel.on_event(event));
            }
        });
        if let Err(error) = read {
            tracing::warn!(run = %run_id, "a channel that was attached late misses the earlier events: {error}");
        }
        self.projector = projector;
        self.channels.push(channel);
    }

    /// Publishes a durable unit to the channels.
    pub(super) fn publish(&mut self, unit: &Unit) {
        if self.channels.is_empty() {
            return;
        }
        for event in self.projector.project(unit) {
            self.each_channel(&event, event.kind, |channel, event: &Event| channel.on_event(event));
        }
    }

    /// Returns the facts about a new run that expressions can read. `None`: the run is not new.
    pub(super) fn about(&self) -> Option<Box<AboutRun>> {
        let record = self.record.as_ref()?;
        let (run, tenant) = (self.identity.run_id.clone(), self.identity.tenant.clone());
        Some(Box::new(AboutRun { run, tenant, version: record.version, labels: record.labels.clone() }))
    }

    /// Publishes an event of a node with these members, without recording it.
    pub(super) fn publish_live(&self, ts: u64, node: &Node, kind: Box<str>, members: &Json) {
        if self.channels.is_empty() {
            return;
        }
        let mut data = vec![("nodeId".into(), Json::from(node.id.0.clone()))];
        data.extend(node.labels.get(FLOW_STEP).map(|step| (FLOW_STEP.into(), step.clone())));
        data.extend(members.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        let (tenant, run_id) = (self.identity.tenant.clone(), self.identity.run_id.clone());
        let event = LiveEvent { ts, tenant, run_id, kind, data: Json::object(data) };
        self.each_channel(&event, &event.kind, |channel, event| channel.on_live(event));
    }

    /// Calls `send` for each channel. A panic in a channel affects neither the run nor other channels.
    fn each_channel<E>(&self, event: &E, kind: &str, send: impl Fn(&dyn Channel, &E)) {
        for channel in &self.channels {
            let sent = std::panic::AssertUnwindSafe(|| send(&**channel, event));
            if std::panic::catch_unwind(sent).is_err() {
                tracing::warn!(run = %self.identity.run_id, "a channel panicked at {kind}");
            }
        }
    }
}

/// Returns the message about a state write whose expected version is no longer the present one.
pub(super) fn conflict(key: &str) -> String {
    format!("another run has written the state `{key}` in the meantime")
}

#[cfg(test)]
mod tests;
