//! The node `control.foreach`: runs its body once for each item of a list.

use flowcell_sdk::{FanOut, prelude::*};

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OnItemError {
    #[default]
    Fail,
    Collect,
}

/// Runs the body for each item. Without a body, returns each item with its index and the number of items.
pub(crate) fn run(task: &Task) -> Result<Step> {
    match task.woken_by()? {
        Some(woken) => match woken.error {
            Some(error) => Err(error.into_failure()),
            None => output_after_passes(task),
        },
        None if task.info()?.has_body => fan_out(task),
        None => items_with_indices(task),
    }
}

/// Starts a pass for each item. The items are not read here: the host shares them with the passes.
fn fan_out(task: &Task) -> Result<Step> {
    count(task)?;
    let concurrency: Option<u32> = task.input_at("/concurrency")?.flatten();
    if concurrency == Some(0) {
        return Err(Failure::invalid_input("input at `/concurrency`: must be at least 1"));
    }
    let on_item_error: OnItemError = task.input_at("/onItemError")?.unwrap_or_default();
    let stop_on_failure = matches!(on_item_error, OnItemError::Fail);
    Ok(Pause::each(FanOut { items: Source::input("/list"), concurrency, stop_on_failure }).into())
}

fn output_after_passes(task: &Task) -> Result<Step> {
    let count = Source::value(count(task)?)?;
    Ok(Output::object().with("items", Source::woken("/value")).with("count", count).into())
}

fn items_with_indices(task: &Task) -> Result<Step> {
    let list: Vec<Value> = task.input_at("/list")?.unwrap_or_default();
    let count = count(task)?;
    let place = |(index, item): (usize, Value)| json!({ "item": item, "index": index, "count": count });
    let items: Vec<Value> = list.into_iter().enumerate().map(place).collect();
    Step::value(json!({ "items": items, "count": count }))
}

/// Counts the items without reading them.
fn count(task: &Task) -> Result<u32> {
    task.input_len("/list").ok_or_else(|| Failure::invalid_input("input at `/list`: must be a list"))
}
