//! The recorded outputs of tasks that did not succeed, and the input of a woken node.

use std::sync::Arc;

use flowcell_contract::{Failure, Json, Value, code};

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
