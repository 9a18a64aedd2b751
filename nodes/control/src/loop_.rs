//! The node `control.loop`: runs its body as long as a condition holds.

use flowcell_expr::Json;
use flowcell_sdk::prelude::*;

/// Default maximum number of passes.
const DEFAULT_MAX_ITERATIONS: u64 = 100;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    #[serde(rename = "while")]
    condition: Json,
    max_iterations: Option<u64>,
    #[serde(default)]
    initial: Value,
}

/// The state that the node keeps during a pause: the number of finished passes.
#[derive(Clone, Copy, Default, Deserialize, Serialize)]
struct Passes {
    done: u64,
}

/// Runs the body as long as the condition holds. Checks the condition before each pass.
pub(crate) fn run(task: &Task, input: Input) -> Result<Step> {
    let info = task.info()?;
    if !info.has_body {
        return Err(Failure::new("missing_body", "a loop needs a body; without one its condition never changes"));
    }
    let woken = task.woken()?;
    if let Some(error) = woken.as_ref().and_then(|woken| woken.error.clone()) {
        return Err(error.into_failure());
    }
    let before: Passes = task.state()?.unwrap_or_default();
    let done = before.done + u64::from(woken.is_some());
    let last = woken.map_or_else(|| input.initial.clone(), |woken| woken.value);

    // The loop's own id refers to its finished passes, as it does inside the body.
    let own = Json::object([("iteration", Json::from(done)), ("last", Json::from(last))]);
    let locals = Json::object([(info.node_id.as_str(), own)]);
    if !crate::condition::holds(&input.condition, locals)? {
        let last = if done == 0 { Source::Value(input.initial) } else { Source::woken("/value") };
        return Ok(Output::object().with("iteration", Source::value(done)?).with("last", last).into());
    }
    let cap = input.max_iterations.unwrap_or(DEFAULT_MAX_ITERATIONS);
    if done >= cap {
        return Err(Failure::new("max_iterations", format!("the condition still holds after {cap} passes")));
    }
    // The host adds what the pass before gave. Before the first pass there is none.
    let variables = match done {
        0 => json!({ "iteration": done, "last": input.initial }),
        _ => json!({ "iteration": done }),
    };
    let variables = Source::value(variables)?;
    Ok(Pause::body(variables).remember(Passes { done })?.into())
}
