//! The node `data.filter`: keeps the items of a list for which a condition holds.

use flowcell_expr::{Captured, Json};
use flowcell_sdk::prelude::*;

use crate::expression;

#[derive(Deserialize)]
pub(crate) struct Input {
    list: Vec<Json>,
    when: Json,
}

#[derive(Serialize)]
pub(crate) struct Output {
    list: Vec<Json>,
}

/// Keeps the items for which the condition holds.
pub(crate) fn run(input: Input) -> Result<Output> {
    let captured = Captured::parse(&input.when);
    let condition = expression::condition(captured.raw())?;
    let mut list = Vec::new();
    for (index, item) in input.list.into_iter().enumerate() {
        let locals = Json::object([("item", item.clone()), ("index", Json::from(index as u64))]);
        let held = condition.evaluate(&captured.with_locals(locals)).map_err(expression::condition_failure);
        if held.map_err(expression::with_item_index(index))? {
            list.push(item);
        }
    }
    Ok(Output { list })
}
