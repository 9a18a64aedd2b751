//! Slow subscribers, and subscribers that reconnect. Each receives every event once and in order, or gets a notice of
//! the gap.

use serde_json::{Value, json};

use crate::{
    client::Served,
    stream::{Sent, Stream},
};

/// The passes of the run's loop. Each outputs a text, so that the events fill the socket buffers of a client that does
/// not read.
const PASSES: usize = 300;
const PATH: &str = "/v1/runs/r/events/stream";

/// Returns a flow that waits at a gate until all subscribers listen, and then creates many events.
fn flow_with_many_events() -> Value {
    json!({
        "flow": { "name": "tells", "input": { "list": vec![1; PASSES], "text": "x".repeat(2_000) } },
        "nodes": [
            { "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes", "no"] } },
            {
                "id": "each", "type": "control.foreach",
                "input": { "list": "{{ flow.input.list }}", "as": "item", "concurrency": 4 },
                "body": {
                    "nodes": [{ "id": "say", "type": "data.template", "input": { "template": "{{ flow.input.text }}" } }],
                    "edges": [],
                },
                "bodyOutput": "{{ item }}",
            },
        ],
        "edges": [{ "from": "ok", "to": "each" }],
    })
}

/// Returns all remaining events of a stream.
fn rest(stream: &mut Stream) -> Vec<Sent> {
    std::iter::from_fn(|| stream.next()).collect()
}

/// Checks that every event up to the end was received once and in order, or that a notice covers the gap.
fn check(heard: &[Sent], end: u64) {
    let (mut next, mut gap) = (0, None);
    for sent in heard {
        if sent.kind == "lagged" {
            assert_eq!(sent.data["from"], next, "{}", sent.data);
            gap = Some(sent.data["to"].as_u64().unwrap() + 1);
        }
        let Some(id) = sent.id else { continue };
        assert_eq!(id, gap.take().unwrap_or(next), "{}", sent.kind);
        assert_eq!(sent.data["seq"], id);
        next = id + 1;
    }
    assert_eq!(next, end, "the end was not told");
}

#[test]
fn r26_slow_and_reconnecting_subscribers_receive_each_event_once() {
    let served = Served::local();
    let start = json!({ "flow": flow_with_many_events(), "runId": "r" });
    assert_eq!(served.post("/v1/runs?wait=true", &start).json()["status"], "parked");
    let open = |last: Option<u64>| {
        let last = last.map(|last| last.to_string());
        let headers: Vec<_> = last.iter().map(|last| ("Last-Event-ID", last.as_str())).collect();
        Stream::open(&served, PATH, &headers)
    };
    // These clients read nothing until the run has ended.
    let mut slow: Vec<_> = (0..10).map(|_| open(None)).collect();
    let mut quick: Vec<_> = (0..10).map(|_| open(None)).collect();
    std::thread::scope(|scope| {
        let quick: Vec<_> = quick.iter_mut().map(|stream| scope.spawn(|| rest(stream))).collect();
        let again: Vec<_> = (0..20).map(|number| scope.spawn(move || read_with_reconnects(open, number))).collect();
        assert_eq!(served.post("/v1/runs/r/gates/ok/reply", &json!({ "answer": "yes" })).status, 200);
        let ended = served.post("/v1/runs?wait=true", &start).json();
        assert_eq!(ended["status"], "succeeded", "{ended}");
        let end = end_of(&served);
        assert!(end > PASSES as u64, "{end}");
        for listener in quick.into_iter().chain(again) {
            check(&listener.join().unwrap(), end);
        }
        slow.iter_mut().for_each(|stream| check(&rest(stream), end));
    });
}

/// Returns the number of the run's last event, plus one.
fn end_of(served: &Served) -> u64 {
    let mut next = 0;
    loop {
        let page = served.get(&format!("/v1/runs/r/events?from={next}&limit=100")).json();
        if page["events"].as_array().unwrap().is_empty() {
            return next;
        }
        next = page["next"].as_u64().unwrap();
    }
}

/// Reads a stream up to the end of the run over many connections: each one reads a few events, and the next one
/// continues after the last received event. `number` varies how many events each connection reads.
fn read_with_reconnects(open: impl Fn(Option<u64>) -> Stream, number: u64) -> Vec<Sent> {
    let mut heard: Vec<Sent> = Vec::new();
    while heard.last().is_none_or(|sent| sent.kind != "harness:complete") {
        let mut stream = open(heard.iter().rev().find_map(|sent| sent.id));
        let before = heard.len();
        let some = 20 + (number + heard.len() as u64) % 97;
        heard.extend(std::iter::from_fn(|| stream.next()).take(some as usize));
        assert!(heard.len() > before, "nothing was told");
        // The next stream sends the missed events from the journal.
        heard.truncate(heard.iter().rposition(|sent| sent.kind != "lagged").map_or(0, |last| last + 1));
    }
    heard
}
