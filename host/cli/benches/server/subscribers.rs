//! Compares a run that many clients watch, some of them slowly, with the same run without clients.

use std::{
    io::{BufReader, Read},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use super::client::{Served, connect, head, send};

const SUBSCRIBERS: usize = 1_000;
/// One in this many subscribers reads nothing.
const SLOW_ONE_IN: usize = 10;
/// The number of steps of the run. Each step waits [`WAIT_MS`] milliseconds.
const STEPS: usize = 100;
const WAIT_MS: u64 = 50;

pub(crate) fn subscribers() {
    let served = Served::local();
    let alone = measure_answer_to_end(&served, "alone", 0);
    let watched = measure_answer_to_end(&served, "watched", SUBSCRIBERS);
    println!(
        "a run of {STEPS} steps of {WAIT_MS} ms that nobody watches takes {:.0} ms; with {SUBSCRIBERS} who watch, a tenth of \
         them reading nothing, {:.0} ms ({:+.1} %)",
        alone.as_secs_f64() * 1e3,
        watched.as_secs_f64() * 1e3,
        (watched.as_secs_f64() / alone.as_secs_f64() - 1.0) * 100.0
    );
}

/// Measures the time from the answer at the gate to the end of the run.
fn measure_answer_to_end(served: &Served, run: &str, subscribers: usize) -> Duration {
    let flow = json!({
        "flow": { "name": "steps" },
        "nodes": [
            { "id": "go", "type": "control.gate", "input": { "prompt": "go?", "allowText": true } },
            { "id": "each", "type": "control.foreach", "body": ["pause"],
                "input": { "list": (0..STEPS).collect::<Vec<_>>(), "concurrency": 1 } },
            { "id": "pause", "type": "control.wait", "input": { "ms": WAIT_MS } },
        ],
        "edges": [{ "from": "go", "to": "each" }],
    });
    let begun = served.post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": run }));
    assert_eq!(begun.json()["status"], "parked", "{begun:?}");
    let path = format!("/v1/runs/{run}/events/stream");
    let all: Vec<_> = (0..subscribers).map(|_| subscribe(served, &path)).collect();
    let (ends, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let readers: Vec<_> = all
        .into_iter()
        .enumerate()
        .map(|(index, stream)| {
            let (ends, heard) = (ends.clone(), heard.clone());
            let builder = thread::Builder::new().stack_size(64 << 10);
            builder.spawn(move || listen(stream, index % SLOW_ONE_IN == 0, &ends, &heard)).unwrap()
        })
        .collect();
    let since = Instant::now();
    let answer = served.post(&format!("/v1/runs/{run}/gates/go/reply"), &json!({ "answer": "go" }));
    assert_eq!(answer.status, 200, "{answer:?}");
    let took = loop {
        let shown = served.get(&format!("/v1/runs/{run}")).json();
        if shown["status"] == "succeeded" {
            break since.elapsed();
        }
        assert!(shown["status"] != "failed", "{shown}");
        thread::sleep(Duration::from_millis(20));
    };
    ends.store(true, Ordering::Release);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    if subscribers > 0 {
        println!("{} MiB of events were heard", heard.load(Ordering::Relaxed) >> 20);
    }
    took
}

fn subscribe(served: &Served, path: &str) -> BufReader<TcpStream> {
    let stream = connect(served.address);
    send(&stream, served.address, "GET", path, &[], "");
    let mut stream = BufReader::new(stream);
    let answer = head(&mut stream);
    assert_eq!(answer.status, 200, "{answer:?}");
    stream
}

fn listen(mut stream: BufReader<TcpStream>, slow: bool, ends: &AtomicBool, heard: &AtomicU64) {
    let mut bytes = [0; 16 << 10];
    stream.get_ref().set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    while slow && !ends.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(100));
    }
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        heard.fetch_add(read as u64, Ordering::Relaxed);
        if ends.load(Ordering::Acquire) {
            return;
        }
    }
}
