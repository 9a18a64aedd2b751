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

const HOUR_MS: i64 = 3_600_000;
const TEN_YEARS_MS: i64 = 10 * 365 * 24 * HOUR_MS;
/// The time at which the run begins. It lies so long after 1970 that no wrong clock shows an earlier time than 1970.
const BEGIN: u64 = 2 * TEN_YEARS_MS as u64;
/// A wait below zero would be longer than this.
const LONGEST_WAIT_MS: u64 = 1_000 * TEN_YEARS_MS as u64;

/// A clock whose readings differ from the true time by the numbers in `wrong` (milliseconds): the first reading by the
/// first number, and so on. All further readings differ by the last number. With `swings`, the readings use the numbers
/// in an irregular order instead, so that it does not matter how often a driver reads the clock.
struct Jumping {
    true_time: VirtualTimers,
    wrong: Vec<i64>,
    swings: bool,
    readings: AtomicUsize,
}

impl Timers for Jumping {
    fn now(&self) -> u64 {
        let look = self.readings.fetch_add(1, Ordering::Relaxed);
        let last = self.wrong.len() - 1;
        let scattered = (look as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let wrong = self.wrong[if self.swings { scattered as usize % self.wrong.len() } else { look.min(last) }];
        self.true_time.now().saturating_add_signed(wrong)
    }

    /// Waits until a reading of the clock shows this time. Some time passes in any case.
    fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
        let missing = due.saturating_sub(self.now()).max(HOUR_MS as u64 / 4);
        self.true_time.wait(self.true_time.now() + missing)
    }
}

/// Runs a chain of nodes with a [`Jumping`] clock.
fn run(plans: Vec<Plan>, wrong: Vec<i64>, swings: bool) -> RunResult {
    let main: PlannedBody = chain(plans);
    let scripted = lower(&main, FlowPolicy::default());
    let mut world = world(&scripted, None);
    let true_time = VirtualTimers(Arc::new(AtomicU64::new(BEGIN)));
    world.timers = Arc::new(Jumping { true_time, wrong, swings, readings: AtomicUsize::new(0) });
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
    let jumps =
        [vec![0, HOUR_MS], vec![0, -HOUR_MS], vec![0, 0, 0, 0, 0, TEN_YEARS_MS], vec![0, 0, 0, 0, 0, 0, -TEN_YEARS_MS]];
    let swings =
        [vec![HOUR_MS, -HOUR_MS], vec![0, HOUR_MS, -HOUR_MS, TEN_YEARS_MS], vec![-TEN_YEARS_MS, 0, TEN_YEARS_MS]];
    let clocks = jumps.into_iter().map(|wrong| (wrong, false)).chain(swings.into_iter().map(|wrong| (wrong, true)));
    for (wrong, swinging) in clocks {
        let plans = vec![Plan::After(50), Plan::FailTimes(2), Plan::After(3 * HOUR_MS as u64), Plan::After(0)];
        let result = run(plans, wrong.clone(), swinging);
        assert_eq!(result.status, RunStatus::Succeeded, "{wrong:?}: {:?}", result.error);
        let counts = ["task:woken", "task:retry", "task:due", "task:complete"].map(|kind| count(&result, kind));
        assert_eq!(counts, [3, 2, 2, 4], "{wrong:?}");
        let all = result.events.iter().flat_map(times).max().unwrap();
        assert!(all <= LONGEST_WAIT_MS, "{wrong:?}: a wait of {all} ms");
    }
}

#[test]
fn an_attempt_that_hangs_ends_once_under_any_clock() {
    for wrong in
        [vec![0], vec![0, HOUR_MS], vec![0, -HOUR_MS], vec![HOUR_MS, -HOUR_MS], vec![0, TEN_YEARS_MS, -TEN_YEARS_MS]]
    {
        let result = run(vec![Plan::Hang], wrong.clone(), wrong.len() > 1);
        assert_eq!(result.status, RunStatus::Failed, "{wrong:?}");
        assert_eq!(count(&result, "task:failed"), 1, "{wrong:?}");
        let tries = (count(&result, "task:start"), count(&result, "task:retry"));
        assert_eq!(tries.0, tries.1 + 1, "{wrong:?}");
    }
}
