//! Random graphs whose cycles of edges loop. They end as the naive reference says, also after crashes.

use flowcell_flow::graph::FlowPolicy;
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use super::{
    crashes::{run_story, vary_plans},
    graphs::PlannedBody,
    loops::loops_of,
    readiness::{Bench, Counter, scale, scope_with},
    reference_loops,
};
use crate::fact::RunEnd;

/// Number of graphs that a test run compares, times `FLOWCELL_TEST_SCALE`.
const GRAPHS: u32 = 3_000;
/// Number of runs that a test run crashes, times `FLOWCELL_TEST_SCALE`.
const RUNS: u32 = 500;

/// Removes edges until each cycle has one entry.
fn reduce(mut body: PlannedBody) -> PlannedBody {
    for planned in &mut body.nodes {
        planned.body = planned.body.take().map(reduce);
    }
    loop {
        let edges: Vec<_> = body.edges.iter().map(|(from, to, _)| (*from, *to)).collect();
        if loops_of(body.nodes.len(), &edges).is_some() {
            return body;
        }
        body.edges.pop();
    }
}

/// Generates a scope whose cycles loop.
pub(super) fn looping_scope(depth: u32) -> impl Strategy<Value = PlannedBody> {
    (scope_with(depth, true), 1..4u32).prop_map(|(body, max)| PlannedBody { max_passes: Some(max), ..reduce(body) })
}

proptest! {
    #![proptest_config(Config { cases: GRAPHS * scale(), failure_persistence: None, ..Config::default() })]

    #[test]
    fn cycles_end_as_the_naive_reference_says(flow in looping_scope(1), seed: u64, permits in 1..6u32) {
        let policy = FlowPolicy { fail_fast: false, max_concurrency: permits, ..FlowPolicy::default() };
        let mut bench = Bench::new(&flow, policy, seed);
        bench.run();
        let (expected, unhandled, runs) = reference_loops::run(&flow, flow.max_passes.unwrap());
        prop_assert_eq!(bench.ends(), expected);
        prop_assert_eq!(&bench.runs, &runs);
        prop_assert_eq!(matches!(bench.state.end(), Some(RunEnd::Failed { .. })), unhandled);
    }
}

#[test]
fn cycles_go_on_after_crashes() {
    let config = Config { cases: RUNS * scale(), failure_persistence: None, ..Config::default() };
    let told = TestRunner::new(config).run(&(looping_scope(1), any::<u64>(), 1..6u32), |(mut flow, seed, permits)| {
        vary_plans(&mut flow, &mut Counter(seed ^ 1));
        run_story(&flow, seed, permits, false);
        Ok(())
    });
    told.unwrap_or_else(|error| panic!("{error}"));
}
