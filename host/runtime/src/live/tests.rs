//! Live permits: limits, order, fairness, and trees with only waiting runs.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::VecDeque;

use futures_util::FutureExt;

use super::*;
use crate::limits::{MAX_DEPTH, MAX_LIVE_CHILDREN, MAX_TREE_CHILDREN, MAX_TREE_RUNS};

fn live(most: Option<u32>) -> Arc<LiveRuns> {
    let live = Arc::<LiveRuns>::default();
    live.set_limit(&"a".into(), most);
    live
}

fn root(live: &Arc<LiveRuns>, tenant: &str, run: &str) -> LivePermit {
    live.enter(&tenant.into(), &run.into())
}

/// Requests a permit below a run. Returns the permit, the failure if there will be none, or the wait.
fn request_below(parent: &LivePermit) -> Result<Result<LivePermit, Failure>, Waiting> {
    let mut waiting = parent.request_below(&"child".into());
    (&mut waiting).now_or_never().ok_or(waiting)
}

fn permit_below(parent: &LivePermit) -> LivePermit {
    request_below(parent).ok().unwrap().unwrap()
}

fn wait_below(parent: &LivePermit) -> Waiting {
    request_below(parent).err().unwrap()
}

fn refusal_below(parent: &LivePermit) -> String {
    request_below(parent).ok().unwrap().err().unwrap().code
}

#[test]
fn a_chain_that_needs_more_runs_than_the_tenant_may_have_fails() {
    let live = live(Some(3));
    let one = root(&live, "a", "r");
    let two = permit_below(&one);
    let three = permit_below(&two);
    let failure = request_below(&three).ok().unwrap().err().unwrap();
    assert_eq!(failure.code, code::QUOTA_EXCEEDED);
    assert!(failure.message.contains("all 3 runs that the tenant may have") && failure.message.contains("maxLiveRuns"));
    assert!(!failure.retryable);
    drop((three, two));
    assert_eq!(live.children(&"a".into()), 0);
    drop(permit_below(&one));
}

#[test]
fn a_run_that_fits_waits_until_another_one_ends() {
    let live = live(Some(3));
    let one = root(&live, "a", "r");
    let first = permit_below(&one);
    let (mut second, mut third) = (wait_below(&one), wait_below(&one));
    // The first run may still call a run of its own, which goes before those that waited earlier.
    let deeper = permit_below(&first);
    assert!((&mut second).now_or_never().is_none());
    drop((deeper, first));
    let second = second.now_or_never().unwrap().unwrap();
    assert!((&mut third).now_or_never().is_none());
    drop(second);
    drop(third.now_or_never().unwrap().unwrap());
}

#[test]
fn branches_that_wait_for_each_other_continue_one_by_one() {
    let live = live(Some(40));
    let one = root(&live, "a", "r");
    let branches: Vec<_> = std::iter::from_fn(|| request_below(&one).ok()).map(Result::unwrap).collect();
    assert_eq!(branches.len(), 40 - 1 - MAX_DEPTH as usize, "some places are kept for those below");
    // Each branch needs a run below it. After the last branch requests its permit, no run can end by itself.
    let mut deep: VecDeque<_> = branches.iter().map(|branch| branch.request_below(&"deep".into())).collect();
    let mut left: VecDeque<_> = branches.into();
    while let Some(branch) = left.pop_front() {
        let permit = deep.pop_front().unwrap().now_or_never().unwrap();
        assert!(live.children(&"a".into()) < 40);
        drop((permit.unwrap(), branch));
    }
    assert_eq!(live.children(&"a".into()), 0);
}

#[test]
fn a_run_waits_for_others_of_its_tenant_that_may_end() {
    let live = live(Some(2));
    let (one, other) = (root(&live, "a", "r"), root(&live, "a", "s"));
    let waiting = wait_below(&one);
    drop(other);
    drop(waiting.now_or_never().unwrap().unwrap());
    let mut other = root(&live, "a", "s");
    let waiting = wait_below(&one);
    // An idle run does not end by itself.
    other.set_idle(true);
    assert_eq!(waiting.now_or_never().unwrap().err().unwrap().code, code::QUOTA_EXCEEDED);
    other.set_idle(false);
    drop(wait_below(&one));
}

#[test]
fn one_tree_and_one_tenant_leave_permits_to_others() {
    let live = live(None);
    let mut held = Vec::new();
    let (mut roots, mut taken) = (Vec::new(), Vec::new());
    for tree in 0..4 {
        let one = root(&live, "a", &format!("r{tree}"));
        let before = held.len();
        held.extend(std::iter::from_fn(|| request_below(&one).ok()).map(Result::unwrap));
        taken.push((held.len() - before) as u64);
        roots.push(one);
    }
    assert_eq!(taken[0], MAX_TREE_CHILDREN);
    assert!(taken.iter().sum::<u64>() <= MAX_LIVE_CHILDREN / 2, "{taken:?}");
    let other = root(&live, "b", "r");
    let theirs: Vec<_> = std::iter::from_fn(|| request_below(&other).ok()).collect();
    assert!(theirs.len() > 100, "{}", theirs.len());
}

#[test]
fn a_tree_of_runs_that_all_wait_fails_at_its_limit_and_leaves_nothing_behind() {
    let live = live(None);
    let mut begun = VecDeque::from([root(&live, "a", "r")]);
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    let failed = 'grows: loop {
        let permit = begun.pop_front().expect("it waits for ever");
        waiting.extend((0..4).map(|_| permit.request_below(&"child".into())));
        held.push(permit);
        for mut one in std::mem::take(&mut waiting) {
            match (&mut one).now_or_never() {
                Some(Ok(permit)) => begun.push_back(permit),
                Some(Err(failure)) => break 'grows failure,
                None => waiting.push(one),
            }
        }
    };
    assert_eq!(failed.code, code::TOO_MANY_CHILDREN);
    assert!((held.len() + begun.len()) as u64 <= 1 + MAX_TREE_CHILDREN + u64::from(MAX_DEPTH));
    drop((held, begun, waiting));
    assert_eq!(live.all_children(), 0);
    drop(permit_below(&root(&live, "a", "r")));
}

#[test]
fn a_tree_begins_only_so_many_runs() {
    let live = live(None);
    let one = root(&live, "a", "r");
    (0..MAX_TREE_RUNS).for_each(|_| drop(permit_below(&one)));
    assert_eq!(refusal_below(&one), code::TOO_MANY_CHILDREN);
    drop(one);
    drop(permit_below(&root(&live, "a", "r")));
}

#[test]
fn after_a_run_stops_waiting_the_next_one_gets_the_permit() {
    let live = live(Some(2));
    let one = root(&live, "a", "r");
    let first = permit_below(&one);
    let (second, third) = (wait_below(&one), wait_below(&one));
    drop(second);
    drop(first);
    // A permit that was given and not taken becomes free again.
    drop(third);
    let first = permit_below(&one);
    let second = wait_below(&one);
    drop(first);
    drop(one);
    drop(second);
    assert_eq!(live.all_children(), 0);
}

#[test]
fn a_tool_s_run_is_below_the_run_that_calls_it() {
    let live = live(Some(1));
    let _one = root(&live, "a", "r");
    let refused = live.enter_below(&"a".into(), &"r".into(), &"tool".into()).now_or_never().unwrap();
    assert_eq!(refused.err().unwrap().code, code::QUOTA_EXCEEDED);
    let unknown = live.enter_below(&"b".into(), &"r".into(), &"tool".into()).now_or_never().unwrap();
    drop(unknown.unwrap());
}

#[test]
fn runs_that_start_are_counted_in_order() {
    let live = live(None);
    let start = |tenant: &str, run: &str| live.start(&tenant.into(), &run.into());
    let first = start("a", "1");
    let (_other, second) = (start("b", "2"), start("a", "3"));
    assert!(first.before().is_empty());
    assert_eq!(second.before(), HashSet::from(["1".into()]));
    drop(first);
    assert!(second.before().is_empty());
}
