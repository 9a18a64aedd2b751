//! Quotas that pause runs: attempts and calls wait for the renewal, and everything else is taken in.

use std::{
    collections::HashMap,
    future::poll_fn,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use flowcell_contract::{Failure, Json, Tenant};
use flowcell_flow::graph::{FlowPolicy, On};
use futures_util::future::{Either, select};
use proptest::{prelude::*, test_runner::Config};
use tokio::sync::oneshot;

use super::{
    crashes::{FlowMap, Story, tell, vary_plans},
    disk::Disk,
    driving::{VirtualTimers, block, chain, world},
    graphs::{Plan, Planned, PlannedBody, lower},
    questions::{Run, TASK},
    readiness::{Counter, scale, scope},
};
use crate::{
    FlowRunner, Pinned, QuotaHold, Quotas, RunCommand, RunOptions, RunResult, RunStatus, World,
    decide::{Entropy, Input},
    fact::{Fact, ParkReason, WaitReason, WaitsFor},
    ports::{Pin, Unit},
    question::QuestionRef,
};

/// Number of runs that a test run pauses and crashes, times `FLOWCELL_TEST_SCALE`.
const RUNS: u32 = 2_000;
/// Milliseconds of the window of the random quotas.
const WINDOW_MS: u64 = 40;

fn hold(until: u64, usd: Option<f64>) -> QuotaHold {
    QuotaHold { quota: "perDay.modelUsd".into(), until, usd }
}

/// Quotas that are used up in random windows of time, and that refuse random calls.
pub(super) struct RandomQuotas {
    clock: VirtualTimers,
    seed: u64,
    dice: Mutex<Counter>,
    /// The end of the window in which a call was refused.
    refused_until: AtomicU64,
}

impl RandomQuotas {
    fn new(clock: VirtualTimers, seed: u64) -> RandomQuotas {
        RandomQuotas { clock, seed, dice: Mutex::new(Counter(seed ^ 5)), refused_until: AtomicU64::new(0) }
    }

    fn is_closed_at(&self, time: u64) -> bool {
        Counter(self.seed ^ (time / WINDOW_MS)).draw().is_multiple_of(3)
    }

    fn window_end(&self) -> u64 {
        (self.now() / WINDOW_MS + 1) * WINDOW_MS
    }

    fn now(&self) -> u64 {
        self.clock.0.load(Ordering::Relaxed)
    }

    /// Returns the failure of a call that is not made, for one call in four.
    pub(super) fn refusal(&self) -> Option<Failure> {
        assert!(!self.is_closed_at(self.now()), "a call left while a quota was used up");
        if !self.dice.lock().unwrap().draw().is_multiple_of(4) {
            return None;
        }
        self.refused_until.store(self.window_end(), Ordering::Relaxed);
        Some(hold(self.window_end(), Some(1.0)).failure("the quota is used up"))
    }

    /// Asserts that no attempt began while the quota was used up.
    fn check(&self, units: &[Arc<Unit>]) {
        for unit in units.iter().filter(|unit| self.is_closed_at(unit.ts)) {
            let begun = |fact: &&Fact| {
                matches!(fact, Fact::AttemptStarted { .. } | Fact::TaskResumed { .. } | Fact::AttemptRepeated { .. })
            };
            assert_eq!(unit.facts.iter().find(begun), None, "at {}", unit.ts);
        }
    }
}

impl Quotas for RandomQuotas {
    fn hold(&self, _: &Tenant, usd: Option<f64>) -> Option<QuotaHold> {
        let refused = usd.is_some() && self.now() < self.refused_until.load(Ordering::Relaxed);
        (refused || self.is_closed_at(self.now())).then(|| hold(self.window_end(), usd))
    }
}

proptest! {
    #![proptest_config(Config { cases: RUNS * scale(), failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_run_that_quotas_pause_ends_like_any_other_despite_crashes(mut flow in scope(1), seed: u64, permits in 1..6u32) {
        vary_plans(&mut flow, &mut Counter(seed ^ 1));
        let mut story = Story::new(&flow, seed, permits, false);
        let quotas = Arc::new(RandomQuotas::new(story.clock.clone(), seed));
        story.quotas = Some(quotas.clone());
        story.outside.set_quotas(quotas.clone());
        let story = tell(story, &flow, seed);
        for (_, units) in story.disk.runs() {
            quotas.check(&units);
        }
        for flow in ["planned", "child"] {
            let state = story.disk.state_of(flow, "count").unwrap_or(0);
            prop_assert_eq!(state, story.counted(flow), "state and outcomes of `{}` disagree", flow);
        }
    }
}

/// A quota that is used up in one span of time.
struct Closed(VirtualTimers, Range<u64>);

impl Quotas for Closed {
    fn hold(&self, _: &Tenant, usd: Option<f64>) -> Option<QuotaHold> {
        self.1.contains(&self.0.0.load(Ordering::Relaxed)).then(|| hold(self.1.end, usd))
    }
}

/// A run of a flow, whose quota is used up in one span of time.
struct Paused {
    world: Arc<World>,
    clock: VirtualTimers,
    flow: Pinned,
}

impl Paused {
    fn new(body: &PlannedBody, policy: FlowPolicy, closed: Range<u64>) -> Paused {
        let scripted = lower(body, policy);
        let (mut world, clock) = (world(&scripted, None), VirtualTimers::default());
        let graph = Arc::new(scripted.graph);
        world.timers = Arc::new(clock.clone());
        world.quotas = Some(Arc::new(Closed(clock.clone(), closed)));
        world.flows = Arc::new(FlowMap(HashMap::from([("planned".to_owned(), graph.clone())])));
        Paused { world: Arc::new(world), clock, flow: Pinned { graph, pin: Pin("planned".into()) } }
    }

    /// Returns the run in a new driver, at this time.
    fn at(&self, time: u64) -> FlowRunner {
        self.clock.0.store(time, Ordering::Relaxed);
        let options = RunOptions { run_id: Some("run-1".into()), ..RunOptions::default() };
        FlowRunner::new(self.flow.clone(), self.world.clone(), options).unwrap()
    }

    fn run_at(&self, time: u64) -> RunResult {
        block(self.at(time).run())
    }

    fn facts(&self) -> Vec<(u64, Fact)> {
        let units = self.world.journal.read(&Tenant::local(), &"run-1".into(), 0, usize::MAX).unwrap();
        units.iter().flat_map(|unit| unit.facts.iter().map(|fact| (unit.ts, fact.clone()))).collect()
    }
}

#[test]
fn a_paused_run_takes_in_answers_and_timers_and_goes_on_at_the_renewal() {
    let nodes = [Plan::Ask, Plan::Done, Plan::After(50), Plan::Done].map(Planned::new).into();
    let body = PlannedBody { nodes, edges: vec![(0, 1, On::Success), (2, 3, On::Success)], ..PlannedBody::default() };
    let run = Paused::new(&body, FlowPolicy::default(), 40..1_000);
    let parked = run.run_at(0);
    assert_eq!((parked.status, parked.quota), (RunStatus::Parked, Some(hold(1_000, None))));
    assert_eq!(parked.waiting.iter().map(|waiting| waiting.address()).collect::<Vec<_>>(), ["n0"]);
    let facts = run.facts();
    assert!(
        facts.iter().any(|(ts, fact)| *ts == 50 && matches!(fact, Fact::TaskWoken { .. })),
        "the timer is taken in"
    );
    let park = Fact::RunParked {
        due: Some(1_000),
        reason: ParkReason::QuotaExceeded,
        waits_for: Some(Box::new(WaitsFor { reason: WaitReason::Gate, task: Some("n0".into()), others: 0 })),
        quota: Some(Box::new(hold(1_000, None))),
    };
    assert_eq!(facts.last(), Some(&(50, park)));
    let answer = Json::object([("content", Json::from("yes"))]);
    let reply = RunCommand::Reply { gate: "n0".into(), answer, question: QuestionRef::default() };
    block(run.at(400).ask(reply)).unwrap();
    let parked = run.run_at(500);
    assert_eq!((parked.status, parked.waiting.len(), parked.quota.is_some()), (RunStatus::Parked, 0, true));
    let begun = |(ts, fact): &&(u64, Fact)| {
        (40..1_000).contains(ts) && matches!(fact, Fact::AttemptStarted { .. } | Fact::TaskResumed { .. })
    };
    assert_eq!(run.facts().iter().find(begun), None);
    assert_eq!(run.run_at(1_000).status, RunStatus::Succeeded);
    let renewed = |(ts, fact): &(u64, Fact)| *ts == 1_000 && *fact == Fact::QuotaRenewed;
    assert_eq!(run.facts().iter().filter(|fact| renewed(fact)).count(), 1);
}

#[test]
fn the_total_timeout_of_a_paused_run_goes_on() {
    let policy = FlowPolicy { total_timeout_ms: Some(500), ..FlowPolicy::default() };
    let run = Paused::new(&chain(vec![Plan::Done]), policy, 0..1_000);
    assert_eq!(run.run_at(0).status, RunStatus::Parked);
    assert!(matches!(run.facts().last(), Some((0, Fact::RunParked { due: Some(500), .. }))));
    let failed = run.run_at(500);
    assert_eq!((failed.status, failed.error.unwrap().failure.code), (RunStatus::Failed, "total_timeout".to_owned()));
}

#[test]
fn a_quota_that_is_raised_continues_the_run_at_its_next_resume() {
    let mut run = Paused::new(&chain(vec![Plan::Done]), FlowPolicy::default(), 0..1_000);
    assert_eq!(run.run_at(0).status, RunStatus::Parked);
    assert_eq!(run.at(10).paused_by(), Some(&hold(1_000, None)));
    Arc::get_mut(&mut run.world).unwrap().quotas = None;
    assert_eq!(run.run_at(20).status, RunStatus::Succeeded);
}

/// A run that parks waits for the facts of the runs that it has called, and these may still go on.
#[test]
fn a_run_that_is_asked_to_settle_makes_its_facts_durable() {
    let scripted = lower(&chain(vec![Plan::After(50), Plan::Hang]), FlowPolicy::default());
    let (mut world, disk) = (world(&scripted, None), Arc::new(Disk::new(7, false)));
    world.journal = disk.clone();
    let flow = Pinned { graph: Arc::new(scripted.graph), pin: Pin("planned".into()) };
    let options = RunOptions { wait_for_answers: true, ..RunOptions::default() };
    let runner = FlowRunner::new(flow, Arc::new(world), options).unwrap();
    let hub = runner.start_session().hub();
    let hangs = || {
        let units = disk.runs().into_iter().flat_map(|(_, units)| units);
        units.flat_map(|unit| unit.facts.clone()).filter(|fact| matches!(fact, Fact::AttemptStarted { .. })).count()
            == 2
    };
    let turns = async |most: u32, until: &mut dyn FnMut() -> bool| {
        for _ in 0..most {
            poll_fn(|context| Poll::Ready(_ = disk.poll(context))).await;
            tokio::task::yield_now().await;
            if until() {
                return true;
            }
        }
        false
    };
    let settle = async {
        assert!(!turns(200, &mut || hangs()).await, "nobody waits for these facts");
        let (answer, mut settled) = oneshot::channel();
        assert!(hub.settle(answer).await);
        assert!(turns(200, &mut || settled.try_recv().is_ok()).await, "nobody forces the journal");
        assert!(hangs());
    };
    let run = std::pin::pin!(runner.run());
    let settle = std::pin::pin!(settle);
    assert!(matches!(block(select(run, settle)), Either::Right(_)));
}

#[test]
fn a_held_call_is_repeated_only_by_an_attempt_that_runs() {
    let mut run = Run::begin(1);
    let asked = run.call((1, 0), "{}");
    run.reply("n0#3", "allow", &asked).unwrap();
    run.bring(Input::CallHeld { task: TASK, attempt: 1, ordinal: 3, hold: hold(9, None) }).unwrap();
    let again = || Input::CallAgain { task: TASK, attempt: 1, ordinal: 3 };
    assert_eq!(run.bring(again()).unwrap(), [], "the attempt sent this before it was withdrawn");
    run.state.quota_now = None;
    assert_eq!(run.bring(Input::Proceed).unwrap(), [Fact::QuotaRenewed, Fact::AttemptRepeated { task: TASK }]);
    assert_eq!(run.bring(again()).unwrap(), [Fact::CallRepeated { task: TASK, attempt: 1, ordinal: 3 }]);
}

/// Journals of earlier versions have parks without a quota.
#[test]
fn a_park_without_a_quota_is_stored_as_before() {
    let park = Fact::RunParked { due: Some(7), reason: ParkReason::Waiting, waits_for: None, quota: None };
    let text = r#"{"RunParked":{"due":7,"reason":"waiting"}}"#;
    assert_eq!(serde_json::to_string(&park).unwrap(), text);
    assert_eq!(serde_json::from_str::<Fact>(text).unwrap(), park);
}
