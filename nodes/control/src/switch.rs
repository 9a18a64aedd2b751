//! The node `control.switch`: chooses a route by the first condition that holds.

use flowcell_expr::Json;
use flowcell_sdk::prelude::*;

/// The route if no case holds.
const DEFAULT: &str = "default";

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(default)]
    value: Json,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    when: Json,
    route: String,
}

/// Returns the route of the first case that holds, or [`DEFAULT`], and the value.
pub(crate) fn run(task: &Task, input: Input) -> Result<Step> {
    let mut route = DEFAULT;
    for (index, case) in input.cases.iter().enumerate() {
        let locals = Json::object([("value", input.value.clone())]);
        let place =
            |failure: Failure| Failure { message: format!("cases[{index}].when: {}", failure.message), ..failure };
        if crate::condition::holds(&case.when, locals).map_err(place)? {
            route = &case.route;
            break;
        }
    }
    let value = if task.has_input("/value") { Source::input("/value") } else { Source::Value(Value::Null) };
    Ok(Output::object().with("route", Source::value(route)?).with("value", value).into())
}
