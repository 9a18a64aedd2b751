//! Tests of the bounds of the work of a search.

use tokio::sync::oneshot;

use super::*;
use crate::redaction::budget::{MAX_STEPS, Steps};

/// Returns the budget of a call that has only this number of steps left.
fn with_steps(left: u64) -> Budget {
    let budget = Budget::default();
    // The value never returns its steps.
    std::mem::forget(Steps::new(&budget, MAX_STEPS - left));
    budget
}

#[test]
fn the_values_of_a_json_text_share_one_budget() {
    let redaction = redaction("another-key");
    let hostile = Json::from("%25".repeat(400));
    let budget = with_steps(1 << 18);
    assert_eq!(redaction.json_within(hostile.clone(), &budget), hostile, "one value is within the budget");
    let all = Json::object((0..200).map(|number| (format!("m{number:03}"), hostile.clone())));
    let hidden = redaction.json_within(all, &budget);
    assert_eq!(hidden.get("m000"), Some(&hostile));
    assert_eq!(hidden.get(REPLACEMENT), Some(&Json::from(REPLACEMENT)), "the last members, with their names");
    assert!(Steps::new(&budget, 1).is_spent());
    // After that, everything is replaced.
    assert_eq!(redaction.text_within("plain", &budget), REPLACEMENT);
    assert_eq!(redaction.text("plain"), "plain", "another call has its own budget");
}

#[test]
fn bytes_beyond_the_budget_are_replaced() {
    let redaction = redaction("another-key");
    let bytes = b"%25".repeat(1 << 10);
    assert_eq!(redaction.bytes_within(bytes.clone(), &with_steps(1 << 12)), REPLACEMENT.as_bytes());
    assert_eq!(redaction.bytes(bytes.clone()), bytes);
}

#[tokio::test]
async fn a_search_ends_when_its_caller_gives_up() {
    let (begin, begun) = oneshot::channel();
    let (give_up, given_up) = std::sync::mpsc::channel::<()>();
    let (tell, told) = oneshot::channel();
    let redaction = redaction("another-key");
    let mut search = Box::pin(redaction.run_search(true, move |redaction, budget| {
        _ = begin.send(());
        _ = given_up.recv();
        _ = tell.send(redaction.text_within("plain", budget));
    }));
    tokio::select! {
        _ = &mut search => panic!("the search has ended"),
        begun = begun => begun.unwrap(),
    }
    drop(search);
    give_up.send(()).unwrap();
    assert_eq!(told.await.unwrap(), REPLACEMENT, "no step is left");
}
