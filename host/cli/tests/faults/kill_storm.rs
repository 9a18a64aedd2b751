//! Kills a server repeatedly under load. All its runs are healthy, and none is blamed for the deaths.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::faults::{
    checker,
    dice::Dice,
    process::{Life, PACKS, Project, scale, stderr},
};

/// Number of kills, multiplied by `FLOWCELL_TEST_SCALE`: 70 at a scale of 10.
const KILLS: usize = 7;
/// The number of runs that the test tries to start in each process. At a scale of 10, the processes accept about 600
/// runs in total.
const RUNS: usize = 12;
/// Minimum number of requests that arrive between the start of a process and its kill. The first request may come from
/// a run that the process drives alone. By the third request, that run has made progress.
const MIN_CALLS: u64 = 3;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a flow of two calls with a pause between them, as JSON.
pub(crate) fn flow(origin: &str) -> Value {
    let send = |id: &str| {
        json!({ "id": id, "type": "courier.send", "grants": { "http": [origin] },
            "input": { "url": format!("{origin}/idempotent"), "errand": format!("{{{{ flow.input.errand }}}}/{id}"), "times": 1 } })
    };
    let wait = json!({ "id": "rest", "type": "control.wait", "input": { "ms": 20 } });
    json!({ "flow": { "name": "storm", "input": { "errand": "none" } }, "nodes": [send("first"), wait, send("second")],
        "edges": [{ "from": "first", "to": "rest" }, { "from": "rest", "to": "second" }] })
}

/// Starts a run, and retries while the server is full. Returns true if the server has accepted it.
pub(crate) fn post(address: &str, body: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "POST /v1/runs HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let mut answer = ask().unwrap_or_default();
    while answer.starts_with("HTTP/1.1 429 ") {
        thread::sleep(Duration::from_millis(20));
        answer = ask().unwrap_or_default();
    }
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 201 "), "{answer}");
    !answer.is_empty()
}

/// Returns the arguments that start a server.
pub(crate) fn serves() -> [&'static str; 5] {
    ["serve", "--listen", "127.0.0.1:0", "--packs", PACKS.to_str().unwrap()]
}

/// Waits until a server listens. Returns its address.
pub(crate) fn address(life: &Life) -> String {
    let mut lines = 0;
    loop {
        lines += 1;
        assert!(life.await_lines(lines, TIMEOUT), "{:?}", life.errors());
        let address = life.errors().iter().find_map(|line| Some(line.strip_prefix("listening on http://")?.to_owned()));
        if let Some(address) = address {
            return address;
        }
    }
}

/// R25: a healthy run is never parked, even if its process is killed repeatedly while it drives the run.
#[test]
fn r25_no_healthy_run_is_parked_however_often_the_process_is_killed() {
    let mut project = Project::new(1, 0);
    let (mut dice, flow) = (Dice(25), flow(&project.ledger.origin()));
    for life in 0..(KILLS * scale()).max(1) {
        let serving = project.start(&serves());
        let address = address(&serving);
        let until = project.ledger.arrived() + (MIN_CALLS + dice.below(16)) as usize;
        let accepted = thread::scope(|threads| {
            let posting = threads.spawn(|| {
                let runs = (0..RUNS).map(|run| format!("s{life}-{run}"));
                let body = |run: &str| json!({ "flow": flow, "runId": run, "input": { "errand": run } }).to_string();
                runs.filter(|run| post(&address, &body(run))).collect::<Vec<_>>()
            });
            let arrived = project.ledger.await_arrivals(until, TIMEOUT);
            serving.send_sigkill();
            let accepted = posting.join().unwrap();
            assert!(arrived, "{:?}", serving.errors());
            accepted
        });
        project.claims.accepted.extend(accepted);
        project.kill(serving);
    }
    let driven = project.done(&["drive", "--once", "--packs", PACKS.to_str().unwrap()]);
    assert!(driven.status.success(), "{}", stderr(&driven));
    let runs = checker::runs(&project.store());
    let parked: Vec<_> = runs.iter().filter(|run| run.standing != "succeeded").map(|run| &run.name).collect();
    assert!(parked.is_empty(), "{parked:?} of {} runs after {} kills", runs.len(), project.kills);
    let wrong = project.check();
    println!("{} processes killed, {} runs, none parked, {} violations", project.kills, runs.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
