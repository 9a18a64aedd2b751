//! What goes from a run to the journal, and from there to those who wait for it.

use std::sync::Arc;

use flowcell_contract::{Json, RunId};
use tokio::sync::oneshot;

use super::trail::{self, Deferred, Trail};
use crate::{
    capture,
    command::HubError,
    event::{Event, LiveEvent},
    hub::Channel,
    live::Starting,
    ports::{Change, Durable, Projection, Record, Staged, StoredStatus, Unit},
    publish::Projector,
    state::RunState,
};

/// What the next unit takes with it, and what waits until units are durable.
pub(super) struct Outbox {
    run: RunId,
    /// The number of the next fact.
    pub(super) next_seq: u64,
    /// Written with the first unit.
    pub(super) record: Option<Record>,
    /// State that the next unit makes durable.
    pub(super) staged: Option<Staged>,
    /// Rows that the next unit changes.
    pub(super) rows: Vec<Change>,
    /// The message of the store's inbox that the next unit takes in.
    pub(super) delivered: Option<u64>,
    /// Says which rows beside the journal change with which facts, if the flow has such.
    projection: Option<Box<dyn Projection>>,
    trail: Trail,
    /// Somebody waits for the journal, which is not forced yet.
    hurried: bool,
    /// The store has the run as parked.
    parked: bool,
    /// Counts the run until the store shows it.
    pub(super) starting: Option<Starting>,
    projector: Projector,
    channels: Vec<Arc<dyn Channel>>,
}

/// What is written beside a unit.
pub(super) struct Beside {
    pub(super) record: Option<Record>,
    pub(super) writes: Option<Staged>,
    pub(super) rows: Vec<Change>,
    pub(super) standing: Option<StoredStatus>,
    pub(super) force: bool,
    pub(super) durable: Arc<Durable>,
    pub(super) delivered: Option<u64>,
}

impl Outbox {
    /// An outbox for a run of which nothing has happened yet.
    pub(super) fn new(
        run: RunId,
        record: Record,
        projection: Option<Box<dyn Projection>>,
        projector: Projector,
    ) -> Outbox {
        Outbox {
            run,
            next_seq: 0,
            record: Some(record),
            staged: None,
            rows: Vec::new(),
            delivered: None,
            projection,
            trail: Trail::default(),
            hurried: false,
            parked: false,
            starting: None,
            projector,
            channels: Vec::new(),
        }
    }

    /// Takes in a unit that happens now, and answers what is written beside it. Of a run that another driver drives along
    /// (not `top`) nobody else waits for the end.
    pub(super) fn add(&mut self, unit: &Arc<Unit>, state: &RunState, top: bool) -> Beside {
        self.next_seq = unit.next_seq();
        // Whatever happens to a parked run makes it one that somebody should drive.
        let standing = unit.facts.iter().rev().find_map(trail::standing);
        let standing = standing.or(self.parked.then_some(StoredStatus::Active));
        self.parked = matches!(standing, Some(StoredStatus::Parked { .. }));
        let mut rows = std::mem::take(&mut self.rows);
        if let Some(projection) = &mut self.projection {
            rows.extend(projection.project(unit, &|task| capture::render_members(state, task)));
        }
        let force = unit.facts.iter().any(|fact| trail::is_waited_for(fact, top));
        self.hurried |= force;
        Beside {
            record: self.record.take(),
            writes: self.staged.take(),
            rows,
            standing,
            force,
            durable: self.trail.durable(),
            delivered: self.delivered.take(),
        }
    }

    /// Takes in a unit that the journal has.
    pub(super) fn recover(&mut self, unit: &Unit) {
        self.next_seq = unit.next_seq();
        self.projector.project(unit);
        if let Some(projection) = &mut self.projection {
            // Its rows were changed when it was written.
            projection.project(unit, &|_| Json::Null);
        }
        if let Some(standing) = unit.facts.iter().rev().find_map(trail::standing) {
            self.parked = matches!(standing, StoredStatus::Parked { .. });
        }
    }

    /// Everything so far is durable and told.
    pub(super) fn recovered(&mut self) {
        self.record = None;
        self.trail = Trail::from(self.next_seq);
    }

    /// Holds something back until everything so far is durable.
    pub(super) fn hold(&mut self, deferred: Deferred) {
        self.trail.add(self.next_seq, deferred);
    }

    /// Holds something back for which somebody waits.
    pub(super) fn hold_and_hurry(&mut self, deferred: Deferred) {
        self.hold(deferred);
        self.hurried = true;
    }

    /// Acknowledges a request. Acknowledged is what is on stable storage, and so is what a refusal follows from.
    pub(super) fn acknowledge(&mut self, answer: oneshot::Sender<Result<(), HubError>>, outcome: Result<(), HubError>) {
        self.hold_and_hurry(Deferred::Acknowledge(answer, outcome));
    }

    /// The next thing that may go.
    pub(super) fn next(&mut self) -> Option<Deferred> {
        self.trail.next()
    }

    /// What is held back, in order.
    pub(super) fn trail(&mut self) -> &mut Trail {
        &mut self.trail
    }

    /// Whether the store takes nothing more from this driver.
    pub(super) fn is_refused(&self) -> bool {
        self.trail.is_refused()
    }

    /// Whether somebody waits for the journal, which is not forced yet.
    pub(super) fn is_hurried(&self) -> bool {
        self.hurried
    }

    /// The journal is forced now, if anybody waits for it.
    pub(super) fn take_hurry(&mut self) -> bool {
        std::mem::take(&mut self.hurried)
    }

    /// What comes before this number has been told.
    pub(super) fn told(&self) -> u64 {
        self.trail.told()
    }

    pub(super) fn channels(&self) -> &[Arc<dyn Channel>] {
        &self.channels
    }

    pub(super) fn set_channels(&mut self, channels: Vec<Arc<dyn Channel>>) {
        self.channels = channels;
    }

    /// Adds a channel that was told the same as the others, by this projector.
    pub(super) fn attach(&mut self, channel: Arc<dyn Channel>, projector: Projector) {
        self.projector = projector;
        self.channels.push(channel);
    }

    /// Tells the channels of a unit that is durable.
    pub(super) fn tell(&mut self, unit: &Unit) {
        if self.channels.is_empty() {
            return;
        }
        for event in self.projector.project(unit) {
            self.each_channel(&event, event.kind, |channel, event: &Event| channel.on_event(event));
        }
    }

    /// Tells the channels of something that is not recorded.
    pub(super) fn tell_live(&self, event: &LiveEvent) {
        self.each_channel(event, &event.kind, |channel, event| channel.on_live(event));
    }

    /// A panic in a channel is the channel's own.
    fn each_channel<E>(&self, event: &E, kind: &str, tell: impl Fn(&dyn Channel, &E)) {
        for channel in &self.channels {
            let told = std::panic::AssertUnwindSafe(|| tell(&**channel, event));
            if std::panic::catch_unwind(told).is_err() {
                tracing::warn!(run = %self.run, "a channel panicked at {kind}");
            }
        }
    }
}
