//! Tests the relay of live events between processes without a store.

use std::collections::VecDeque;

use flowcell_contract::Json;
use flowcell_runtime::{Channel, Event};
use tokio::sync::broadcast;

use super::{
    interests::{INTEREST_TIME, MAX_INTERESTS},
    *,
};

/// Keeps the messages that a process sends.
#[derive(Default)]
struct Wire(Mutex<VecDeque<String>>);

impl Relay for Wire {
    fn send(&self, message: String) -> bool {
        self.0.lock().push_back(message);
        true
    }

    fn receive(&self) -> Receiver<Arc<str>> {
        broadcast::Sender::new(1).subscribe()
    }
}

/// A process without driven runs.
struct Process {
    wire: Arc<Wire>,
    live: LiveRelay,
}

impl Process {
    fn new() -> Process {
        let wire = Arc::<Wire>::default();
        Process { live: LiveRelay::new(wire.clone(), Arc::default()), wire }
    }

    fn sent(&self) -> Vec<String> {
        self.wire.0.lock().drain(..).collect()
    }

    /// Delivers the messages of another process.
    fn hear(&self, other: &Process, now: Instant) {
        other.sent().iter().for_each(|message| self.live.handle(message, now));
    }

    fn follow(&self, tenant: &str, run: &str, next: u64) -> (Arc<Seen>, Arc<Subscription>) {
        let seen = Arc::<Seen>::default();
        let subscription = self.live.subscribe(&tenant.into(), &run.into(), next, Box::new(Recorder(seen.clone())));
        (seen, subscription)
    }

    fn sender(&self, tenant: &str, run: &str, now: Instant) -> Option<RelaySender> {
        self.live.new_sender(&(tenant.into(), run.into()), now)
    }
}

/// The events that a subscriber has received.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Seen {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// The receiver of a subscription.
struct Recorder(Arc<Seen>);

impl RemoteEvents for Recorder {
    fn on_live(&self, event: &LiveEvent) {
        self.0.0.lock().push(serde_json::to_string(event).unwrap());
    }

    fn on_recorded(&self, seq: u64, kind: &str) {
        self.0.0.lock().push(format!("{seq} {kind}"));
    }
}

fn live(tenant: &str, run: &str) -> LiveEvent {
    let data = Json::object([("delta", Json::from("hello"))]);
    LiveEvent { ts: 7, tenant: tenant.into(), run_id: run.into(), kind: "agent:text".into(), data }
}

fn recorded(run: &str, seq: u64) -> Event {
    let data = Json::object([("taskId", Json::from("a"))]);
    Event { seq, ts: 7, tenant: "t".into(), run_id: run.into(), kind: "task:start", data }
}

fn text(event: &LiveEvent) -> String {
    serde_json::to_string(event).unwrap()
}

#[test]
fn events_of_a_run_and_the_runs_below_it_reach_its_subscribers() {
    let (driver, reader, now) = (Process::new(), Process::new(), Instant::now());
    let (seen, _subscription) = reader.follow("t", "r", 2);
    driver.hear(&reader, now);
    let sender = driver.sender("t", "r", now).unwrap();
    let (own, below) = (live("t", "r"), live("t", "r.call.1"));
    sender.on_live(&own);
    sender.on_live(&below);
    (0..4).for_each(|seq| sender.on_event(&recorded("r", seq)));
    sender.on_event(&recorded("r.call.1", 9));
    reader.hear(&driver, now);
    let expected = [text(&own), text(&below), "2 task:start".to_owned(), "3 task:start".to_owned()];
    assert_eq!(seen.take(), expected, "the subscriber has read the events before the number 2");
}

#[test]
fn no_other_tenant_and_no_other_run_receives_an_event() {
    let (driver, reader, now) = (Process::new(), Process::new(), Instant::now());
    let others = [reader.follow("u", "r", 0), reader.follow("t", "r2", 0), reader.follow("t", "r.call.1", 0)];
    driver.hear(&reader, now);
    assert!(driver.sender("t", "r", now).is_none(), "no subscriber of this run and this tenant");
    let (seen, _subscription) = reader.follow("t", "r", 0);
    driver.hear(&reader, now);
    let sender = driver.sender("t", "r", now).unwrap();
    sender.on_live(&live("u", "r"));
    assert_eq!(driver.sent(), [""; 0], "an event of another tenant is not sent");
    sender.on_live(&live("t", "r"));
    sender.on_live(&live("t", "r2"));
    sender.on_event(&recorded("r", 0));
    reader.hear(&driver, now);
    assert_eq!(seen.take(), [text(&live("t", "r")), "0 task:start".to_owned()]);
    for (other, _) in &others {
        assert_eq!(other.take(), [""; 0]);
    }
}

#[test]
fn a_sender_is_silent_without_interest_and_goes_on_with_a_new_one() {
    let (driver, reader, now) = (Process::new(), Process::new(), Instant::now());
    let (seen, subscription) = reader.follow("t", "r", 0);
    // The interest began so long ago that it has ended.
    let began = now.checked_sub(INTEREST_TIME).unwrap();
    driver.hear(&reader, began);
    let sender = driver.sender("t", "r", began).unwrap();
    assert!(driver.sender("t", "r", began).is_none(), "a run has one sender");
    sender.on_live(&live("t", "r"));
    sender.on_event(&recorded("r", 0));
    assert_eq!(driver.sent(), [""; 0]);
    driver.live.announce(now);
    subscription.has_read_until(5);
    reader.live.announce(now);
    driver.hear(&reader, now);
    assert!(driver.sender("t", "r", now).is_none(), "the sender is still attached");
    sender.on_event(&recorded("r", 4));
    sender.on_event(&recorded("r", 5));
    reader.hear(&driver, now);
    assert_eq!(seen.take(), ["5 task:start"]);
    drop(sender);
    assert!(driver.sender("t", "r", now).is_some(), "the next driver of the run gets a sender");
}

#[test]
fn an_ended_subscription_is_not_announced() {
    let (reader, now) = (Process::new(), Instant::now());
    let (_, subscription) = reader.follow("t", "r", 0);
    let first = reader.sent();
    reader.live.announce(now);
    assert_eq!(reader.sent(), first);
    drop(subscription);
    reader.live.announce(now);
    assert_eq!(reader.sent(), [""; 0]);
}

#[test]
fn interests_are_bounded_and_end() {
    let (process, now) = (Process::new(), Instant::now());
    let interests = &process.live.interests;
    (0..=MAX_INTERESTS).for_each(|run| interests.record(&("t".into(), run.to_string().into()), 0, now));
    let is_known = |run: usize, now| interests.current(&("t".into(), run.to_string().into()), now).is_some();
    assert!(is_known(MAX_INTERESTS - 1, now) && !is_known(MAX_INTERESTS, now));
    assert!(!is_known(0, now + INTEREST_TIME));
    interests.remove_expired(now + INTEREST_TIME);
    interests.record(&("t".into(), "new".into()), 0, now);
    assert!(interests.current(&("t".into(), "new".into()), now).is_some());
}

#[test]
fn unknown_messages_are_ignored() {
    let process = Process::new();
    let (seen, _subscription) = process.follow("t", "r", 0);
    for message in ["", "[]", "{}", r#"{"type":"later","tenant":"t","run":"r"}"#, r#"{"type":"live","run":"r"}"#] {
        process.live.handle(message, Instant::now());
    }
    assert_eq!(seen.take(), [""; 0]);
}
