//! The end of a run starts another: once, also after a crash, and not for ever.

use flowcell::RunOptions;
use serde_json::json;

use crate::household::{Household, look, process, write};

/// Runs a flow to its end, as anybody might.
async fn run(household: &Household, flow: &str, id: &str) {
    let library = flowcell::triggers::Owners::library(household, household.host.tenant());
    let flow = library.load(&household.host, flow, None).unwrap();
    let options = RunOptions { session_id: Some(id.into()), ..RunOptions::default() };
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
    assert!(look(&triggers, now + 1).await.is_empty(), "what was before the trigger starts nothing");
    run(&household, "build", "b1").await;
    // The process dies before anybody has looked.
    drop((household, triggers));
    let (household, triggers) = process(folder.path()).await;
    let started = look(&triggers, household.host.now()).await;
    assert_eq!(started.len(), 1, "{started:?}");
    assert!(started[0].starts_with("event.tell.after.1."), "{started:?}");
    assert!(look(&triggers, household.host.now()).await.is_empty());
    let result = household.drive(&started[0].as_str().into()).await;
    let told = &result.outputs.to_serde()["say"]["value"];
    assert_eq!((&told["run"], &told["flow"], &told["status"]), (&json!("b1"), &json!("build"), &json!("succeeded")));
    assert!(told["outputs"]["say"].is_object(), "{told}");
    // An hour later, all of it is looked at again, and starts nothing; another end does.
    run(&household, "build", "b2").await;
    let started = look(&triggers, household.host.now() + 3_600_000).await;
    assert_eq!(started.len(), 1, "{started:?}");
    assert!(look(&triggers, household.host.now() + 7_200_000).await.is_empty());
    assert_eq!(household.count(), 5);
}

#[tokio::test]
async fn flows_do_not_start_each_other_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ping", "{ id: again, event: { flow: pong } }");
    write(folder.path(), "pong", "{ id: again, event: { flow: ping } }");
    let (household, triggers) = process(folder.path()).await;
    look(&triggers, household.host.now()).await;
    run(&household, "ping", "first").await;
    let mut chain = 0;
    loop {
        let started = look(&triggers, household.host.now()).await;
        let [run] = started.as_slice() else { break };
        chain += 1;
        household.drive(&run.as_str().into()).await;
    }
    assert_eq!(chain, flowcell::triggers::ends::DEPTH);
}
