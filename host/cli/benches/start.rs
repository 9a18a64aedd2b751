//! Measures the time from the start of the process to the end of its first flow, with a warm cache of compiled code.
//! Compares it with a bare wasmtime program that loads one precompiled component and calls it. Prints milliseconds and
//! the ratio.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

#[path = "../../engine/benches/attempt/bare.rs"]
#[allow(dead_code, reason = "the other benchmark uses the rest")]
mod bare;
#[path = "../../engine/tests/engine/guests.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod guests;

const ROUNDS: usize = 60;

const FLOW: &str = "
flow: { name: first, input: { text: hello } }
nodes:
  - { id: one, type: hostile.copy, input: { text: '{{ flow.input.text }}' } }
edges: []
";

fn main() {
    // This program is also the bare one: it calls the component that it receives.
    if let (Some("--bare"), Some(code)) = (env::args().nth(1).as_deref(), env::args().nth(2)) {
        let bare = bare::Bare::precompiled(Path::new(&code), "hostile.copy", r#"{"text":"hello"}"#);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        return runtime.block_on(bare.call());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("hostile.wasm"), guests::HOSTILE.as_slice()).unwrap();
    fs::write(path("first.yaml"), FLOW).unwrap();
    bare::Bare::precompile(&guests::HOSTILE, &path("hostile.cwasm"));

    let flow = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
        command.args(["run", "--quiet", "--packs"]).arg(path("hostile.wasm")).arg(path("first.yaml"));
        command.env("FLOWCELL_CACHE", path("cache"));
        command
    };
    let bare = || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg("--bare").arg(path("hostile.cwasm"));
        command
    };
    // The first run fills the cache.
    timed(flow());
    let mut laps: Vec<_> = (0..ROUNDS).map(|_| (timed(flow()), timed(bare()))).collect();
    let (ours, bare) = (median(&mut laps, |lap| lap.0), median(&mut laps, |lap| lap.1));
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!("first flow: {:.2} ms, bare {:.2} ms, ratio {:.2}", ms(ours), ms(bare), ms(ours) / ms(bare));
}

fn timed(mut command: Command) -> Duration {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status().unwrap();
    let lap = start.elapsed();
    assert!(status.success());
    lap
}

fn median(laps: &mut [(Duration, Duration)], part: impl Fn(&(Duration, Duration)) -> Duration) -> Duration {
    laps.sort_by_key(&part);
    part(&laps[laps.len() / 2])
}
