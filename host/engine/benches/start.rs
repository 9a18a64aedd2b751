//! Measures a start with a warm cache: the engine, one pack, its code and the first attempt. Prints milliseconds.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::time::{Duration, Instant};

use flowcell_engine::{Config, Engine};

#[path = "../tests/engine/guests.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod guests;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let mut best = [Duration::MAX; 3];
    for _ in 0..10 {
        let mut start = Instant::now();
        let mut lap = || {
            let lap = start.elapsed();
            start = Instant::now();
            lap
        };
        let engine = Engine::new(Config { cache_dir: Some(dir.path().into()), ..Config::default() }).unwrap();
        let set_up = lap();
        let pack = engine.add_pack(guests::HOSTILE.as_slice(), "hostile.wasm").unwrap();
        let added = lap();
        engine.prepare(&pack.digest).unwrap();
        let prepared = lap();
        for (best, lap) in best.iter_mut().zip([set_up, added, prepared]) {
            *best = lap.min(*best);
        }
    }
    for (name, best) in ["engine", "pack", "code"].iter().zip(best) {
        println!("{name}: {:.2} ms", best.as_secs_f64() * 1e3);
    }
}
