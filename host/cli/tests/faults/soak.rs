//! Tests a server under load for a long time, and a server with little memory.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::faults::{
    kill_storm::{address, flow, post, serves},
    process::{Life, Project, scale, stderr},
};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Starts runs, eight at a time.
fn post_all(address: &str, runs: &[(String, Value)]) {
    let parts = runs.chunks(runs.len().div_ceil(8));
    thread::scope(|threads| {
        for part in parts {
            threads.spawn(move || {
                for (run, flow) in part {
                    let body = json!({ "flow": flow, "runId": run, "input": { "errand": run } });
                    assert!(post(address, &body.to_string()), "{run} is not accepted");
                }
            });
        }
    });
}

/// R28 in a short form: the memory and the open files of a server stay bounded under load. Other tests cover random
/// faults.
#[cfg(target_os = "linux")]
#[test]
fn r28_files_and_memory_of_a_busy_server_stay_bounded() {
    /// Rounds before the first measurement of the memory.
    const WARM_UP_ROUNDS: usize = 2;
    /// Rounds after the warm-up, multiplied by `FLOWCELL_TEST_SCALE`.
    const ROUNDS: usize = 4;
    const RUNS: usize = 48;
    /// Limit in KiB by which the server's memory may grow in all rounds after the warm-up. The server's caches are
    /// bounded, but not full after the warm-up.
    const MAX_GROWTH_KIB: u64 = 64 << 10;
    /// Limit of the open files beyond those at the start. A leak in one round would exceed it.
    const MAX_NEW_FILES: usize = 12;

    let mut project = Project::new(1, 0);
    let serving = project.start(&serves());
    let (address, id) = (address(&serving), serving.id());
    let flow = flow(&project.ledger.origin());
    let files = || fs::read_dir(format!("/proc/{id}/fd")).unwrap().count();
    let memory = || {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let round = |project: &mut Project, number: usize| {
        let runs: Vec<_> = (0..RUNS).map(|run| (format!("r{number}-{run}"), flow.clone())).collect();
        post_all(&address, &runs);
        // Clients that disconnect without closing the stream.
        let listeners = runs.iter().take(16).map(|(run, _)| {
            let mut stream = TcpStream::connect(&address).unwrap();
            write!(stream, "GET /v1/runs/{run}/events/stream HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
            stream
        });
        let listeners: Vec<_> = listeners.collect();
        assert!(project.ledger.await_arrivals((number + 1) * 2 * RUNS, TIMEOUT), "{:?}", serving.errors());
        drop(listeners);
        project.claims.accepted.extend(runs.into_iter().map(|(run, _)| run));
    };
    let (open, rounds) = (files(), WARM_UP_ROUNDS + ROUNDS * scale().max(1));
    (0..WARM_UP_ROUNDS).for_each(|number| round(&mut project, number));
    let resident = memory();
    (WARM_UP_ROUNDS..rounds).for_each(|number| round(&mut project, number));
    let now = memory();
    // Unused connections time out.
    let begun = Instant::now();
    while files() > open + MAX_NEW_FILES && begun.elapsed() < TIMEOUT {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(files() <= open + MAX_NEW_FILES, "{open} open files became {}", files());
    assert!(now <= resident + MAX_GROWTH_KIB, "{resident} KiB became {now} KiB");
    serving.signal("TERM");
    let (code, _, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
    let driven = project.done(&["drive", "--once"]);
    assert!(driven.status.success(), "{}", stderr(&driven));
    assert_eq!(project.check(), Vec::<String>::new());
}

/// R11: a server with 512 MiB for its data accepts each run or answers 429. `RLIMIT_DATA` sets the limit. A limit of
/// the address space would not work, because sandboxes reserve more addresses than there is memory.
#[cfg(target_os = "linux")]
#[test]
fn r11_a_server_with_little_memory_survives_thousands_of_runs() {
    /// The number of runs, multiplied by `FLOWCELL_TEST_SCALE`: 10,000 at a scale of 10.
    const RUNS: usize = 1_000;

    let mut project = Project::new(1, 0);
    let mut command = Command::new("sh");
    let limited = "ulimit -d 524288 && exec \"$@\"";
    project.prepare(&mut command).args(["-c", limited, "sh", env!("CARGO_BIN_EXE_flowcell")]).args(serves());
    // Memory that the allocator reserves without using it would count.
    command.env("MIMALLOC_ARENA_EAGER_COMMIT", "0");
    let serving = Life::of(&mut command);
    let address = address(&serving);
    let flow = json!({ "flow": { "name": "asks" }, "edges": [{ "from": "makes", "to": "asks" }],
        "nodes": [{ "id": "makes", "type": "data.merge", "input": { "objects": [{ "a": "x".repeat(1_000) }] } },
            { "id": "asks", "type": "control.gate", "input": { "prompt": "Well?" } }] });
    let runs: Vec<_> = (0..RUNS * scale().max(1)).map(|run| (format!("r{run}"), flow.clone())).collect();
    post_all(&address, &runs);
    project.claims.accepted.extend(runs.into_iter().map(|(run, _)| run));
    serving.signal("TERM");
    let (code, _, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
    let found = crate::faults::checker::runs(&project.store()).len();
    assert_eq!(found, project.claims.accepted.len(), "every run that was accepted is there");
}
