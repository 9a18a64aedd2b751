//! Events by page, as server-sent events, and over a WebSocket.

use std::{
    io::{BufReader, Read, Write},
    net::TcpStream,
    sync::mpsc,
    thread,
};

use flowcell_platform::policy::Policy;
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served, connect, head, send},
    samples::{asks, hello},
    stream::{Sent, Stream},
    tenants::{call, served},
};

fn numbers(sent: &[Sent]) -> Vec<u64> {
    sent.iter().filter_map(|sent| sent.id).collect()
}

#[test]
fn events_are_read_by_page() {
    let served = Served::local();
    served.post("/v1/runs?wait=true", &json!({ "flow": hello(), "runId": "a" }));
    let whole = served.get("/v1/runs/a/events").json();
    let all = whole["events"].as_array().unwrap();
    let seqs: Vec<_> = all.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (0..all.len() as u64).collect::<Vec<_>>());
    assert_eq!(whole["next"], all.len());
    let page = served.get("/v1/runs/a/events?from=2&limit=3").json();
    assert_eq!((page["events"].as_array().unwrap().as_slice(), &page["next"]), (&all[2..5], &json!(5)));
    assert_eq!(served.get("/v1/runs/a/events?from=1000").json(), json!({ "events": [], "next": 1000 }));
}

#[test]
fn a_stream_sends_all_events_of_a_run_and_ends_with_it() {
    let served = Served::local();
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
    let mut stream = Stream::open(&served, "/v1/runs/g/events/stream", &[]);
    let mut heard = Vec::new();
    while heard.last().is_none_or(|sent: &Sent| sent.kind != "harness:parked") {
        heard.push(stream.next().unwrap());
    }
    assert_eq!(served.post("/v1/runs/g/gates/ok/reply", &json!({ "answer": "yes" })).status, 200);
    while let Some(sent) = stream.next() {
        heard.push(sent);
    }
    assert_eq!(
        numbers(&heard),
        (0..heard.len() as u64).collect::<Vec<_>>(),
        "nothing is missed, and nothing told twice"
    );
    assert_eq!(heard.last().unwrap().kind, "harness:complete");
    let page = served.get("/v1/runs/g/events").json();
    assert_eq!(page["events"].as_array().unwrap().len(), heard.len());
    let mut late = Stream::open(&served, "/v1/runs/g/events/stream", &[("Last-Event-ID", "2")]);
    let mut rest = Vec::new();
    while let Some(sent) = late.next() {
        rest.push(sent);
    }
    assert_eq!(rest, heard[3..]);
}

/// Returns a flow that asks a question, and then runs `times` passes of a body. In each pass a node outputs the
/// member `text` of the flow's input; the output of the pass itself is only its index.
fn looping_flow(times: usize) -> Value {
    let list: Vec<_> = (0..times).collect();
    let mut flow = asks();
    let nodes = flow["nodes"].as_array_mut().unwrap();
    nodes.push(json!({ "id": "each", "type": "control.foreach", "input": { "list": list, "concurrency": 1 },
        "body": ["say"], "bodyOutput": "{{ each.index }}" }));
    nodes.push(json!({ "id": "say", "type": "control.noop", "input": { "value": "{{ flow.input.text }}" } }));
    flow["flow"]["input"] = json!({ "text": "" });
    flow["edges"] = json!([{ "from": "ok", "to": "each" }]);
    flow
}

#[test]
fn pages_and_streams_of_large_events_are_bounded_by_bytes_and_complete() {
    const PAGE: usize = 16 << 20;
    let served = Served::local();
    let text = "x".repeat(600_000);
    let body = json!({ "flow": looping_flow(40), "runId": "g", "input": { "text": text } });
    served.post("/v1/runs?wait=true", &body);
    let mut stream = Stream::open(&served, "/v1/runs/g/events/stream", &[]);
    let mut heard = Vec::new();
    while heard.last().is_none_or(|sent: &Sent| sent.kind != "harness:parked") {
        heard.push(stream.next().unwrap());
    }
    assert_eq!(served.post("/v1/runs/g/gates/ok/reply", &json!({ "answer": "yes" })).status, 200);
    while let Some(sent) = stream.next() {
        assert_ne!(sent.kind, "lagged", "what is large is read, and not lost");
        heard.push(sent);
    }
    let all = numbers(&heard);
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    assert_eq!(heard.last().unwrap().kind, "harness:complete");
    let (mut from, mut pages, mut read) = (0, 0, Vec::new());
    while from < all.len() as u64 {
        let answer = served.get(&format!("/v1/runs/g/events?limit=1000&from={from}"));
        assert!(answer.body.len() < PAGE + 700_000, "{}", answer.body.len());
        let page = answer.json();
        let events = page["events"].as_array().unwrap();
        read.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
        assert!(page["next"].as_u64().unwrap() > from);
        from = page["next"].as_u64().unwrap();
        pages += 1;
    }
    assert_eq!(read, all);
    assert!(pages > 1, "40 results of 600 KB do not fit into one page");
    let mut late = Stream::open(&served, "/v1/runs/g/events/stream", &[]);
    let again: Vec<_> = std::iter::from_fn(|| late.next()).collect();
    assert_eq!(numbers(&again), all);
}

/// Starts to read a page of events. Returns the head of the answer, and the rest of the stream.
fn begin_page(served: &Served, token: &str) -> (Answer, BufReader<TcpStream>) {
    let stream = connect(served.address);
    let token = format!("Bearer {token}");
    let path = "/v1/runs/large/events?limit=1000";
    send(&stream, served.address, "GET", path, &[("Authorization", &token)], "");
    let mut stream = BufReader::new(stream);
    (head(&mut stream), stream)
}

/// Reads the rest of an answer. Returns its size in bytes.
fn rest((answer, stream): (Answer, BufReader<TcpStream>)) -> u64 {
    let length: u64 = answer.header("content-length").unwrap().parse().unwrap();
    std::io::copy(&mut stream.take(length), &mut std::io::sink()).unwrap()
}

/// Clients that do not read their pages keep the memory of these pages in use. One tenant may use half of the memory
/// for pages, and another tenant can still read.
#[test]
fn v9_unread_pages_are_bounded_together_and_do_not_delay_other_tenants() {
    const READERS: usize = 32;
    // A page of nearly 16 MiB is counted with another 16 MiB while it is read. The tenant may hold 256 MiB.
    const MOST: usize = 16;
    let (served, [a, b]) = served(&Policy::default());
    for token in [&a, &b] {
        let mut flow = looping_flow(30);
        flow["nodes"].as_array_mut().unwrap().remove(0);
        flow["edges"] = json!([]);
        flow["flow"].as_object_mut().unwrap().remove("outputs");
        let body = json!({ "flow": flow, "runId": "large", "input": { "text": "x".repeat(600_000) } });
        let ended = call(&served, token, "POST", "/v1/runs?wait=true", &body).json();
        assert_eq!(ended["status"], "succeeded", "{ended}");
    }
    let (tells, heads) = mpsc::channel();
    thread::scope(|scope| {
        let begin = |index: usize| {
            let (go, goes) = mpsc::channel::<()>();
            let (tells, served, a) = (tells.clone(), &served, &a);
            scope.spawn(move || {
                let page = begin_page(served, a);
                assert_eq!(page.0.status, 200, "{:?}", page.0);
                tells.send(index).unwrap();
                goes.recv().unwrap();
                assert!(rest(page) > 15 << 20);
            });
            go
        };
        let readers: Vec<_> = (0..READERS).map(begin).collect();
        let mut open: Vec<_> = heads.iter().take(MOST - 2).collect();
        // The other tenant reads, and meanwhile the others of the first one wait.
        (0..2).for_each(|_| assert!(rest(begin_page(&served, &b)) > 15 << 20));
        let mut begun = open.len();
        while let Some(next) = open.pop() {
            let more: Vec<_> = heads.try_iter().collect();
            begun += more.len();
            open.extend(more);
            assert!(open.len() < MOST, "{} pages at a time", open.len() + 1);
            readers[next].send(()).unwrap();
            if open.is_empty() && begun < READERS {
                open.push(heads.recv().unwrap());
                begun += 1;
            }
        }
        assert_eq!(begun, READERS);
    });
}

#[test]
fn many_subscribers_receive_the_same_events() {
    let served = Served::local();
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
    let mut streams: Vec<_> = (0..20)
        .map(|from| Stream::open(&served, &format!("/v1/runs/g/events/stream?from={}", from % 4), &[]))
        .collect();
    served.post("/v1/runs/g/gates/ok/reply", &json!({ "answer": "no" }));
    for (from, stream) in streams.iter_mut().enumerate() {
        let mut heard = Vec::new();
        while let Some(sent) = stream.next() {
            heard.push(sent);
        }
        let first = from as u64 % 4;
        assert_eq!(numbers(&heard), (first..first + heard.len() as u64).collect::<Vec<_>>());
        assert_eq!(heard.last().unwrap().kind, "harness:complete");
    }
}

/// A minimal WebSocket client.
pub(crate) struct Socket(BufReader<TcpStream>);

impl Socket {
    fn open(served: &Served, path: &str) -> Socket {
        Socket::with(served, path, &[])
    }

    /// Opens a WebSocket with additional headers.
    pub(crate) fn with(served: &Served, path: &str, more: &[(&str, &str)]) -> Socket {
        let stream = connect(served.address);
        let key = [("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Version", "13")];
        let mut headers = vec![("Upgrade", "websocket"), ("Connection", "Upgrade"), key[0], key[1]];
        headers.extend(more);
        send(&stream, served.address, "GET", path, &headers, "");
        let mut stream = BufReader::new(stream);
        let answer = head(&mut stream);
        assert_eq!(answer.status, 101, "{answer:?}");
        Socket(stream)
    }

    pub(crate) fn say(&mut self, message: &Value) {
        let text = message.to_string();
        assert!(text.len() < 126);
        // The frames of a client must be masked. This mask does not change the bytes.
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend(text.as_bytes());
        self.0.get_mut().write_all(&frame).unwrap();
    }

    /// Returns the next text message, or `None` if the server has closed the connection.
    pub(crate) fn hear(&mut self) -> Option<Value> {
        loop {
            let mut start = [0; 2];
            self.0.read_exact(&mut start).unwrap();
            let length = match start[1] {
                126 => {
                    let mut length = [0; 2];
                    self.0.read_exact(&mut length).unwrap();
                    u16::from_be_bytes(length) as usize
                }
                length => length as usize,
            };
            let mut payload = vec![0; length];
            self.0.read_exact(&mut payload).unwrap();
            match start[0] & 0x0f {
                1 => return Some(serde_json::from_slice(&payload).unwrap()),
                8 => return None,
                _ => {}
            }
        }
    }
}

#[test]
fn a_socket_sends_events_and_receives_commands() {
    let served = Served::local();
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
    let mut socket = Socket::open(&served, "/v1/runs/g/socket");
    while socket.hear().unwrap()["type"] != "harness:parked" {}
    socket.say(&json!({ "verb": "shout", "id": 1 }));
    let answer = socket.hear().unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&1.into(), &"bad_request".into()), "{answer}");
    socket.say(&json!({ "verb": "reply", "gate": "ok", "answer": "perhaps", "id": 2 }));
    let answer = socket.hear().unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&2.into(), &"answer_refused".into()), "{answer}");
    socket.say(&json!({ "verb": "reply", "gate": "ok", "answer": "yes", "id": 3 }));
    let mut heard = Vec::new();
    while let Some(message) = socket.hear() {
        heard.push(message);
    }
    let answers: Vec<_> = heard.iter().filter(|message| message["type"] == "channel:answer").collect();
    assert_eq!((answers.len(), &answers[0]["id"], &answers[0]["ok"]), (1, &3.into(), &true.into()), "{heard:?}");
    assert!(heard.iter().any(|message| message["type"] == "harness:complete"), "{heard:?}");
}
