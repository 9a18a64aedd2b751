//! Measures printing the events of a run with a long history.

use std::{
    io::Read,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use flowcell::{Host, Json, Reader, RunId, RunOptions, RunStatus, Runs, contract::Tenant};

use super::{flowcell, load, median, memory_of, ms, runtime, scaled};

const FEW_EVENTS: usize = scaled(10_000);
const MANY_EVENTS: usize = scaled(1_000_000);
/// Events of one pass of the loop.
const EVENTS_PER_PASS: usize = 8;
const ROUNDS: usize = 5;

const LOOP: &str = "
flow: { name: long, input: { passes: 1 } }
nodes:
  - id: again
    type: control.loop
    input: { while: 'again.iteration < flow.input.passes', maxIterations: 1000000 }
    body:
      nodes: [{ id: one, type: control.noop, input: { value: '{{ again.iteration }}' } }]
      edges: []
edges: []
";

/// The printed events and the time for them.
struct Printed {
    events: usize,
    lap: Duration,
    /// Peak memory in KiB.
    memory: u64,
}

/// Measures printing the events of a run. The memory must not depend on the number of events, and printing from an
/// event near the end must not read the events before it.
pub(super) fn events(folder: &Path) {
    let (state, cache) = (folder.join("state"), folder.join("cache"));
    let host = Host::builder().state_dir(&state).build().unwrap();
    let flow = load(&host, LOOP);
    for (name, events) in [("few", FEW_EVENTS), ("many", MANY_EVENTS)] {
        let began = Instant::now();
        let passes = events.div_ceil(EVENTS_PER_PASS) as u64;
        let input = Json::object([("passes", Json::from(passes))]);
        let run_id = Some(RunId::from(name));
        let options = RunOptions { input, run_id, without_events: true, ..RunOptions::default() };
        let result = runtime().block_on(host.runner(&flow, options).unwrap().run());
        assert_eq!(result.status, RunStatus::Succeeded, "{:?}", result.error);
        println!(
            "a loop of {passes} passes, durable: {:.1} µs a pass",
            began.elapsed().as_secs_f64() * 1e6 / passes as f64
        );
    }
    drop(host);
    let end = |name: &str| {
        let found = Reader::open(&state).unwrap().run(&Tenant::local(), &RunId::from(name)).unwrap();
        found.unwrap().1
    };
    let print = |name: &str, from: u64| {
        let laps = (0..ROUNDS).map(|_| {
            let mut command = flowcell(&cache, &state);
            command.args(["runs", "events", name, "--from", &from.to_string()]);
            let began = Instant::now();
            let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
            let mut out = process.stdout.take().unwrap();
            let (mut chunk, mut events, mut memory) = (vec![0; 64 << 10], 0, 0);
            loop {
                let length = out.read(&mut chunk).unwrap();
                memory = memory_of(process.id(), "VmHWM").unwrap_or(memory);
                if length == 0 {
                    break;
                }
                events += chunk[..length].iter().filter(|byte| **byte == b'\n').count();
            }
            assert!(process.wait().unwrap().success());
            (began.elapsed(), memory, events)
        });
        let laps: Vec<_> = laps.collect();
        let memory = median(laps.iter().map(|lap| lap.1).collect());
        Printed { events: laps[0].2, lap: median(laps.iter().map(|lap| lap.0).collect()), memory }
    };
    let (few, many) = (print("few", 0), print("many", 0));
    let mib = |printed: &Printed| printed.memory as f64 / 1024.0;
    println!(
        "{} events printed: {:.1} MiB at most, {} events: {:.1} MiB, ratio {:.2}; {:.0} events/s",
        many.events,
        mib(&many),
        few.events,
        mib(&few),
        mib(&many) / mib(&few),
        many.events as f64 / many.lap.as_secs_f64()
    );
    let (few_last, many_last) = (print("few", end("few") - 10), print("many", end("many") - 10));
    assert_eq!((few_last.events, many_last.events), (10, 10));
    println!(
        "the last 10 of {} events: {:.1} ms, of {}: {:.1} ms, ratio {:.2}; all of them {:.1} ms",
        many.events,
        ms(many_last.lap),
        few.events,
        ms(few_last.lap),
        ms(many_last.lap) / ms(few_last.lap),
        ms(many.lap)
    );
}
