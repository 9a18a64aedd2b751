//! Expressions that are expensive together. They must not delay another tenant or the server.

use std::{
    thread,
    time::{Duration, Instant},
};

use flowcell_server::Limits;
use serde_json::{Map, Value, json};

use super::household::Household;

/// Returns a flow whose expressions take seconds to compute.
fn costly(place: &str) -> Value {
    let list: Vec<_> = (0..3_000).map(|index| format!("k{index}")).collect();
    let expression = format!("flow.input.l{} | length", " | unique".repeat(60));
    let members: Map<String, Value> =
        (0..15).map(|index| (format!("m{index}"), json!(format!("{{{{ {expression} }}}}")))).collect();
    let mut flow = json!({ "name": "costly", "input": { "l": list } });
    let mut node = json!({ "id": "a", "type": "data.merge", "input": { "objects": [{}] } });
    match place {
        "outputs" => flow["outputs"] = json!(members),
        "input" => node["input"]["objects"] = json!([members]),
        _ => node["when"] = json!({ "and": vec![format!("({expression}) == 3000"); 15] }),
    }
    json!({ "flow": flow, "nodes": [node], "edges": [] })
}

#[test]
fn y5_costly_expressions_of_a_run_do_not_delay_others() {
    let house = Household::new(Limits::default());
    // The first run of a server loads the packs, which is no delay by an expression.
    house.canary();
    // More runs than the server has threads.
    let threads = thread::available_parallelism().map_or(4, usize::from) + 1;
    for place in ["outputs", "input", "when"] {
        let (body, begin) = (json!({ "flow": costly(place) }), Instant::now());
        let mut longest = Duration::ZERO;
        thread::scope(|scope| {
            let ask = || {
                let begun = house.call(&house.a, "POST", "/v1/runs?wait=true", &body);
                assert_eq!((begun.status, &begun.json()["status"]), (201, &json!("succeeded")), "{begun:?}");
            };
            let runs: Vec<_> = (0..threads).map(|_| scope.spawn(ask)).collect();
            while !runs.iter().all(|run| run.is_finished()) {
                let asked = Instant::now();
                house.canary();
                longest = longest.max(asked.elapsed());
            }
        });
        let took = begin.elapsed();
        assert!(longest * 4 < took, "{place}: another tenant has waited {longest:?} of {took:?}");
    }
}
