//! Several tenants on one engine: the load of one leaves instances and time for the others.

use std::{
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{Attempt, Call, Calls, Failure, NodeRunner, Value, code};
use flowcell_engine::{Compiler, Config, Engine, Pack};
use futures_util::{FutureExt, future::BoxFuture};
use tokio::{sync::Notify, task::JoinSet};

use crate::{
    guests::HOSTILE,
    support::{Memory, attempt, engine, run},
};

/// A time limit that is longer than any step here takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

fn of(tenant: &str, pack: &Pack, node_type: &str) -> Attempt {
    Attempt { tenant: tenant.into(), ..attempt(pack, node_type, r#"{"a":[1]}"#) }
}

/// Starts attempts of a tenant that compute until the returned set is dropped.
fn spinners(engine: &Engine, pack: &Pack, tenant: &str, number: usize) -> JoinSet<()> {
    let mut spinning = JoinSet::new();
    for _ in 0..number {
        let spin = engine.run(of(tenant, pack, "hostile.spin"), Arc::new(Memory::default()));
        spinning.spawn(async move { drop(spin.await) });
    }
    spinning
}

#[tokio::test]
async fn a_tenant_that_takes_all_instances_leaves_some_to_others() {
    let (engine, pack) = engine(Config { threads: Some(1), instances: Some(32), ..Config::default() });
    let spinning = spinners(&engine, &pack, "a", 100);
    let others = async {
        for tenant in ["b", "c", "b"] {
            run(&engine, of(tenant, &pack, "hostile.echo")).await.0.unwrap();
        }
    };
    tokio::time::timeout(LONG, others).await.expect("the others find room");
    drop(spinning);
    // The instances are free again.
    let after = run(&engine, of("a", &pack, "hostile.echo"));
    tokio::time::timeout(LONG, after).await.expect("there is room again").0.unwrap();
}

#[tokio::test]
async fn two_computing_tenants_get_half_of_the_time_each() {
    let (engine, pack) = engine(Config { threads: Some(1), ..Config::default() });
    let spinning = [spinners(&engine, &pack, "a", 20), spinners(&engine, &pack, "b", 1)];
    let mut computed = [Duration::ZERO; 2];
    while computed[1] < Duration::from_millis(200) && computed[0] < Duration::from_secs(20) {
        tokio::task::yield_now().await;
        let now = engine.take_computing_times();
        // Times from before both tenants were running do not count.
        if now.len() == 2 || !computed[1].is_zero() {
            for (tenant, computed) in ["a", "b"].into_iter().zip(&mut computed) {
                *computed += now.get(&tenant.into()).copied().unwrap_or_default();
            }
        }
    }
    drop(spinning);
    assert!(computed[0] < computed[1] * 3, "{computed:?}");
}

#[tokio::test]
async fn a_tenant_that_exceeds_the_memory_fails_alone() {
    let (engine, pack) = engine(Config { memory: Some(8 << 20), ..Config::default() });
    let failure = run(&engine, of("a", &pack, "hostile.hog")).await.0.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), (code::OUT_OF_MEMORY, true), "{failure}");
    run(&engine, of("b", &pack, "hostile.echo")).await.0.unwrap();
}

#[tokio::test]
async fn a_tenant_never_exceeds_its_bound_on_instances() {
    let (engine, pack) = engine(Config { threads: Some(1), ..Config::default() });
    engine.set_bounds(&"a".into(), Some(1), None);
    let held = Arc::new(Held::default());
    let first = tokio::spawn(engine.run(of("a", &pack, "hostile.state"), held.clone()));
    held.reached.notified().await;
    let mut second = Box::pin(run(&engine, of("a", &pack, "hostile.echo")));
    let other = run(&engine, of("b", &pack, "hostile.echo"));
    tokio::select! {
        biased;
        _ = &mut second => panic!("it has two instances"),
        (result, _) = other => { result.unwrap(); }
    }
    first.abort();
    tokio::time::timeout(LONG, second).await.expect("there is room again").0.unwrap();
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

/// Returns the hostile pack with a custom section, and so with a digest of its own.
fn marked(mark: &str) -> Vec<u8> {
    let mut section = vec![4];
    section.extend(b"mark");
    section.extend(mark.as_bytes());
    let mut bytes = HOSTILE.to_vec();
    bytes.extend([0, u8::try_from(section.len()).unwrap()]);
    bytes.extend(section);
    bytes
}

#[tokio::test]
async fn slow_compilations_of_one_tenant_leave_compilers_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    // This compiler fails for every pack: for a pack marked `slow` once the file `done` exists, for all others at
    // once.
    let script = format!("grep -q slow - && while [ ! -e '{}' ]; do sleep 0.05; done; exit 1", done.display());
    let program = "/bin/sh".into();
    let compiler = Compiler { program, arguments: vec!["-c".into(), script.into()], environment: Vec::new() };
    let engine = Engine::new(Config { compiler: Some(compiler), ..Config::default() }).unwrap();
    let pack = |mark: &str| engine.add_pack(marked(mark), mark).unwrap();
    let mut slow = JoinSet::new();
    for number in 0..6 {
        let pack = pack(&format!("slow{number}"));
        match number % 2 {
            0 => slow.spawn(engine.run(of("a", &pack, "hostile.echo"), Arc::new(Memory::default())).map(drop)),
            _ => slow.spawn(NodeRunner::prepare(&engine, &"a".into(), vec![pack.digest])),
        };
    }
    for mark in ["quick1", "quick2"] {
        let quick = run(&engine, of("b", &pack(mark), "hostile.echo"));
        let failure = tokio::time::timeout(LONG, quick).await.expect("a compiler is free").0.unwrap_err();
        assert_eq!(failure.code.as_str(), code::BAD_PACK, "{failure}");
    }
    assert!(slow.try_join_next().is_none(), "the slow ones still wait");
    std::fs::write(done, "").unwrap();
    tokio::time::timeout(LONG, async { while slow.join_next().await.is_some() {} }).await.expect("all are served");
}

/// Records the name of the thread of each call.
#[derive(Default)]
struct Threads(std::sync::Mutex<Vec<Option<String>>>);

impl Calls for Threads {
    fn call(&self, _: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        self.0.lock().unwrap().push(std::thread::current().name().map(str::to_owned));
        async { Ok(Value::null()) }.boxed()
    }
}

#[tokio::test]
async fn the_only_attempt_of_a_run_computes_on_the_thread_that_drives_it() {
    let (engine, pack) = engine(Config { threads: Some(1), ..Config::default() });
    // Another run has an attempt, which waits.
    let held = Arc::new(Held::default());
    let waiting = tokio::spawn(engine.run(of("b", &pack, "hostile.state"), held.clone()));
    held.reached.notified().await;
    let own = std::thread::current().name().map(str::to_owned);
    let guest = Some("flowcell-guest".to_owned());
    // The threads of an attempt of a tenant without a history.
    let threads_of = async |alone, tenant: &str| {
        let threads = Arc::new(Threads::default());
        // The answers are not those of a state, so the node may fail.
        let _ = engine.run(Attempt { alone, ..of(tenant, &pack, "hostile.state") }, threads.clone()).await;
        let seen = threads.0.lock().unwrap().clone();
        assert!(!seen.is_empty());
        seen
    };
    let (mut tries, since) = (0, Instant::now());
    // An attempt whose thread gets no core for some milliseconds counts as one that computes for long, so it moves to a
    // guest thread. On a busy machine the first one may be such an attempt, but not all of them.
    while threads_of(true, &format!("a{tries}")).await.iter().any(|name| *name != own) {
        tries += 1;
        assert!(since.elapsed() < LONG, "all {tries} attempts left the thread");
    }
    let seen = threads_of(false, "c").await;
    assert!(seen.iter().all(|name| *name == guest), "{seen:?}");
    waiting.abort();
}

#[tokio::test]
async fn an_attempt_that_computes_for_long_leaves_the_thread_that_drives_its_run() {
    let (engine, pack) = engine(Config { threads: Some(1), ..Config::default() });
    let held = Arc::new(Held::default());
    let waiting = tokio::spawn(engine.run(of("b", &pack, "hostile.state"), held.clone()));
    held.reached.notified().await;
    let spin = Attempt { alone: true, ..of("a", &pack, "hostile.spin") };
    let spinning = tokio::spawn(engine.run(spin, Arc::new(Memory::default())));
    // This thread is the only one of the test's runtime, so it answers only if the attempt has left it.
    let after = run(&engine, of("c", &pack, "hostile.echo"));
    tokio::time::timeout(LONG, after).await.expect("the thread is free").0.unwrap();
    assert!(!spinning.is_finished());
    spinning.abort();
    waiting.abort();
}
