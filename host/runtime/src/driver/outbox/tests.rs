//! Facts reach the journal once and in order, and effects follow them.

use std::sync::{Arc, Mutex};

use flowcell_contract::{Json, Value};

use super::{OnDurable, Outbox};
use crate::{
    driver::{Driver, testing::begun},
    event::Event,
    fact::{Fact, ParkReason, RunEnd, Write},
    hub::Channel,
    memory::MemoryState,
    ports::{StageError, StoredStatus, Unit},
    publish::Projector,
    tests::graphs::Plan,
};

/// A channel that records the numbers of events, and panics if `is_broken` is set.
#[derive(Default)]
struct Recorder {
    seen: Mutex<Vec<u64>>,
    is_broken: bool,
}

impl Channel for Recorder {
    fn on_event(&self, event: &Event) {
        self.seen.lock().unwrap().push(event.seq);
        assert!(!self.is_broken, "this channel is broken");
    }
}

fn started() -> Fact {
    Fact::RunStarted {
        input: Json::object::<&str>([]),
        seed: 1,
        deadline: None,
        about: None,
        loops: false,
        nested: false,
        hides_seed: true,
    }
}

fn parked() -> Fact {
    Fact::RunParked { due: Some(7), reason: ParkReason::Waiting, waits_for: None, quota: None }
}

fn said() -> Fact {
    Fact::MessageSent { content: Value::null() }
}

fn unit(outbox: &Outbox, fact: Fact) -> Arc<Unit> {
    Arc::new(Unit { first_seq: outbox.next_seq, ts: 10, facts: vec![fact] })
}

/// Appends a fact, and holds its events back.
fn append(driver: &mut Driver, fact: Fact) {
    let unit = unit(&driver.outbox, fact);
    let entry = driver.outbox.add(&unit, &driver.state, true);
    driver.world.journal.append(entry);
    driver.outbox.hold(OnDurable::Publish(unit));
}

/// Publishes the durable units.
fn publish_all(driver: &mut Driver) {
    while let Some(OnDurable::Publish(unit)) = driver.outbox.next_effect() {
        driver.outbox.publish(&unit);
    }
}

#[test]
fn additions_go_with_one_unit() {
    let Driver { mut outbox, state, .. } = begun(vec![Plan::Done]);
    let write = Write { key: "count".into(), value: Value::null(), expected: None };
    outbox.stage(&MemoryState::default(), &state.graph.name, vec![write]).unwrap();
    outbox.delivered = Some(3);
    let first = outbox.add(&unit(&outbox, started()), &state, true);
    assert!(first.record.is_some() && first.writes.is_some_and(|staged| staged.writes.len() == 1));
    assert_eq!((first.delivered, outbox.next_seq), (Some(3), 1));
    let second = outbox.add(&unit(&outbox, said()), &state, true);
    assert!(second.record.is_none() && second.writes.is_none());
    assert_eq!((second.delivered, outbox.next_seq), (None, 2));
}

#[test]
fn a_write_that_came_too_late_is_not_staged() {
    let Driver { mut outbox, state, .. } = begun(vec![Plan::Done]);
    let write = |expected| vec![Write { key: "count".into(), value: Value::null(), expected }];
    let store = MemoryState::default();
    outbox.stage(&store, &state.graph.name, write(Some(0))).unwrap();
    assert!(outbox.add(&unit(&outbox, started()), &state, true).writes.is_some());
    let late = outbox.stage(&store, &state.graph.name, write(Some(0)));
    assert!(matches!(late, Err(StageError::Conflict(key)) if key == "count"));
    assert!(outbox.add(&unit(&outbox, said()), &state, true).writes.is_none());
}

#[test]
fn anything_that_happens_to_a_parked_run_makes_it_active() {
    let Driver { mut outbox, state, .. } = begun(vec![Plan::Done]);
    let mut status = |fact| outbox.add(&unit(&outbox, fact), &state, true).status;
    assert_eq!(status(started()), Some(StoredStatus::Active));
    assert_eq!(status(said()), None);
    assert_eq!(status(parked()), Some(StoredStatus::Parked { due: Some(7), needs_attention: false }));
    assert_eq!(status(said()), Some(StoredStatus::Active));
    assert_eq!(status(said()), None);
}

#[test]
fn a_recovered_run_is_still_parked() {
    let Driver { mut outbox, state, .. } = begun(vec![Plan::Done]);
    outbox.recover(&unit(&outbox, started()));
    outbox.recover(&unit(&outbox, parked()));
    outbox.finish_recovery();
    let entry = outbox.add(&unit(&outbox, said()), &state, true);
    assert_eq!((entry.status, entry.unit.first_seq), (Some(StoredStatus::Active), 2));
    assert!(entry.record.is_none(), "the journal has the record");
}

#[test]
fn the_journal_is_forced_once_for_facts_that_callers_wait_for() {
    let Driver { mut outbox, state, .. } = begun(vec![Plan::Done]);
    assert!(!outbox.add(&unit(&outbox, said()), &state, true).force && !outbox.take_force_request());
    assert!(outbox.add(&unit(&outbox, parked()), &state, true).force && outbox.is_hurried());
    assert!(outbox.take_force_request() && !outbox.take_force_request());
    let ended = || Fact::RunEnded { end: Box::new(RunEnd::Cancelled { outputs: Json::Null }) };
    assert!(!outbox.add(&unit(&outbox, ended()), &state, false).force, "only the parent waits for the end of a child");
    assert!(outbox.add(&unit(&outbox, ended()), &state, true).force);
}

#[test]
fn a_broken_channel_does_not_keep_events_from_others() {
    let mut driver = begun(vec![Plan::Done]);
    let channels = [true, false].map(|is_broken| Arc::new(Recorder { is_broken, ..Recorder::default() }));
    driver.outbox.set_channels(channels.iter().map(|channel| channel.clone() as Arc<dyn Channel>).collect());
    append(&mut driver, said());
    publish_all(&mut driver);
    let [broken, other] = channels.map(|channel| channel.seen.lock().unwrap().clone());
    assert!(!other.is_empty() && broken == other);
}

#[test]
fn a_late_channel_gets_every_event_once() {
    let mut driver = begun(vec![Plan::Done]);
    let early = Arc::new(Recorder::default());
    driver.outbox.set_channels(vec![early.clone()]);
    append(&mut driver, said());
    publish_all(&mut driver);
    append(&mut driver, said());
    let late = Arc::new(Recorder::default());
    let (tenant, run) = (driver.identity.tenant.clone(), driver.identity.run_id.clone());
    let projector = Projector::new(tenant, run, driver.state.graph.clone());
    driver.outbox.attach(late.clone(), projector, &*driver.world.journal);
    let replayed = late.seen.lock().unwrap().len();
    assert_eq!(replayed, early.seen.lock().unwrap().len(), "the second unit is not told yet");
    publish_all(&mut driver);
    assert!(late.seen.lock().unwrap().len() > replayed);
    assert_eq!(*late.seen.lock().unwrap(), *early.seen.lock().unwrap());
}
