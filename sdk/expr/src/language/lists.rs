//! Filters of MiniJinja that are changed: comparisons are case-sensitive, equal values are those of `==`, and results
//! are lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use minijinja::{
    Error, ErrorKind, State, Value, filters as builtin,
    value::{Kwargs, Rest, ValueKind, ValueOrKwargs},
};

use super::{
    budget::charge,
    compare::spend_on,
    lookup::{part, read_attribute},
    operands::invalid,
    values::{from_value, to_value},
};
use crate::{json::Json, limits, order::Ordered};

/// The filters of MiniJinja that compare texts.
pub(super) const WITH_CASE: [&str; 4] = ["dictsort", "max", "min", "sort"];

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

/// The value by which `unique` and `groupby` compare an item.
struct Keys<'a> {
    /// The member that is compared; `None` for the whole item.
    attribute: Option<&'a str>,
    /// The value of an item that lacks the member.
    default: Json,
    has_case: bool,
}

impl<'a> Keys<'a> {
    fn new(attribute: Option<&'a str>, default: Option<Value>, options: &'a Kwargs) -> Result<Keys<'a>, Error> {
        let default = default.map_or(Ok(Json::Null), |default| from_value(&default).map_err(invalid))?;
        let has_case = options.get::<Option<bool>>("case_sensitive")?.unwrap_or(true);
        options.assert_all_used()?;
        Ok(Keys { attribute, default, has_case })
    }

    /// Returns the value of an item, and the form in which it is compared.
    fn key(&self, item: &Value) -> Result<(Json, Ordered), Error> {
        let found = match self.attribute {
            Some(attribute) => part(item, attribute)?,
            None => Some(item.clone()),
        };
        let key = found.map_or(Ok(self.default.clone()), |found| from_value(&found).map_err(invalid))?;
        spend_on(&key)?;
        let compared = match &key {
            Json::String(text) if !self.has_case => Json::from(text.to_lowercase()),
            key => key.clone(),
        };
        Ok((key, Ordered(compared)))
    }
}

/// `x | unique(attribute=…)`: keeps the first of all items that are equal as `==` says.
pub(super) fn unique(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let keys = Keys::new(options.get("attribute")?, None, &options)?;
    let (mut seen, mut kept) = (BTreeSet::new(), Vec::new());
    for item in value.try_iter()?.checked() {
        let item = item?;
        if seen.insert(keys.key(&item)?.1) {
            kept.push(item);
        }
    }
    Ok(Value::from(kept))
}

/// `x | groupby(attribute, default=…)`: returns a list of `{ grouper, list }`, ordered by `grouper`, which is the value
/// of the first item.
pub(super) fn group_by(value: &Value, attribute: Option<&str>, options: Kwargs) -> Result<Value, Error> {
    let attribute = attribute.map_or_else(|| options.get("attribute"), Ok)?;
    let keys = Keys::new(Some(attribute), options.get("default")?, &options)?;
    let mut groups: BTreeMap<Ordered, (Json, Vec<Json>)> = BTreeMap::new();
    for item in value.try_iter()?.checked() {
        let item = item?;
        let (key, compared) = keys.key(&item)?;
        let (_, items) = groups.entry(compared).or_insert_with(|| (key, Vec::new()));
        items.push(from_value(&item).map_err(invalid)?);
    }
    let group = |(grouper, items)| Json::object([("grouper", grouper), ("list", Json::array(items))]);
    Ok(to_value(&Json::array(groups.into_values().map(group))))
}

/// `x | map(filter, argument…)` and `x | map(attribute=…, default=…)`: applies a filter to each item, or gives one member
/// of each item.
pub(super) fn map(
    state: &mut State<'_, '_>,
    value: Value,
    arguments: Rest<ValueOrKwargs>,
) -> Result<Vec<Value>, Error> {
    let options = arguments.last().filter(|last| last.is_kwargs()).map(|last| Kwargs::try_from((**last).clone()));
    let Some(options) = options.transpose()? else { return builtin::map(state, value, arguments) };
    let Some(attribute) = options.get::<Option<Value>>("attribute")? else {
        return builtin::map(state, value, arguments);
    };
    if arguments.len() > 1 {
        return Err(ErrorKind::TooManyArguments.into());
    }
    let default = options.get::<Option<Value>>("default")?.unwrap_or_default();
    options.assert_all_used()?;
    let mut members = Vec::new();
    for item in value.try_iter()?.checked() {
        members.push(read_attribute(&item?, &attribute)?.unwrap_or_else(|| default.clone()));
    }
    Ok(members)
}

/// `x | selectattr(name, test, argument…)` and `rejectattr`: keeps the items of which a member passes a test, or if
/// `keeps` is false fails it.
fn select_by(
    state: &mut State<'_, '_>,
    value: &Value,
    attribute: &Value,
    test: Option<&str>,
    (arguments, keeps): (Rest<ValueOrKwargs>, bool),
) -> Result<Vec<Value>, Error> {
    let arguments = arguments.into_values();
    let mut kept = Vec::new();
    for item in value.try_iter()?.checked() {
        let item = item?;
        let member = read_attribute(&item, attribute)?.unwrap_or_default();
        let passes = match test {
            Some(test) => {
                let arguments: Vec<Value> = iter::once(member).chain(arguments.iter().cloned()).collect();
                state.perform_test(test, &arguments)?
            }
            None => member.is_true(),
        };
        if passes == keeps {
            kept.push(item);
        }
    }
    Ok(kept)
}

/// `x | selectattr(name, test, argument…)`.
pub(super) fn select_attribute(
    state: &mut State<'_, '_>,
    value: &Value,
    attribute: &Value,
    test: Option<&str>,
    arguments: Rest<ValueOrKwargs>,
) -> Result<Vec<Value>, Error> {
    select_by(state, value, attribute, test, (arguments, true))
}

/// `x | rejectattr(name, test, argument…)`.
pub(super) fn reject_attribute(
    state: &mut State<'_, '_>,
    value: &Value,
    attribute: &Value,
    test: Option<&str>,
    arguments: Rest<ValueOrKwargs>,
) -> Result<Vec<Value>, Error> {
    select_by(state, value, attribute, test, (arguments, false))
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
