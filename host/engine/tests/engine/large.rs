//! Limits that node types ask for in their manifests, and the memory of large attempts.

use std::{
    future::pending,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use flowcell_contract::{Attempt, Call, Calls, Failure, GrantedLimits, NodeLimits, NodeRunner, Step, Value, code};
use flowcell_engine::{Config, Engine, Pack};
use futures_util::{FutureExt, future::BoxFuture};
use tokio::{
    sync::Notify,
    task::{JoinSet, yield_now},
};

use crate::{
    guests::{by_hand, with_manifest},
    support::{Memory, attempt, engine, run},
};

/// A time limit that is longer than any step here takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// Returns a configuration that grants so much memory and output, with so many large attempts at a time. Large attempts
/// take nothing from the memory that all instances share.
fn granting(memory_mib: u64, output_kib: u64, large_attempts: u32) -> Config {
    let granted = GrantedLimits { memory_mib, output_kib, large_attempts, ..GrantedLimits::default() };
    Config { granted, memory: Some(128 << 20), ..Config::default() }
}

fn of(tenant: &str, pack: &Pack, node_type: &str, input: &str) -> Attempt {
    Attempt { tenant: tenant.into(), ..attempt(pack, node_type, input) }
}

/// Runs an attempt. Returns its failure, or the text of its output.
async fn outcome(engine: &Engine, attempt: Attempt) -> Result<String, Failure> {
    match run(engine, attempt).await.0? {
        Step::Done(output) => Ok(output.text().to_owned()),
        Step::Pause(pause) => panic!("{pause:?}"),
    }
}

#[tokio::test]
async fn a_node_type_gets_the_limits_that_it_asks_for_and_no_more() {
    let (usual, pack) = engine(Config::default());
    let (large, _) = engine(granting(320, 8_192, 2));
    let filled = |mib: usize| (mib << 20).to_string();
    let failed = |failure: Failure, code: &str, told: &str| {
        assert_eq!((failure.code.as_str(), failure.retryable), (code, false), "{failure}");
        assert!(failure.message.contains(told), "{failure}");
    };
    let of = |node_type: &str, input: &str| of("a", &pack, node_type, input);
    assert_eq!(outcome(&large, of("hostile.large", r#"{"mib":300}"#)).await.unwrap(), filled(300));
    let over = outcome(&large, of("hostile.large", r#"{"mib":330}"#)).await.unwrap_err();
    failed(over, code::OUT_OF_MEMORY, "exceeded its 320 MiB of memory");
    let refused = outcome(&usual, of("hostile.large", r#"{"mib":1}"#)).await.unwrap_err();
    let told = "`hostile.large` asks for 320 MiB of memory, and 64 are granted; the operator grants it with \
                `--max-node-memory 320`";
    failed(refused, code::LIMIT_NOT_GRANTED, told);
    // A lower limit needs no grant.
    for engine in [&usual, &large] {
        assert_eq!(outcome(engine, of("hostile.small", r#"{"mib":12}"#)).await.unwrap(), filled(12));
        let over = outcome(engine, of("hostile.small", r#"{"mib":20}"#)).await.unwrap_err();
        failed(over, code::OUT_OF_MEMORY, "exceeded its 16 MiB of memory");
        let hog = outcome(engine, of("hostile.hog", "{}")).await.unwrap_err();
        assert_eq!(hog.code, code::OUT_OF_MEMORY, "{hog}");
    }
    let wide = outcome(&large, of("hostile.wide", r#"{"kib":6144}"#)).await.unwrap();
    assert_eq!(wide.len(), (6_144 << 10) + 2);
    let over = outcome(&large, of("hostile.wide", r#"{"kib":9000}"#)).await.unwrap_err();
    failed(over, code::OUTPUT_TOO_LARGE, "larger than 8388608 bytes");
    let refused = outcome(&usual, of("hostile.wide", r#"{"kib":1}"#)).await.unwrap_err();
    failed(refused, code::LIMIT_NOT_GRANTED, "asks for 8192 KiB of output, and 4096 are granted");
    let huge = outcome(&large, of("hostile.huge", "{}")).await.unwrap_err();
    failed(huge, code::OUTPUT_TOO_LARGE, "larger than 4194304 bytes");
}

#[tokio::test]
async fn tenants_have_limits_of_their_own() {
    let (engine, pack) = engine(granting(320, 8_192, 4));
    let most = |memory_mib: u64| NodeLimits { memory_mib: Some(memory_mib), ..NodeLimits::default() };
    engine.set_largest_limits(&"small".into(), most(100));
    engine.set_largest_limits(&"large".into(), most(1_024));
    let large = |tenant: &str| outcome(&engine, of(tenant, &pack, "hostile.large", r#"{"mib":70}"#));
    assert!(large("large").await.is_ok() && large("other").await.is_ok());
    let refused = large("small").await.unwrap_err();
    assert_eq!(refused.code, code::LIMIT_NOT_GRANTED);
    assert!(refused.message.contains("100 are granted") && refused.message.contains("`nodeLimits: {"), "{refused}");
    // The next attempt gets what the operator grants then.
    engine.set_largest_limits(&"small".into(), NodeLimits::default());
    assert!(large("small").await.is_ok());
}

/// Counts the attempts that make a call at the same time.
#[derive(Default)]
struct Together {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Calls for Together {
    fn call(&self, _: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        async {
            self.most.fetch_max(self.now.fetch_add(1, SeqCst) + 1, SeqCst);
            for _ in 0..50 {
                yield_now().await;
            }
            self.now.fetch_sub(1, SeqCst);
            Ok(Value::null())
        }
        .boxed()
    }
}

#[tokio::test]
async fn no_more_large_attempts_than_granted_have_their_memory_at_a_time() {
    let (engine, pack) = engine(granting(320, 4_096, 2));
    let together = Arc::new(Together::default());
    let mut running = JoinSet::new();
    for number in 0..24 {
        let tenant = ["a", "b", "c"][number % 3];
        let attempt = of(tenant, &pack, "hostile.large", r#"{"mib":66,"hold":1}"#);
        running.spawn(engine.run(attempt, together.clone()));
    }
    let all = async {
        while let Some(result) = running.join_next().await {
            result.unwrap().unwrap();
        }
    };
    tokio::time::timeout(LONG, all).await.expect("each gets its turn");
    let most = together.most.load(SeqCst);
    assert!((1..=2).contains(&most), "{most} at a time");
}

/// Reports that a call was made, and never answers it.
#[derive(Default)]
struct Held {
    reached: Notify,
}

impl Calls for Held {
    fn call(&self, _: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        self.reached.notify_one();
        pending().boxed()
    }
}

#[tokio::test]
async fn attempts_that_wait_for_large_memory_hold_up_no_others() {
    let (engine, pack) = engine(Config { instances: Some(32), ..granting(320, 4_096, 1) });
    let held = Arc::new(Held::default());
    let large = |tenant: &str| of(tenant, &pack, "hostile.large", r#"{"mib":1,"hold":1}"#);
    let first = tokio::spawn(engine.run(large("a"), held.clone()));
    held.reached.notified().await;
    // More wait than the pool has slots.
    let mut waiting = JoinSet::new();
    for _ in 0..100 {
        waiting.spawn(engine.run(large("a"), Arc::new(Memory::default())));
    }
    let mut other = Box::pin(engine.run(large("b"), Arc::new(Memory::default())));
    let small = async {
        for tenant in ["a", "b", "c"] {
            outcome(&engine, of(tenant, &pack, "hostile.echo", r#"{"a":1}"#)).await.unwrap();
        }
    };
    tokio::select! {
        biased;
        _ = &mut other => panic!("there is one place for a large attempt"),
        () = small => {}
    }
    assert!(waiting.try_join_next().is_none(), "they wait");
    // A caller that stops waiting frees its turn, and a tenant that waits behind many others of another tenant gets one.
    first.abort();
    tokio::time::timeout(LONG, other).await.expect("it is the turn of the other tenant").unwrap();
    waiting.shutdown().await;
    let last = outcome(&engine, of("c", &pack, "hostile.large", r#"{"mib":1}"#));
    assert!(tokio::time::timeout(LONG, last).await.expect("the place is free").is_ok());
}

#[tokio::test]
async fn a_pack_that_starts_with_more_memory_than_its_types_ask_for_is_refused() {
    let (engine, _) = engine(granting(320, 4_096, 1));
    // 300 MiB.
    let cases = [("", "the limit is 67108864"), (", limits: { memoryMib: 100 }", "the limit is 104857600")];
    for (limits, told) in cases {
        let manifest = format!("{{ name: hand, version: 1.0.0, nodes: [{{ type: hand.x, title: X{limits} }}] }}");
        let pack = engine.add_pack(with_manifest(by_hand("(memory 4800)", ""), &manifest), "hand.wasm").unwrap();
        let failure = outcome(&engine, of("a", &pack, "hand.x", "{}")).await.unwrap_err();
        assert_eq!(failure.code, code::BAD_PACK);
        assert!(failure.message.contains(told), "{failure}");
    }
}

#[tokio::test]
async fn large_and_small_attempts_share_compiled_code() {
    let folder = tempfile::tempdir().unwrap();
    let config = |config: Config| Config { cache_dir: Some(folder.path().to_owned()), ..config };
    let number = |path: &Path| {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "code")).count()
    };
    let (usual, pack) = engine(config(Config::default()));
    outcome(&usual, of("a", &pack, "hostile.echo", "{}")).await.unwrap();
    let (large, _) = engine(config(granting(1_024, 4_096, 1)));
    outcome(&large, of("a", &pack, "hostile.large", r#"{"mib":100}"#)).await.unwrap();
    outcome(&large, of("a", &pack, "hostile.echo", "{}")).await.unwrap();
    assert_eq!(number(folder.path()), 1);
}
