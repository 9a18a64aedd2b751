//! A queue of lines to send, which never blocks a run.

use std::collections::{BTreeMap, VecDeque};

use flowcell_contract::RunId;
use flowcell_runtime::{Event, LiveEvent};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Notify;

/// Maximum number of lines in the queue.
const MAX_LINES: usize = 10_000;
/// Maximum bytes in the queue.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Number of lines in the queue from which on live events are dropped.
const MAX_BEFORE_LIVE: usize = 1_000;

/// One line, without its line end.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) text: Vec<u8>,
    /// The run and the number of the event in this line. In a `lagged` line, these are the run and the number of its
    /// first dropped event. `None` for a live event and for a line about the channel.
    pub(crate) event: Option<(RunId, u64)>,
}

/// A queue of lines with one consumer.
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    changed: Notify,
    closing: Notify,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Line>,
    bytes: usize,
    /// For each run, the numbers of the first and the last event that were dropped since the last `lagged` line.
    missed: BTreeMap<RunId, (u64, u64)>,
    closed: bool,
}

impl Outbox {
    /// Adds an event. If the queue is full, drops the event and records its number.
    pub(crate) fn put_event(&self, event: &Event) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.push_missed_if_half_empty();
        if !state.missed.is_empty() || state.is_full() {
            let missed = state.missed.entry(event.run_id.clone()).or_insert((event.seq, event.seq));
            missed.1 = event.seq;
            return;
        }
        state.push(event, Some((event.run_id.clone(), event.seq)));
        self.changed.notify_one();
    }

    /// Adds a live event if the queue has fewer than [`MAX_BEFORE_LIVE`] lines. Otherwise the event is dropped.
    pub(crate) fn put_live_event(&self, event: &LiveEvent) {
        let mut state = self.state.lock();
        if !state.closed && state.missed.is_empty() && state.lines.len() < MAX_BEFORE_LIVE && !state.is_full() {
            state.push(event, None);
            self.changed.notify_one();
        }
    }

    /// Adds a line about the channel itself.
    pub(crate) fn put_line(&self, line: &impl Serialize) {
        let mut state = self.state.lock();
        if !state.closed {
            state.push(line, None);
            self.changed.notify_one();
        }
    }

    /// Closes the queue. The consumer may still take the remaining lines.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.push_missed();
        state.closed = true;
        self.changed.notify_one();
        self.closing.notify_one();
    }

    /// Waits until the queue is closed. At most one tokio task may wait at a time.
    pub(crate) async fn wait_until_closed(&self) {
        while !self.state.lock().closed {
            self.closing.notified().await;
        }
    }

    /// Closes the queue and drops the remaining lines. Returns the run and the number of the first event that the
    /// consumer did not get. Returns `None` if the consumer got all events.
    pub(crate) fn abandon(&self) -> Option<(RunId, u64)> {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.lines).into_iter().find_map(|line| line.event);
        waiting.or_else(|| state.missed.iter().next().map(|(run, (from, _))| (run.clone(), *from)))
    }

    /// Waits for lines, and removes and returns them in order. It returns at least one line, and at most `lines`
    /// lines and `bytes` bytes. It returns `None` once the queue is closed and empty.
    pub(crate) async fn take(&self, lines: usize, bytes: usize) -> Option<Vec<Line>> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state.lock();
                let taken = state.take(lines, bytes);
                match (taken.is_empty(), state.closed) {
                    (false, _) => return Some(taken),
                    (true, true) => return None,
                    (true, false) => {}
                }
            }
            changed.await;
        }
    }
}

impl State {
    fn is_full(&self) -> bool {
        self.lines.len() >= MAX_LINES || self.bytes >= MAX_BYTES
    }

    /// If the queue is less than half full, adds a `lagged` line for each run whose events were dropped.
    fn push_missed_if_half_empty(&mut self) {
        if self.lines.len() < MAX_LINES / 2 && self.bytes < MAX_BYTES / 2 {
            self.push_missed();
        }
    }

    fn push_missed(&mut self) {
        for (run, (from, to)) in std::mem::take(&mut self.missed) {
            self.push(&json!({ "v": 1, "type": "lagged", "runId": run, "from": from, "to": to }), Some((run, from)));
        }
    }

    fn push(&mut self, line: &impl Serialize, event: Option<(RunId, u64)>) {
        // The line consists of JSON values, which always serialize.
        let Ok(text) = serde_json::to_vec(line) else { return };
        self.bytes += text.len();
        self.lines.push_back(Line { text, event });
    }

    fn take(&mut self, lines: usize, bytes: usize) -> Vec<Line> {
        let mut taken = Vec::new();
        let mut size = 0;
        while let Some(line) = self.lines.front()
            && taken.len() < lines
            && (taken.is_empty() || size + line.text.len() <= bytes)
        {
            size += line.text.len();
            taken.extend(self.lines.pop_front());
        }
        self.bytes -= size;
        taken
    }
}

#[cfg(test)]
mod tests {
    use flowcell_contract::{Json, Tenant};
    use serde_json::Value;

    use super::*;

    fn event(seq: u64) -> Event {
        let (tenant, run_id) = (Tenant::local(), RunId::from("r"));
        Event { seq, ts: 0, tenant, run_id, kind: "log", data: Json::object([("n", Json::from(seq))]) }
    }

    fn live() -> LiveEvent {
        let (tenant, run_id) = (Tenant::local(), RunId::from("r"));
        LiveEvent { ts: 0, tenant, run_id, kind: "agent:text".into(), data: Json::object([("delta", Json::from("a"))]) }
    }

    async fn rest(outbox: &Outbox) -> Vec<Value> {
        outbox.close();
        let mut all = Vec::new();
        while let Some(lines) = outbox.take(7, MAX_BYTES).await {
            assert!((1..=7).contains(&lines.len()));
            all.extend(lines.iter().map(|line| serde_json::from_slice::<Value>(&line.text).unwrap()));
        }
        all
    }

    #[tokio::test]
    async fn dropped_events_are_reported_by_their_numbers() {
        let outbox = Outbox::default();
        let full = MAX_LINES as u64;
        (0..full + 5).for_each(|seq| outbox.put_event(&event(seq)));
        outbox.put_live_event(&live());
        while outbox.state.lock().lines.len() >= MAX_LINES / 2 {
            outbox.take(100, MAX_BYTES).await.unwrap();
        }
        outbox.put_event(&event(full + 5));
        let rest = rest(&outbox).await;
        let tail: Vec<_> = rest.iter().rev().take(3).map(|line| (&line["type"], &line["seq"])).collect();
        assert_eq!(tail[0], (&json!("log"), &json!(full + 5)));
        assert_eq!(tail[1].0, &json!("lagged"));
        assert_eq!((&rest[rest.len() - 2]["from"], &rest[rest.len() - 2]["to"]), (&json!(full), &json!(full + 4)));
        assert_eq!(tail[2], (&json!("log"), &json!(full - 1)));
    }

    #[tokio::test]
    async fn events_dropped_at_the_end_are_reported() {
        let outbox = Outbox::default();
        (0..MAX_LINES as u64 + 2).for_each(|seq| outbox.put_event(&event(seq)));
        let rest = rest(&outbox).await;
        assert_eq!(rest.len(), MAX_LINES + 1);
        assert_eq!(rest[MAX_LINES]["type"], "lagged");
        outbox.put_event(&event(1));
        assert!(outbox.take(1, 1).await.is_none(), "a closed outbox takes nothing");
    }

    #[tokio::test]
    async fn live_events_are_dropped_first() {
        let outbox = Outbox::default();
        (0..MAX_BEFORE_LIVE as u64).for_each(|seq| outbox.put_event(&event(seq)));
        outbox.put_live_event(&live());
        outbox.put_event(&event(MAX_BEFORE_LIVE as u64));
        let rest = rest(&outbox).await;
        assert!(rest.len() == MAX_BEFORE_LIVE + 1 && rest.iter().all(|line| line["type"] == "log"));
    }

    #[tokio::test]
    async fn a_large_line_is_sent_alone() {
        let outbox = Outbox::default();
        (0..3).for_each(|seq| outbox.put_event(&event(seq)));
        assert_eq!(outbox.take(100, 1).await.unwrap().len(), 1);
        assert_eq!(outbox.abandon(), Some((RunId::from("r"), 1)));
        assert!(outbox.take(100, 1).await.is_none());
    }
}
