//! How long a tenant waits for its runs while another one takes what it can.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use flowcell::{
    policy::Policy,
    server::{
        Limits,
        identity::{Identify, Scope},
    },
    tenants::Tenants,
};
use serde_json::{Value, json};

use super::{THREE, client::Served, guests::HOSTILE, percentile, post::Connection};

/// Runs of the tenant that is measured.
const RUNS: usize = 400;
/// Connections of the other one.
const FLOOD: usize = 16;

pub(crate) fn neighbour() {
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("hostile.wasm");
    std::fs::write(&pack, HOSTILE.as_slice()).unwrap();
    let tokens = Mutex::new(Vec::new());
    let served = Served::built(
        |builder| builder.packs(&pack).instances(1_000),
        |host| {
            let tenants = Tenants::of(host);
            let all: Vec<_> = Scope::ALL.iter().map(|scope| scope.name().to_owned()).collect();
            for name in ["a", "b"] {
                tenants.create(name).unwrap();
                tokens.lock().unwrap().push(tenants.create_token(name, &all, "", None).unwrap().token);
            }
            tenants.set_policy("a", &Policy { max_live_runs: Some(500), ..Policy::default() }).unwrap();
            let known: Arc<dyn Identify> = Arc::new(tenants);
            known
        },
        Limits::default(),
    );
    let tokens = tokens.into_inner().unwrap();
    let quiet = measure(&served, &tokens[1]);
    println!("a tenant alone: {}", quiet.shown());
    let node = |id: usize, node_type: &str| json!({ "id": format!("n{id}"), "type": node_type, "input": {}, "policy": { "timeoutMs": 20_000 } });
    let many = |node_type: &str| {
        let nodes: Vec<_> = (0..16).map(|id| node(id, node_type)).collect();
        json!({ "flow": { "name": "many", "policy": { "failFast": false } }, "nodes": nodes })
    };
    let parked = json!({ "flow": { "name": "asks" }, "nodes": [{ "id": "ok", "type": "control.gate", "input": { "prompt": "?" } }] });
    let floods: [(&str, Value); 4] = [
        ("floods runs", json!(THREE)),
        ("spins", many("hostile.spin")),
        ("hogs memory", many("hostile.hog")),
        ("fills its quota of runs", parked),
    ];
    for (what, flow) in floods {
        let (noisy, begun) = beside(&served, &tokens, &json!({ "flow": flow }));
        let limit = (quiet.start.1 * 2).max(quiet.start.1 + Duration::from_millis(20));
        let holds = if noisy.start.1 <= limit { "within" } else { "BEYOND" };
        let limit = limit.as_secs_f64() * 1e3;
        println!("while another one {what} ({begun} runs): {}; its start is {holds} {limit:.1} ms", noisy.shown());
    }
}

/// How long a tenant waits for the start of a run, and for the end of one: half of the times, and 99 of 100.
struct Waits {
    start: (Duration, Duration),
    end: (Duration, Duration),
}

impl Waits {
    fn shown(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let both = |(p50, p99): (Duration, Duration)| format!("{:.1} and {:.1} ms", ms(p50), ms(p99));
        format!("a run has begun after {} (p50, p99), and ended after {}", both(self.start), both(self.end))
    }
}

/// What the second tenant waits while the first one begins as many of these runs as it can.
fn beside(served: &Served, tokens: &[String], body: &Value) -> (Waits, u64) {
    let (ends, begun, body) = (AtomicBool::new(false), AtomicU64::new(0), body.to_string());
    thread::scope(|scope| {
        for _ in 0..FLOOD {
            scope.spawn(|| {
                let mut connection = Connection::open(served).with_token(&tokens[0]);
                while !ends.load(Ordering::Acquire) {
                    let (status, answer) = connection.start_only(&body);
                    assert!(status == 201 || status == 429, "{answer}");
                    begun.fetch_add(u64::from(status == 201), Ordering::Relaxed);
                }
            });
        }
        // Until the other one has taken what it gets.
        thread::sleep(Duration::from_secs(1));
        let measured = measure(served, &tokens[1]);
        ends.store(true, Ordering::Release);
        (measured, begun.load(Ordering::Relaxed))
    })
}

fn measure(served: &Served, token: &str) -> Waits {
    let mut connection = Connection::open(served).with_token(token);
    let body = json!({ "flow": THREE }).to_string();
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let since = Instant::now();
        assert_eq!(connection.start_only(&body).0, 201);
        starts.push(since.elapsed());
        ends.push(connection.timed(&body));
    }
    let both = |times: &mut Vec<_>| (percentile(times, 50), percentile(times, 99));
    Waits { start: both(&mut starts), end: both(&mut ends) }
}
