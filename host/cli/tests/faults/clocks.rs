//! Starts processes with a wrong clock: timers still fire once, and no wait is negative.

#![cfg(target_os = "linux")]

use std::{
    fs,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::{
    faults::process::{Life, Project},
    guests,
};

const HOUR: i64 = 3_600;
const YEARS: i64 = 10 * 365 * 24 * HOUR;
/// Limit of a wait in milliseconds: eleven years. The largest error of a clock is ten years.
const MAX_WAIT_MS: u64 = 11 * 365 * 24 * 3_600_000;
/// Errors of the clock in seconds: one list for each case, and in it one number for each process of the case. No number
/// is larger than the last one of its list, because a timer that is set by a faster clock fires much later on the clock
/// of the last process.
const CLOCKS: [&[i64]; 5] =
    [&[0, HOUR, HOUR], &[0, -HOUR, 0], &[0, YEARS, YEARS], &[0, -HOUR, 0, -HOUR, 0], &[-HOUR, HOUR, -HOUR, HOUR]];

const FLOW: &str = "
flow: { name: clocks, outputs: { waited: '{{ third.waitedMs }}', tries: '{{ fails.attempts }}' } }
nodes:
  - { id: first, type: control.wait, input: { ms: 40 }, policy: { timeoutMs: 5000 } }
  - { id: second, type: control.wait, input: { ms: 40 } }
  - { id: third, type: control.wait, input: { ms: 40 } }
  - { id: fails, type: data.json.parse, input: { text: '{' }, policy: { retry: { maxAttempts: 4, backoffMs: 30, on: any }, timeoutMs: 5000, continueOnError: true } }
  - { id: send, type: courier.send, input: { url: ORIGIN/idempotent, errand: send, times: 4 }, grants: { http: [ORIGIN] }, policy: { timeoutMs: 60000 } }
edges: [{ from: first, to: second }, { from: second, to: third }]
";

#[test]
fn r12_timers_fire_once_under_wrong_clocks() {
    let library = guests::bad_machine();
    let (mut kills, mut wrong) = (0, Vec::new());
    for clocks in CLOCKS {
        for events in [6, 9, 12, 16] {
            let mut project = Project::new(1, 0);
            fs::write(project.folder().join("clocks.yaml"), FLOW.replace("ORIGIN", &project.ledger.origin())).unwrap();
            let live = |project: &Project, clock: i64| {
                let mut command = project.flowcell(&Project::watch_arguments("clocks.yaml", "r"));
                Life::of(command.env("LD_PRELOAD", &library).env("BAD_CLOCK", clock.to_string()))
            };
            let (last, before) = clocks.split_last().unwrap();
            // A process with a fast clock may have ended the run, by its own clock.
            let mut ending = None;
            for (index, clock) in before.iter().enumerate() {
                let life = live(&project, *clock);
                // A process with a slow clock waits until it has caught up.
                life.await_lines(if index == 0 { events } else { 3 }, Duration::from_millis(300));
                project.kill(life);
                let has_ended = || project.events().values().any(|event| event["type"] == "harness:complete");
                ending = ending.or_else(|| has_ended().then_some(*clock));
            }
            let (code, lines, said) = live(&project, *last).end();
            project.note(&lines);
            let mut found = project.check();
            if code != Some(0) {
                found.push(format!("it ended with {code:?}: {said}"));
            }
            let events_kept = project.events();
            let end = events_kept.values().next_back().and_then(|event| event["ts"].as_u64()).unwrap_or_default();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
            let clock = ending.unwrap_or(*last);
            assert!((end as i64 / 1_000 - now - clock).abs() < HOUR / 2, "the clock was not wrong: {end}");
            for event in events_kept.values() {
                let times = ["durationMs", "delayMs"].iter().map(|name| &event[name]);
                let times = times.chain([&event["result"]["waitedMs"]]).filter_map(Value::as_u64);
                found.extend(
                    times.filter(|time| *time > MAX_WAIT_MS).map(|_| format!("a wait that cannot be: {event}")),
                );
                if event["type"] == "task:failed" && event["taskId"] != "fails" {
                    found.push(format!("it failed: {event}"));
                }
            }
            wrong.extend(found.into_iter().map(|why| format!("clocks {clocks:?} after {events} events: {why}")));
            kills += project.kills;
        }
    }
    println!("{kills} processes killed under {} clocks, {} violations", CLOCKS.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
