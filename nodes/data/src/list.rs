//! The nodes `data.flatten`, `data.group`, `data.sort` and `data.unique`: arrange the items of a list by a value of
//! each item, which an expression computes.

use std::collections::BTreeMap;

use flowcell_expr::{Captured, Json, Ordered};
use flowcell_sdk::prelude::*;

use crate::expression;

/// Maximum number of levels that one `data.flatten` removes. No value is nested deeper.
const MAX_LEVELS: u32 = 127;

/// The input of all these nodes. The schema of each one says which fields it has.
#[derive(Deserialize)]
pub(crate) struct Input {
    list: Vec<Json>,
    by: Option<Json>,
    #[serde(default)]
    descending: bool,
    levels: Option<u32>,
}

/// The items of a list with equal values, in the order of their first items.
#[derive(Default)]
struct Groups {
    /// The place of each value in `groups`, in the order of the values.
    places: BTreeMap<Ordered, usize>,
    groups: Vec<(Json, Vec<Json>)>,
}

impl Groups {
    fn new(input: Input) -> Result<Groups> {
        let values = values(&input)?;
        let Groups { mut places, mut groups } = Groups::default();
        for (value, item) in values.into_iter().zip(input.list) {
            let place = *places.entry(Ordered(value.clone())).or_insert(groups.len());
            if place == groups.len() {
                groups.push((value, Vec::new()));
            }
            groups[place].1.push(item);
        }
        Ok(Groups { places, groups })
    }
}

/// Sorts a list. Items with equal values keep their order, also if `descending` is true.
pub(crate) fn sort(input: Input) -> Result<Json> {
    let descending = input.descending;
    let Groups { places, mut groups } = Groups::new(input)?;
    let mut order: Vec<usize> = places.values().copied().collect();
    if descending {
        order.reverse();
    }
    let mut list = Vec::new();
    for place in order {
        list.append(&mut groups[place].1);
    }
    Ok(Json::object([("list", Json::array(list))]))
}

/// Groups the items with equal values.
pub(crate) fn group(input: Input) -> Result<Json> {
    if input.by.is_none() {
        return Err(Failure::invalid_input("`by` is missing: write the expression whose values make the groups"));
    }
    let groups = Groups::new(input)?.groups;
    let groups = groups.into_iter().map(|(key, items)| Json::object([("key", key), ("items", Json::array(items))]));
    Ok(Json::object([("groups", Json::array(groups))]))
}

/// Keeps the first of all items with equal values, and counts the others.
pub(crate) fn unique(input: Input) -> Result<Json> {
    let count = input.list.len();
    let groups = Groups::new(input)?.groups;
    let removed = (count - groups.len()) as u64;
    let list = groups.into_iter().filter_map(|(_, items)| items.into_iter().next());
    Ok(Json::object([("list", Json::array(list)), ("removed", Json::from(removed))]))
}

/// Replaces lists in a list with their items. With `by`, replaces each item with the items of a list.
pub(crate) fn flatten(input: Input) -> Result<Json> {
    let levels = input.levels.unwrap_or(1);
    if !(1..=MAX_LEVELS).contains(&levels) {
        return Err(Failure::invalid_input(format!("`levels` is {levels}; write a number from 1 to {MAX_LEVELS}")));
    }
    let values = values(&input)?;
    if input.by.is_some()
        && let Some((index, value)) = values.iter().enumerate().find(|(_, value)| value.as_array().is_none())
    {
        let message = format!("item {index}: `by` gives {}, not a list", value.type_name());
        return Err(Failure::invalid_input(message));
    }
    let mut list = Vec::new();
    values.iter().for_each(|value| unfold(value, levels, &mut list));
    Ok(Json::object([("list", Json::array(list))]))
}

fn unfold(value: &Json, levels: u32, list: &mut Vec<Json>) {
    match value {
        Json::Array(items) if levels > 0 => items.iter().for_each(|item| unfold(item, levels - 1, list)),
        other => list.push(other.clone()),
    }
}

/// Evaluates the expression `by` for each item. Without an expression, the value of an item is the item itself.
fn values(input: &Input) -> Result<Vec<Json>> {
    let Some(by) = &input.by else { return Ok(input.list.clone()) };
    let captured = Captured::parse(by);
    let by = expression::expression(captured.raw())?;
    let value = |(index, item): (usize, &Json)| {
        let locals = Json::object([("item", item.clone()), ("index", Json::from(index as u64))]);
        let value = by.render(&captured.with_locals(locals)).map_err(expression::expression_failure);
        value.map_err(expression::with_item_index(index))
    };
    input.list.iter().enumerate().map(value).collect()
}
