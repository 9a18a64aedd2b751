//! The recorded outputs of tasks that did not succeed, and the input of a woken node.

use std::sync::Arc;

use flowcell_contract::{Failure, Json, Value, code};

use crate::{
    fact::{ScopeId, TaskKey},
    state::RunState,
};

/// Returns `{ "skipped": true }`.
pub(crate) fn skipped() -> Json {
    Json::object([("skipped", Json::from(true))])
}

/// Returns `{ "cancelled": true }`.
pub(crate) fn cancelled() -> Json {
    Json::object([("cancelled", Json::from(true))])
}

/// Returns `{ "failed": true, "error": …, "attempts": n }`.
pub(crate) fn failed(failure: &Failure, attempts: u32) -> Json {
    Json::object([("failed", Json::from(true)), ("error", failure.to_json()), ("attempts", Json::from(attempts))])
}

/// Returns the list item for a failed pass of a collecting fan-out: `{ "failed": true, "error": … }`.
pub(crate) fn failed_item(failure: &Failure) -> Json {
    Json::object([("failed", Json::from(true)), ("error", failure.to_json())])
}

/// The members of a failure's details in which the host names the place of the failure, and the member for what a node
/// itself wrote under these names.
const PLACES: [&str; 4] = ["body", "child", "undone", OWN];
const OWN: &str = "own";

/// Returns whether the failure of a task may name places already: the task has a body, or has called a flow.
pub(crate) fn names_places(state: &RunState, key: TaskKey) -> bool {
    state.graph.node(key.node).body.is_some() || state.task(key).has_called
}

/// Returns whether the failure of a run that is about to end may name places: its task may, or undos have added theirs.
pub(crate) fn end_names_places(state: &RunState) -> bool {
    let root = state.scopes.get(&ScopeId::ROOT).filter(|root| root.undos.is_none());
    let failed = root.and_then(|root| root.failure.as_ref());
    failed.is_none_or(|(key, _)| names_places(state, *key))
}

/// Returns a failure in the form in which it leaves a body or a flow. If it may not name places, what the node wrote under
/// their names becomes the member `own` of the details.
pub(crate) fn leaving(failure: &Failure, names_places: bool) -> Failure {
    match names_places {
        true => failure.clone(),
        false => set_own_apart(failure.clone()),
    }
}

fn set_own_apart(mut failure: Failure) -> Failure {
    let Some(members) = failure.details.as_ref().and_then(Json::as_object) else { return failure };
    let copies = members.iter().map(|(key, value)| (key.clone(), value.clone()));
    let (own, mut details): (Vec<_>, Vec<_>) = copies.partition(|(key, _)| PLACES.contains(&&**key));
    if own.is_empty() {
        return failure;
    }
    details.push((OWN.into(), Json::object(own)));
    failure.details = Some(Json::object(details));
    failure
}

/// Adds to the details of a failure where the failure happened. `member` is `body` if the failure leaves a body, and
/// `child` if it leaves a child run. The other details stay. A failure that has already left an inner body or child has
/// this member already: the old value then becomes the member `inner` of the new one.
pub(crate) fn add_place(failure: Failure, member: &'static str, place: Vec<(&'static str, Json)>) -> Failure {
    let mut place: Vec<(Arc<str>, Json)> = place.into_iter().map(|(key, value)| (key.into(), value)).collect();
    let mut details = Vec::new();
    match failure.details.as_ref().map(|details| (details, details.as_object())) {
        Some((_, Some(members))) => {
            for (key, value) in members {
                if **key == *member {
                    place.push(("inner".into(), value.clone()));
                } else {
                    details.push((key.clone(), value.clone()));
                }
            }
        }
        Some((other, None)) => details.push(("details".into(), other.clone())),
        None => {}
    }
    details.push((member.into(), Json::object(place)));
    Failure { details: Some(Json::object(details)), ..failure }
}

/// Reads the failure in a recorded output.
pub(crate) fn read_failure(error: Option<&Json>) -> Failure {
    let text = |key| error.and_then(|error| error.get(key)).and_then(Json::as_str);
    Failure {
        retryable: error.and_then(|error| error.get("retryable")).and_then(Json::as_bool).unwrap_or(false),
        details: error.and_then(|error| error.get("details")).cloned(),
        ..Failure::new(text("code").unwrap_or(code::TRAP), text("message").unwrap_or_default())
    }
}

/// Returns the wake in the form in which the resumed node gets it: `{ "index", "wake", "value" | "error" }`.
pub(crate) fn wake_to_json(index: u32, wake: &str, outcome: &Result<Value, Box<Failure>>) -> Json {
    let (key, value) = match outcome {
        Ok(value) => ("value", value.json().clone()),
        Err(failure) => ("error", failure.to_json()),
    };
    Json::object([("index", Json::from(index)), ("wake", Json::from(wake)), (key, value)])
}
