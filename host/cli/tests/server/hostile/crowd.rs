//! Thousands of clients listen to one run of one tenant.

use std::{
    io::BufReader,
    net::{SocketAddr, TcpStream},
    path::Path,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::{
    client::{Answer, ask, connect, head, send},
    kit::{output_of, stderr, stdout},
    samples::{asks, hello},
    server::process::{memory, serve, stop},
    stream::Stream,
};

/// Clients that connect.
const LISTENERS: u64 = 10_000;
/// Clients that are accepted: half of the server's permits for subscribers.
const ACCEPTED: usize = 2_000;
/// Limit of the server's memory for each client, in KiB.
const MAX_CLIENT_KIB: u64 = 48;

/// Raises the limit of this process's open connections. Returns the usable number.
fn raise_connection_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    limit.maximum.unwrap_or(u64::MAX).saturating_sub(500)
}

/// Creates a tenant. Returns a token of it.
fn token(folder: &Path, tenant: &str) -> String {
    let ask = |arguments: &[&str]| {
        let output = output_of(folder, arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    ask(&["tenant", "create", tenant]);
    let token: Value = serde_json::from_str(&ask(&["token", "create", tenant])).unwrap();
    format!("Bearer {}", token["token"].as_str().unwrap())
}

fn listen(address: SocketAddr, token: &str) -> (Answer, BufReader<TcpStream>) {
    let stream = connect(address);
    send(&stream, address, "GET", "/v1/runs/g/events/stream", &[("Authorization", token)], "");
    let mut stream = BufReader::with_capacity(512, stream);
    (head(&mut stream), stream)
}

#[test]
fn h4_r26_thousands_of_subscribers_cost_little_and_leave_permits_to_others() {
    let come = raise_connection_limit().min(LISTENERS) as usize;
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (token(folder.path(), "a"), token(folder.path(), "b"));
    let (child, address) = serve(folder.path(), &[]);
    let post = |token: &str, path: &str, body: &Value| {
        ask(address, "POST", path, &[("Authorization", token)], &body.to_string())
    };
    let canary = || {
        let ended = post(&b, "/v1/runs?wait=true", &json!({ "flow": hello() })).json();
        assert_eq!(ended["status"], "succeeded", "{ended}");
    };
    let parked = post(&a, "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "g" }));
    assert_eq!(parked.json()["status"], "parked", "{parked:?}");
    canary();
    let before = memory(child.id(), "VmRSS");
    let mut all: Vec<_> = (0..come).map(|_| listen(address, &a)).collect();
    canary();
    let statuses = |status| all.iter().filter(|(answer, _)| answer.status == status).count();
    assert_eq!((statuses(200), statuses(429)), (come.min(ACCEPTED), come.saturating_sub(ACCEPTED)));
    if let (Some(before), Some(after)) = (before, memory(child.id(), "VmRSS")) {
        assert!(after < before + MAX_CLIENT_KIB * ACCEPTED as u64, "{before} KiB became {after} KiB");
    }
    // A rejected client holds no connection. An accepted client receives all events, once and in order.
    all.retain(|(answer, _)| answer.status == 200 || answer.header("connection") != Some("close"));
    assert_eq!(all.len(), come.min(ACCEPTED));
    assert_eq!(post(&a, "/v1/runs/g/gates/ok/reply", &json!({ "answer": "yes" })).status, 200);
    for (_, stream) in all {
        let mut stream = Stream::over(stream);
        let heard: Vec<_> = std::iter::from_fn(|| stream.next()).collect();
        let ids: Vec<_> = heard.iter().filter_map(|sent| sent.id).collect();
        assert_eq!(ids, (0..ids.len() as u64).collect::<Vec<_>>());
        assert_eq!(heard.last().unwrap().data["status"], "succeeded");
    }
    canary();
    assert_eq!(stop(child), Some(0));
}
