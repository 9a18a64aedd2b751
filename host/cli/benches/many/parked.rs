//! Measures runs that wait for a person, and the processes that own their store.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use flowcell::{Filter, Host, Reader, RunOptions, RunStatus, Runs, contract::Tenant};
use futures_util::{StreamExt, stream};

use super::{ROUNDS, flowcell, load, median, medians, memory_of, ms, runtime, scaled, timed};

const PARKED_RUNS: usize = scaled(100_000);
const OWNED_RUNS: usize = scaled(10_000);
/// Runs that are begun at the same time, so that they share commits.
const BEGUN_AT_A_TIME: usize = 512;

const GATE: &str = "
flow: { name: asks }
nodes: [{ id: ask, type: control.gate, input: { prompt: 'Well?', choices: ['yes', 'no'] } }]
edges: []
";

const SMALL: &str = "
flow: { name: small, input: { text: hello } }
nodes: [{ id: one, type: control.noop, input: { value: '{{ flow.input.text }}' } }]
edges: []
";

/// Begins `count` runs and lets them park.
pub(super) fn park(host: &Host, count: usize) {
    let flow = load(host, GATE);
    let runs = stream::iter(0..count).map(|_| {
        let runner = host.runner(&flow, RunOptions { without_events: true, ..RunOptions::default() }).unwrap();
        tokio::spawn(runner.run())
    });
    let parked = runs.buffer_unordered(BEGUN_AT_A_TIME).for_each(async |result| {
        assert_eq!(result.unwrap().status, RunStatus::Parked);
    });
    runtime().block_on(parked);
}

/// Measures many parked runs: their start, the memory of the process that owns them, and the latency of their store.
pub(super) fn parked(folder: &Path) {
    let [many, empty] = ["many", "empty"].map(|name| folder.join(name));
    let host = Host::builder().state_dir(&many).build().unwrap();
    let lap = timed(|| park(&host, PARKED_RUNS));
    let commits = host.store().unwrap().commits() as f64 / PARKED_RUNS as f64;
    drop(host);
    drop(Host::builder().state_dir(&empty).build().unwrap());
    let seconds = lap.as_secs_f64();
    println!("{PARKED_RUNS} runs parked: {:.0} runs/s, {commits:.3} commits a run", PARKED_RUNS as f64 / seconds);

    let cache = folder.join("cache");
    let (with, without) = medians(|| idle(&cache, &many), || idle(&cache, &empty));
    let each = (with as f64 - without as f64) * 1024.0 / PARKED_RUNS as f64;
    println!(
        "owner of {PARKED_RUNS} parked runs: {:.1} MiB, of none: {:.1} MiB, {each:.0} bytes a run",
        with as f64 / 1024.0,
        without as f64 / 1024.0
    );

    let [many, empty] = [&many, &empty].map(|state| Reader::open(state).unwrap());
    let tenant = Tenant::local();
    let looks = |name: &str, look: &dyn Fn(&Reader)| {
        let (with, without) = medians(|| timed(|| look(&many)), || timed(|| look(&empty)));
        println!("{name} among {PARKED_RUNS} parked runs: {:.3} ms, among none {:.3} ms", ms(with), ms(without));
    };
    looks("looking for what to drive", &|reader| {
        assert!(reader.runnable(&tenant, u64::MAX >> 1, 64).unwrap().is_empty());
        assert_eq!(reader.next_due(&tenant).unwrap(), None);
    });
    let filter = Filter { limit: 20, ..Filter::default() };
    looks("the list of the latest runs", &|reader| drop(reader.runs(&tenant, &filter).unwrap()));
    let attention = Filter { status: Some("needs_attention".into()), limit: 20, ..Filter::default() };
    looks("the list of those that need attention", &|reader| drop(reader.runs(&tenant, &attention).unwrap()));
}

/// Returns the memory in KiB of a process `flowcell drive` that has nothing to do.
fn idle(cache: &Path, state: &Path) -> u64 {
    let mut drive = flowcell(cache, state).arg("drive").stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(drive.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().starts_with("driving"));
    wait_until_idle(&drive);
    let memory = memory_of(drive.id(), "VmRSS").unwrap();
    drive.kill().unwrap();
    drive.wait().unwrap();
    memory
}

/// Waits until a process has used no CPU time for a while.
fn wait_until_idle(process: &Child) {
    let used = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().map(str::to_owned).collect();
        (fields[11].clone(), fields[12].clone())
    };
    let (mut before, mut since) = (used(), Instant::now());
    while since.elapsed() < Duration::from_millis(300) {
        thread::sleep(Duration::from_millis(50));
        let now = used();
        if now != before {
            (before, since) = (now, Instant::now());
        }
    }
}

/// Compares the time of a small flow in three stores: one that has many parked runs and whose owner was killed,
/// one with a few runs, and a new one.
pub(super) fn killed(folder: &Path) {
    let [owned, cache, flow] = ["owned", "cache", "small.yaml"].map(|name| folder.join(name));
    fs::write(&flow, SMALL).unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap());
    owner.arg("--own").arg(&owned).arg(OWNED_RUNS.to_string());
    let mut owner = owner.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(owner.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(said, "owned");
    let log = fs::metadata(owned.join("flowcell.db-wal")).map_or(0, |file| file.len());

    // Each round begins with the store as the killed process has left it.
    let run = |state: PathBuf, from: Option<&Path>| {
        fs::create_dir(&state).unwrap();
        for file in from.into_iter().flat_map(|from| fs::read_dir(from).unwrap().map(|file| file.unwrap())) {
            if file.file_type().unwrap().is_file() && !file.file_name().to_str().unwrap().ends_with("-shm") {
                fs::copy(file.path(), state.join(file.file_name())).unwrap();
            }
        }
        let mut command = flowcell(&cache, &state);
        command.args(["run", "--quiet"]).arg(&flow);
        timed(|| assert!(command.status().unwrap().success()))
    };
    // The first run fills the cache.
    run(folder.join("first"), None);
    let laps = (0..ROUNDS).map(|lap| {
        let after = run(folder.join(format!("killed-{lap}")), Some(&owned));
        let new = run(folder.join(format!("new-{lap}")), None);
        let small = folder.join("first");
        let mut command = flowcell(&cache, &small);
        command.args(["run", "--quiet"]).arg(&flow);
        (after, new, timed(|| assert!(command.status().unwrap().success())))
    });
    let laps: Vec<_> = laps.collect();
    let part = |part: fn(&(Duration, Duration, Duration)) -> Duration| ms(median(laps.iter().map(part).collect()));
    let (after, new, small) = (part(|lap| lap.0), part(|lap| lap.1), part(|lap| lap.2));
    println!(
        "a small flow after the owner of {OWNED_RUNS} parked runs was killed: {after:.1} ms (a log of {} KiB), \
         in a store of a few runs {small:.1} ms, ratio {:.2}; in a new store {new:.1} ms, ratio {:.2}",
        log >> 10,
        after / small,
        after / new
    );
}

/// Owns a store with `runs` parked runs until standard input ends.
pub(super) fn own(folder: &Path, runs: usize) {
    let host = Host::builder().state_dir(folder).build().unwrap();
    park(&host, runs);
    println!("owned");
    let _ = std::io::stdin().read(&mut [0]);
}
