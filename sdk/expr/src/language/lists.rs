//! Adapts filters of MiniJinja: comparisons are case-sensitive, groups are objects, and results are lists.

use minijinja::{
    Error, State, Value, filters as builtin,
    value::{Kwargs, ValueKind},
};

use super::{
    budget::charge,
    operands::invalid,
    values::{from_value, to_value},
};
use crate::{json::Json, limits};

/// The filters that compare texts.
pub(super) const WITH_CASE: [&str; 6] = ["dictsort", "groupby", "max", "min", "sort", "unique"];

/// Adds `case_sensitive=true` to the arguments of a filter unless the option is present. Returns an error if `by` of
/// `dictsort` is neither `key` nor `value`.
pub(super) fn with_case(mut arguments: Vec<Value>) -> Result<Vec<Value>, Error> {
    const OPTION: &str = "case_sensitive";
    let given = arguments.last().filter(|last| last.is_kwargs()).cloned();
    if let Some(options) = &given {
        let by = options.get_attr("by")?;
        if !by.is_undefined() && !matches!(by.as_str(), Some("key" | "value")) {
            return Err(invalid("`by` must be `key` or `value`".to_owned()));
        }
        if !options.get_attr(OPTION)?.is_undefined() {
            return Ok(arguments);
        }
        arguments.pop();
    }
    let mut options = vec![(OPTION.to_owned(), Value::from(true))];
    for name in given.iter().flat_map(Value::try_iter).flatten() {
        let value = given.as_ref().map_or(Ok(Value::UNDEFINED), |given| given.get_item(&name))?;
        options.push((name.as_str().unwrap_or_default().to_owned(), value));
    }
    arguments.push(options.into_iter().collect::<Kwargs>().into());
    Ok(arguments)
}

/// `x | groupby(attribute, default=…)`: returns a list of `{ grouper, list }`, ordered by `grouper`.
pub(super) fn group_by(value: Value, attribute: Option<&str>, options: Kwargs) -> Result<Value, Error> {
    let groups = builtin::groupby(value, attribute, options)?;
    let part = |group: &Value, name: &str| from_value(&group.get_attr(name)?).map_err(invalid);
    let group = |group: Value| {
        let members = [("grouper", part(&group, "grouper")?), ("list", part(&group, "list")?)];
        Ok(to_value(&Json::object(members)))
    };
    groups.try_iter()?.map(group).collect::<Result<Vec<_>, Error>>().map(Value::from)
}

/// Converts a lazy result of MiniJinja to a list. Returns an error if it has more than [`limits::VALUES`] items.
pub(super) fn as_list(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Iterable {
        return Ok(value);
    }
    let items = value.try_iter()?.checked().take(limits::VALUES + 1).collect::<Result<Vec<Value>, Error>>()?;
    if items.len() > limits::VALUES {
        return Err(invalid(format!("the list has more than {} items", limits::VALUES)));
    }
    charge(state, items.len().saturating_mul(limits::ITEM_WORK))?;
    Ok(Value::from(items))
}
