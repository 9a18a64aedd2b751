//! Tests triggers that start a flow when a run of another flow ends. Each end starts the flow once, even after a crash,
//! and flows that start each other in a loop are stopped.

use flowcell::RunOptions;
use serde_json::json;

use crate::triggers::household::{Household, examine, process, write};

/// Runs a flow of the library to its end.
async fn run(household: &Household, flow: &str, id: &str) {
    let library = flowcell::triggers::TriggerTenants::library(household, household.host.tenant());
    let flow = library.load(&household.host, flow, None).unwrap();
    let options = RunOptions { run_id: Some(id.into()), ..RunOptions::default() };
    let runner = household.host.runner(&flow, options).unwrap();
    runner.start_session();
    runner.run().await;
}

#[tokio::test]
async fn the_end_of_a_run_starts_another_once() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "build", "");
    let after = "{ id: after, event: { flow: build, status: succeeded } }, { id: sorry, event: { flow: build, status: failed } }";
    write(folder.path(), "tell", after);
    let (household, triggers) = process(folder.path()).await;
    run(&household, "build", "before").await;
    let now = household.host.now();
    assert!(examine(&triggers, now + 1).await.is_empty(), "what was before the trigger starts nothing");
    run(&household, "build", "b1").await;
    // The process ends before the triggers are examined.
    drop((household, triggers));
    let (household, triggers) = process(folder.path()).await;
    let started = examine(&triggers, household.host.now()).await;
    assert_eq!(started.len(), 1, "{started:?}");
    assert!(started[0].starts_with("event.tell.after.1."), "{started:?}");
    assert!(examine(&triggers, household.host.now()).await.is_empty());
    let result = household.drive(&started[0].as_str().into()).await;
    let told = &result.outputs.to_serde()["say"]["value"];
    assert_eq!((&told["run"], &told["flow"], &told["status"]), (&json!("b1"), &json!("build"), &json!("succeeded")));
    assert!(told["outputs"]["say"].is_object(), "{told}");
    // An hour later the same ends start no run. A new end does.
    run(&household, "build", "b2").await;
    let started = examine(&triggers, household.host.now() + 3_600_000).await;
    assert_eq!(started.len(), 1, "{started:?}");
    assert!(examine(&triggers, household.host.now() + 7_200_000).await.is_empty());
    assert_eq!(household.count(), 5);
}

#[tokio::test]
async fn flows_that_start_each_other_are_stopped() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ping", "{ id: again, event: { flow: pong } }");
    write(folder.path(), "pong", "{ id: again, event: { flow: ping } }");
    let (household, triggers) = process(folder.path()).await;
    examine(&triggers, household.host.now()).await;
    run(&household, "ping", "first").await;
    let mut chain = 0;
    loop {
        let started = examine(&triggers, household.host.now()).await;
        let [run] = started.as_slice() else { break };
        chain += 1;
        household.drive(&run.as_str().into()).await;
    }
    assert_eq!(chain, flowcell::triggers::ends::MAX_CHAIN_DEPTH);
}

#[tokio::test]
async fn chained_starts_of_a_tenant_are_rate_limited_and_none_is_lost() {
    use flowcell::triggers::rate::{CHAINED_A_SECOND, CHAINED_AT_ONCE};

    let folder = tempfile::tempdir().unwrap();
    let triggers = (0..16).map(|index| format!("{{ id: t{index}, event: {{ flow: many }} }}"));
    write(folder.path(), "many", &triggers.collect::<Vec<_>>().join(", "));
    write(folder.path(), "other", "{ id: t, event: { flow: calm } }");
    write(folder.path(), "calm", "");
    let (household, triggers) = process(folder.path()).await;
    examine(&triggers, household.host.now()).await;
    run(&household, "many", "first").await;
    let mut now = household.host.now();
    let first = examine(&triggers, now).await;
    assert_eq!(first.len(), 16, "what ends of other runs start is not limited");
    for run in &first {
        household.drive(&run.as_str().into()).await;
    }
    let mut second = examine(&triggers, now).await;
    assert_eq!(second.len() as u32, CHAINED_AT_ONCE);
    run(&household, "calm", "calm").await;
    let calm = examine(&triggers, now).await;
    assert!(calm.len() == 1 && calm[0].starts_with("event.other.t.1."), "{calm:?}");
    while second.len() < 256 {
        now += 1_000;
        let more = examine(&triggers, now).await;
        assert!((1..=CHAINED_A_SECOND as usize).contains(&more.len()), "{more:?}");
        second.extend(more);
    }
    let distinct: std::collections::HashSet<_> = second.iter().collect();
    assert_eq!(distinct.len(), 256, "each once");
    assert!(examine(&triggers, now + 3_600_000).await.is_empty());
}
