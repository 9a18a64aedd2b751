//! The node `data.reduce`: combines the items of a list to one value.

use flowcell_expr::{
    Captured, Json,
    json::{Number, digits::whole_number},
};
use flowcell_sdk::prelude::*;

use crate::expression;

#[derive(Deserialize)]
pub(crate) struct Input {
    list: Vec<Json>,
    #[serde(default, deserialize_with = "flowcell_sdk::given")]
    initial: Option<Json>,
    expr: Option<Json>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    value: Json,
}

/// Combines the items of a list to one value. Evaluates `expr` for each item, with the result for the preceding item as
/// `acc`. Without `expr`, adds the items.
pub(crate) fn run(input: Input) -> Result<Output> {
    let Some(field) = &input.expr else { return Ok(Output { value: sum(input.initial, input.list)? }) };
    let captured = Captured::parse(field);
    let expr = expression::expression(captured.raw())?;
    let mut acc = input.initial.unwrap_or_default();
    for (index, item) in input.list.into_iter().enumerate() {
        let locals = Json::object([("acc", acc), ("item", item), ("index", Json::from(index as u64))]);
        let rendered = expr.render(&captured.with_locals(locals)).map_err(expression::expression_failure);
        acc = rendered.map_err(expression::with_item_index(index))?;
    }
    Ok(Output { value: acc })
}

/// Adds numbers, concatenates texts or lists, and merges objects.
fn sum(initial: Option<Json>, list: Vec<Json>) -> Result<Json> {
    let mut items = initial.into_iter().chain(list);
    let first = items.next().unwrap_or_default();
    items.enumerate().try_fold(first, |acc, (index, item)| {
        let mixed = || {
            let message = match (&acc, &item) {
                (Json::Number(a), Json::Number(b)) => {
                    format!("item {index}: cannot add {b} to {a}: the sum has more digits than can be kept exactly")
                }
                _ => {
                    format!("item {index}: cannot add {} to {}; give an `expr`", item.type_name(), acc.type_name())
                }
            };
            Failure::invalid_input(message)
        };
        add(&acc, &item).ok_or_else(mixed)
    })
}

fn add(acc: &Json, item: &Json) -> Option<Json> {
    Some(match (acc, item) {
        (Json::Number(a), Json::Number(b)) => Json::Number(add_numbers(a, b)?),
        (Json::String(a), Json::String(b)) => Json::from(format!("{a}{b}")),
        (Json::Array(a), Json::Array(b)) => Json::array(a.iter().chain(b.iter()).cloned()),
        (Json::Object(a), Json::Object(b)) => {
            Json::object(a.iter().chain(b.iter()).map(|(key, value)| (key.clone(), value.clone())))
        }
        _ => return None,
    })
}

/// Adds whole numbers exactly and other numbers as floats. Returns `None` if a digit would be lost or the sum is not
/// finite.
fn add_numbers(a: &Number, b: &Number) -> Option<Number> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => whole_number(&a.checked_add(b)?.to_string()),
        _ => Number::from_f64(a.as_f64()? + b.as_f64()?),
    }
}
