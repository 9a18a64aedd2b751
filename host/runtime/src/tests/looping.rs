//! Random graphs whose cycles of edges loop. They end as the naive reference says, also after crashes.

use flowcell_flow::graph::{FlowPolicy, Join, On};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use super::{
    crashes::{run_story, vary_plans},
    graphs::{Plan, Planned, PlannedBody},
    loops::loops_of,
    readiness::{Bench, Counter, scale, scope_with},
    reference::End,
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

/// Returns a graph without joins that open before all edges have settled.
fn settled(mut body: PlannedBody) -> PlannedBody {
    for planned in &mut body.nodes {
        planned.join = Join::Settled;
        planned.body = planned.body.take().map(settled);
    }
    body
}

/// Compares what the nodes of a graph read with the naive reference, in this order of answers.
fn check_reads(flow: &PlannedBody, seed: u64, permits: u32) {
    let policy = FlowPolicy { fail_fast: false, max_concurrency: permits, ..FlowPolicy::default() };
    let mut bench = Bench::new(flow, policy, seed);
    bench.tells_addresses = true;
    bench.run();
    let mut came = bench.reads;
    let mut expected: Vec<_> = reference_loops::reads(flow, flow.max_passes.unwrap());
    came.sort_by(|one, other| (&one.0, &one.1, &one.2).cmp(&(&other.0, &other.1, &other.2)));
    expected.sort_by(|one, other| (&one.0, &one.1, &one.2).cmp(&(&other.0, &other.1, &other.2)));
    assert_eq!(came.len(), expected.len());
    for ((reader, at, node, value), (_, expected_at, _, address, end)) in came.iter().zip(&expected) {
        let is = |member: &str| value.get(member).is_some();
        let fits = match end {
            End::Succeeded => value.get("at").and_then(|at| at.as_str()) == Some(address),
            End::Failed => is("failed"),
            End::Skipped => is("skipped"),
        };
        assert!(fits && at == expected_at, "n{reader} at {at} reads {value} of n{node}, not {address}: {end:?}");
    }
}

proptest! {
    #![proptest_config(Config { cases: GRAPHS * scale(), failure_persistence: None, ..Config::default() })]

    #[test]
    fn nodes_read_the_passes_of_the_naive_reference(
        flow in looping_scope(0).prop_map(settled), seed: u64, permits in 1..6u32
    ) {
        check_reads(&flow, seed, permits);
    }

    /// Cycles in cycles, up to three of them, with other edges between and out of them.
    #[test]
    fn nodes_behind_nested_cycles_read_the_passes_of_the_naive_reference(
        flow in nested_scope(), seed: u64, permits in 1..6u32
    ) {
        check_reads(&flow, seed, permits);
    }
}

/// Generates three nested cycles in a row of nodes, from which edges leave on every level.
fn nested_scope() -> impl Strategy<Value = PlannedBody> {
    let plan = prop_oneof![
        4 => Just(Plan::Done),
        3 => (1..4u32).prop_map(Plan::FailPasses),
        1 => Just(Plan::After(50)),
        1 => Just(Plan::Checkpoint),
    ];
    let on = || prop_oneof![4 => Just(On::Success), 1 => Just(On::Error), 2 => Just(On::End)];
    let nodes = prop::collection::vec(plan, 8..11);
    let lines = prop::collection::vec((0..11usize, 0..11usize, on()), 0..8);
    let back = (3..6usize, 4..7usize, 5..8usize, [on(), on(), on()]);
    (nodes, lines, back, 1..4u32).prop_map(|(plans, lines, (third, second, first, on), max)| {
        let nodes: Vec<_> = plans.into_iter().map(Planned::new).collect();
        let count = nodes.len();
        let row = (1..count).map(|node| (node - 1, node, On::End));
        let back = [(third, 2, on[0]), (second.max(third), 1, on[1]), (first.max(second).max(third), 0, on[2])];
        let mut edges: Vec<_> = row.chain(back).collect();
        let lines = lines.into_iter().filter(|(from, to, _)| from < to && *to < count);
        for line in lines {
            if edges.iter().all(|(from, to, _)| (*from, *to) != (line.0, line.1)) {
                edges.push(line);
            }
        }
        let flow = PlannedBody { nodes, edges, max_passes: Some(max) };
        settled(reduce(flow))
    })
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
