//! Checks that a flow grants a node the model that it calls.

use flowcell_contract::{Caller, Failure, Json, code};

use super::INTERFACE;
use crate::pattern;

/// Refuses a model that the caller's flow does not grant. A grant is a pattern of `provider/model`, or a list of such
/// patterns.
pub(super) fn check(caller: &Caller, provider: &str, model: &str) -> Result<(), Failure> {
    let name = format!("{provider}/{model}");
    let granted = match caller.grants.0.get(INTERFACE) {
        None => false,
        Some(Json::String(pattern)) => pattern::matches(pattern, &name),
        Some(Json::Array(patterns)) => {
            let mut covered = false;
            for pattern in patterns.iter() {
                let text = pattern.as_str().ok_or_else(|| unreadable(pattern))?;
                covered |= pattern::matches(text, &name);
            }
            covered
        }
        Some(other) => return Err(unreadable(other)),
    };
    let message =
        || format!("this node has no grant for the model {name}; to allow it, add `grants: {{ model: [\"{name}\"] }}`");
    if granted { Ok(()) } else { Err(Failure::new(code::DENIED, message())) }
}

fn unreadable(found: &Json) -> Failure {
    let message = format!("grants.model: write a list of patterns such as `anthropic/*`, not {}", found.type_name());
    Failure::new(code::DENIED, message)
}
