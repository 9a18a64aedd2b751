//! The surroundings of a guest through WASI: no files, network, variables or arguments, and a time and random numbers
//! that depend only on the attempt.

use flowcell_contract::{Attempt, Json, Step};
use flowcell_engine::{Config, Engine, Pack};

use crate::support::{attempt, engine, run};

async fn world(engine: &Engine, pack: &Pack, now_ms: u64, seed: u64) -> Json {
    let attempt = Attempt { now_ms, seed, ..attempt(pack, "hostile.world", "{}") };
    match run(engine, attempt).await.0 {
        Ok(Step::Done(value)) => value.json().clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn n22_n25_the_world_is_empty_and_its_time_stands_still() {
    let (engine, pack) = engine(Config::default());
    let world = world(&engine, &pack, 1_700_000_000_123, 7).await;
    let expected = [
        ("nowMs", "1700000000123"),
        ("elapsedNs", "0"),
        ("files", "[]"),
        ("writable", "false"),
        ("network", "false"),
        ("env", "0"),
        ("args", "0"),
    ];
    for (key, value) in expected {
        assert_eq!(world.get(key).unwrap().to_text(), value, "{key}: {world}");
    }
}

#[tokio::test]
async fn random_values_depend_only_on_the_seed() {
    let (engine, pack) = engine(Config::default());
    let first = world(&engine, &pack, 5, 7).await;
    assert_eq!(world(&engine, &pack, 5, 7).await, first);
    let other = world(&engine, &pack, 5, 8).await;
    for key in ["order", "random"] {
        assert_ne!(other.get(key), first.get(key), "{key}");
    }
    // Later versions of the engine must be able to repeat a recorded run.
    assert_eq!(first.get("random").unwrap().to_text(), "[135,129,59,126,87,157,191,168]");
}
