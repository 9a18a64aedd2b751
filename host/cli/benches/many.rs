//! Measures large numbers: many parked runs, long histories, many external calls, many runs or agents at the same time,
//! actions on many runs, and long flows in an editor. Prints one line per claim: the measured value, and the value that it is compared with. Both are measured by
//! the same process.
//!
//! `cargo bench -p flowcell --bench many -- calls` measures one part: `parked`, `killed`, `events`, `calls`,
//! `together`, `effects`, `delta`, `waiting`, `fleet` or `editor`. In the development profile every number is ten times smaller, to try the benchmark
//! itself.
//!
//! The parts `calls` and `together` measure a durable store twice: once on the disk itself, and once with every
//! commit delayed by one millisecond, as on a slower disk.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![cfg(unix)]

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use flowcell::{Host, LoadedFlow, Source};

#[path = "many/agents.rs"]
mod agents;
#[path = "../../engine/benches/attempt/bare.rs"]
#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod bare;
#[path = "many/calls.rs"]
mod calls;
#[path = "many/editor.rs"]
mod editor;
#[path = "many/effects.rs"]
mod effects;
#[path = "../../runtime/benches/search/ended.rs"]
mod ended;
#[path = "many/events.rs"]
mod events;
#[path = "many/fleet.rs"]
mod fleet;
#[path = "../../engine/tests/engine/guests.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod guests;
#[path = "many/parked.rs"]
mod parked;

/// The allocator of the command line.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Each figure is the median of this number of rounds. The compared measurements alternate.
const ROUNDS: usize = 7;

type Part = fn(&Path);

const PARTS: [(&str, Part); 10] = [
    ("parked", parked::parked),
    ("killed", parked::killed),
    ("events", events::events),
    ("calls", calls::calls),
    ("together", calls::together),
    ("effects", effects::effects),
    ("delta", agents::delta),
    ("waiting", agents::waiting),
    ("fleet", fleet::fleet),
    ("editor", editor::editor),
];

fn main() {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if arguments == [effects::SERVE] {
        return effects::serve();
    }
    if let [own, folder, runs] = &arguments[..]
        && own == "--own"
    {
        return parked::own(Path::new(folder), runs.parse().unwrap());
    }
    for (name, part) in PARTS {
        if arguments.is_empty() || arguments.iter().any(|argument| argument == name) {
            let folder = tempfile::tempdir().unwrap();
            part(folder.path());
        }
    }
}

/// Returns `count`, or a tenth of it in the development profile.
const fn scaled(count: usize) -> usize {
    if cfg!(debug_assertions) { count / 10 } else { count }
}

fn load(host: &Host, text: &str) -> LoadedFlow {
    host.load_source(Source { name: "bench.yaml".into(), text: text.into() }).unwrap()
}

/// Returns a runtime like that of `flowcell serve`.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// Returns a command of the real program with its own cache and store.
fn flowcell(cache: &Path, state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
    command.env("FLOWCELL_CACHE", cache).env("FLOWCELL_STATE", state).env_remove("FLOWCELL_STORE");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    values[values.len() / 2]
}

/// Returns the medians of two alternating measurements.
fn medians<T: PartialOrd + Copy>(mut one: impl FnMut() -> T, mut other: impl FnMut() -> T) -> (T, T) {
    let (ones, others) = (0..ROUNDS).map(|_| (one(), other())).unzip();
    (median(ones), median(others))
}

/// Returns a memory figure of a process in KiB, by its name in the status file. Returns `None` after the process has
/// ended.
fn memory_of(process: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.parse().ok())
}
