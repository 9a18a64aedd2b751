//! Stops a server under load.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    kit::{output_of, scale, stderr, stdout},
    samples::{asks, hello},
    server::process::{serve, stop},
};

/// The longest time until the server ends: its time limit for pending external calls, plus one second.
const STOP_LIMIT: Duration = Duration::from_secs(11);

/// Sends a request. Returns the status and the body, or `None` without a response.
fn send(address: SocketAddr, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let length = body.len();
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut text = String::new();
    // The received part counts, even if the connection was cut.
    let _ = stream.read_to_string(&mut text);
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text.split_once("\r\n\r\n")?.1.to_owned()))
}

/// Starts runs until the server has gone. Returns the ids of the acknowledged runs.
fn flood(address: SocketAddr, who: usize, acknowledged: &AtomicUsize) -> Vec<String> {
    let mut begun = Vec::new();
    for number in 0.. {
        let id = format!("w{who}-{number}");
        let flow = if number % 3 == 0 { asks() } else { hello() };
        match send(address, &json!({ "flow": flow, "runId": id }).to_string()) {
            Some((201, _)) => {
                begun.push(id);
                acknowledged.fetch_add(1, Ordering::Release);
            }
            Some((503, body)) => {
                assert!(body.contains("\"draining\"") || body.contains("\"too_many_connections\""), "{body}")
            }
            // The queue of waiting runs is limited.
            Some((429, body)) => assert!(body.contains("\"too_many_runs\""), "{body}"),
            Some(other) => panic!("{other:?}"),
            None => break,
        }
    }
    begun
}

#[test]
fn r23_a_server_stopped_under_load_loses_no_acknowledged_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut known = BTreeSet::new();
    for (round, moment) in [1, 20, 70].into_iter().cycle().take(3 * scale()).enumerate() {
        let (child, address) = serve(folder.path(), &[]);
        let acknowledged = AtomicUsize::new(0);
        let begun = std::thread::scope(|scope| {
            let flood = |who| flood(address, round * 10 + who, &acknowledged);
            let all: Vec<_> = (0..4).map(|who| scope.spawn(move || flood(who))).collect();
            while acknowledged.load(Ordering::Acquire) < moment {
                std::thread::yield_now();
            }
            let since = Instant::now();
            assert_eq!(stop(child), Some(0));
            assert!(since.elapsed() < STOP_LIMIT, "{:?}", since.elapsed());
            all.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(begun.len() >= moment, "{}", begun.len());
        known.extend(begun);
        let listed = output_of(folder.path(), &["runs", "list", "--json", "--limit", "100000"]);
        assert!(listed.status.success(), "{}", stderr(&listed));
        let runs: Vec<Value> = serde_json::from_str(&stdout(&listed)).unwrap();
        let kept: BTreeSet<_> = runs.iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect();
        assert_eq!(known.difference(&kept).next(), None, "it was acknowledged and is not there");
        let failed = runs.iter().find(|run| ["failed", "cancelled"].iter().any(|bad| run["status"] == *bad));
        assert_eq!(failed, None);
    }
    // The next process resumes all of them.
    let driven = output_of(folder.path(), &["drive", "--once"]);
    assert!([Some(0), Some(3)].contains(&driven.status.code()), "{}", stderr(&driven));
    let listed = output_of(folder.path(), &["runs", "list", "--json", "--limit", "100000"]);
    for run in serde_json::from_str::<Vec<Value>>(&stdout(&listed)).unwrap() {
        let expected = if run["flow"] == "asks" { "parked" } else { "succeeded" };
        assert_eq!(run["status"], expected, "{run}");
    }
}
