//! Measures the delay of a tenant's runs while another tenant uses as much as it can.

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
use serde_json::json;

use super::{THREE, client::Served, guests::HOSTILE, percentile, post::Connection};

/// Runs of the measured tenant.
const RUNS: usize = 400;
/// Connections of the other tenant.
const FLOOD_CONNECTIONS: usize = 16;

pub(crate) fn neighbour() {
    let node = |id: usize, node_type: &str| json!({ "id": format!("n{id}"), "type": node_type, "input": {}, "policy": { "timeoutMs": 20_000 } });
    let many = |node_type: &str| {
        let nodes: Vec<_> = (0..16).map(|id| node(id, node_type)).collect();
        json!({ "flow": { "name": "many", "policy": { "failFast": false } }, "nodes": nodes })
    };
    let parked = json!({ "flow": { "name": "asks" }, "nodes": [{ "id": "ok", "type": "control.gate", "input": { "prompt": "?" } }] });
    let [flood, spin, hog, fill] = [json!(THREE), many("hostile.spin"), many("hostile.hog"), parked]
        .map(|flow| json!({ "flow": flow }).to_string());
    let floods = [
        ("floods runs", vec![&flood]),
        ("spins", vec![&spin]),
        ("hogs memory", vec![&hog]),
        ("fills its quota of runs", vec![&fill]),
        ("does all of that", vec![&flood, &spin, &hog, &fill]),
    ];
    for (what, bodies) in floods {
        // Start a new server each time, so that no run is left from the previous measurement.
        let (served, tokens, _folder) = serve();
        let quiet = measure(&served, &tokens[1]);
        let (noisy, begun) = measure_beside_flood(&served, &tokens, &bodies);
        let limit = (quiet.start.1 * 2).max(quiet.start.1 + Duration::from_millis(20));
        let holds = if noisy.start.1 <= limit { "within" } else { "BEYOND" };
        let limit = limit.as_secs_f64() * 1e3;
        println!("a tenant alone: {}", quiet.shown());
        println!("while another one {what} ({begun} runs): {}; its start is {holds} {limit:.1} ms", noisy.shown());
    }
}

/// Starts a server with two tenants. Returns their tokens.
fn serve() -> (Served, Vec<String>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("hostile.wasm");
    std::fs::write(&pack, HOSTILE.as_slice()).unwrap();
    let tokens = Mutex::new(Vec::new());
    let served = Served::built(
        |builder| builder.packs(&pack).instances(1_000),
        |host| {
            let tenants = Tenants::of(host);
            let all: Vec<_> = Scope::of_tenants().map(|scope| scope.name().to_owned()).collect();
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
    (served, tokens.into_inner().unwrap(), folder)
}

/// The delay until a run starts, and until it ends: the median and the 99th percentile of each.
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

/// Measures the runs of the second tenant while the first one keeps starting runs with these request bodies.
fn measure_beside_flood(served: &Served, tokens: &[String], bodies: &[&String]) -> (Waits, u64) {
    let (ends, begun) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (ends, begun) = (&ends, &begun);
        for body in bodies.iter().cycle().take(FLOOD_CONNECTIONS) {
            scope.spawn(move || {
                let mut connection = Connection::open(served).with_token(&tokens[0]);
                while !ends.load(Ordering::Acquire) {
                    let (status, answer) = connection.start_only(body);
                    assert!(status == 201 || status == 429, "{answer}");
                    begun.fetch_add(u64::from(status == 201), Ordering::Relaxed);
                }
            });
        }
        // Wait until the first tenant has reached its limit.
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
