//! Clocks that jump while a run is driven. Each timer fires once and no wait is below zero, for any times of the
//! clocks.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use flowcell_flow::graph::FlowPolicy;
use futures_util::future::BoxFuture;

use super::{
    driving::{VirtualTimers, block, chain, world},
    graphs::{Plan, PlannedBody, lower},
};
use crate::{
    Event, FlowRunner, Pinned, RunOptions, RunResult, RunStatus,
    ports::{Pin, Timers},
};

const HOUR: i64 = 3_600_000;
const YEARS: i64 = 10 * 365 * 24 * HOUR;
/// The beginning of the run: all clocks show a time after 1970.
const BEGIN: u64 = 2 * YEARS as u64;
/// A wait below zero would be longer than this.
const LONGEST: u64 = 1_000 * YEARS as u64;

/// A clock whose error changes from one look to the next. The last error is repeated. If the clock swings, each look
/// has one of the errors, in an order without a period. So the number of a driver's looks does not matter.
struct Jumping {
    true_time: VirtualTimers,
    wrong: Vec<i64>,
    swings: bool,
    looks: AtomicUsize,
}

impl Timers for Jumping {
    fn now(&self) -> u64 {
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        let last = self.wrong.len() - 1;
        let scattered = (look as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let wrong = self.wrong[if self.swings { scattered as usize % self.wrong.len() } else { look.min(last) }];
        self.true_time.now().saturating_add_signed(wrong)
    }

    /// Waits until the clock shows this time at one look. Some time passes in any case.
    fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
        let missing = due.saturating_sub(self.now()).max(HOUR as u64 / 4);
        self.true_time.wait(self.true_time.now() + missing)
    }
}

/// Runs a chain of nodes under a clock.
fn run(plans: Vec<Plan>, wrong: Vec<i64>, swings: bool) -> RunResult {
    let main: PlannedBody = chain(plans);
    let scripted = lower(&main, FlowPolicy::default());
    let mut world = world(&scripted, None);
    let true_time = VirtualTimers(Arc::new(AtomicU64::new(BEGIN)));
    world.timers = Arc::new(Jumping { true_time, wrong, swings, looks: AtomicUsize::new(0) });
    let flow = Pinned { graph: Arc::new(scripted.graph), pin: Pin("planned".into()) };
    let options = RunOptions { run_id: Some("run-1".into()), ..RunOptions::default() };
    block(FlowRunner::new(flow, Arc::new(world), options).unwrap().run())
}

fn count(result: &RunResult, kind: &str) -> usize {
    result.events.iter().filter(|event| event.kind == kind).count()
}

fn times(event: &Event) -> impl Iterator<Item = u64> {
    ["durationMs", "delayMs"].into_iter().filter_map(|name| event.data.get(name)?.as_u64())
}

#[test]
fn each_timer_fires_once_under_any_clock() {
    let jumps = [vec![0, HOUR], vec![0, -HOUR], vec![0, 0, 0, 0, 0, YEARS], vec![0, 0, 0, 0, 0, 0, -YEARS]];
    let swings = [vec![HOUR, -HOUR], vec![0, HOUR, -HOUR, YEARS], vec![-YEARS, 0, YEARS]];
    let clocks = jumps.into_iter().map(|wrong| (wrong, false)).chain(swings.into_iter().map(|wrong| (wrong, true)));
    for (wrong, swinging) in clocks {
        let plans = vec![Plan::After(50), Plan::FailTimes(2), Plan::After(3 * HOUR as u64), Plan::After(0)];
        let result = run(plans, wrong.clone(), swinging);
        assert_eq!(result.status, RunStatus::Succeeded, "{wrong:?}: {:?}", result.error);
        let counts = ["task:woken", "task:retry", "task:due", "task:complete"].map(|kind| count(&result, kind));
        assert_eq!(counts, [3, 2, 2, 4], "{wrong:?}");
        let all = result.events.iter().flat_map(times).max().unwrap();
        assert!(all <= LONGEST, "{wrong:?}: a wait of {all} ms");
    }
}

#[test]
fn an_attempt_that_hangs_ends_once_under_any_clock() {
    for wrong in [vec![0], vec![0, HOUR], vec![0, -HOUR], vec![HOUR, -HOUR], vec![0, YEARS, -YEARS]] {
        let result = run(vec![Plan::Hang], wrong.clone(), wrong.len() > 1);
        assert_eq!(result.status, RunStatus::Failed, "{wrong:?}");
        assert_eq!(count(&result, "task:failed"), 1, "{wrong:?}");
        let tries = (count(&result, "task:start"), count(&result, "task:retry"));
        assert_eq!(tries.0, tries.1 + 1, "{wrong:?}");
    }
}
