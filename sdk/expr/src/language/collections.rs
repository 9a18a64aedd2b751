//! Functions that make and change lists and objects.

use std::sync::Arc;

use minijinja::{Error, State, Value, value::Kwargs};

use super::{
    budget::charge,
    operands::{argument, invalid, kind, push_value, too_long},
    text::push_str,
    values::{check_part, file_misuse, from_value, is_file, to_value},
};
use crate::{
    file::not_usable_message,
    json::{self, Json},
    limits,
};

/// `range(stop)` and `range(start, stop, step)`: the whole numbers from `start` to before `stop`.
pub(super) fn range(
    state: &mut State<'_, '_>,
    first: i64,
    stop: Option<i64>,
    step: Option<i64>,
    options: Kwargs,
) -> Result<Value, Error> {
    let stop = argument(stop, &options, "stop")?;
    let step = argument(step, &options, "step")?.unwrap_or(1);
    options.assert_all_used()?;
    let (start, stop) = stop.map_or((0, first), |stop| (first, stop));
    if step == 0 {
        return Err(invalid("`range` needs a step that is not 0".to_owned()));
    }
    let (distance, length) = match step > 0 {
        true => (i128::from(stop) - i128::from(start), i128::from(step)),
        false => (i128::from(start) - i128::from(stop), -i128::from(step)),
    };
    let count = usize::try_from((distance + length - 1) / length).unwrap_or(if distance < 0 { 0 } else { usize::MAX });
    charge(state, count.saturating_mul(limits::ITEM_WORK))?;
    let numbers = std::iter::successors(Some(start), |number| number.checked_add(step)).take(count);
    Ok(Value::from(numbers.map(Value::from).collect::<Vec<_>>()))
}

/// `x | flatten(levels)`: replaces the lists in a list by their items. The default is all levels.
pub(super) fn flatten(
    state: &mut State<'_, '_>,
    value: Value,
    levels: Option<usize>,
    options: Kwargs,
) -> Result<Value, Error> {
    let levels = argument(levels, &options, "levels")?.unwrap_or(usize::MAX);
    options.assert_all_used()?;
    let list = |json: Json| match json {
        Json::Array(items) => Ok(items),
        other => Err(invalid(format!("`flatten` needs a list, not {}", other.type_name()))),
    };
    let mut flat: Vec<Json> = Vec::new();
    // The lists that are being read, each with the position of its next item.
    let mut open = vec![(list(from_value(&value).map_err(invalid)?)?, 0)];
    while let Some((items, at)) = open.last_mut() {
        let item = items.get(*at).cloned();
        *at += 1;
        let Some(item) = item else {
            open.pop();
            continue;
        };
        charge(state, limits::ITEM_WORK)?;
        match item {
            Json::Array(inner) if open.len() <= levels => open.push((inner, 0)),
            other => flat.push(other),
        }
    }
    Ok(to_value(&Json::array(flat)))
}

/// `x | merge(other)`: an object with the members of both. Objects under the same key are merged, too; any other value
/// of `other` replaces the one of `x`.
pub(super) fn merge(state: &mut State<'_, '_>, value: Value, other: Value) -> Result<Value, Error> {
    if is_file(&other) {
        return Err(file_misuse(not_usable_message("merge")));
    }
    let object = |value: &Value| match from_value(value).map_err(invalid)? {
        Json::Object(members) => Ok(members),
        _ => Err(invalid(format!("`merge` needs objects, not {}", kind(value)))),
    };
    let merged = merge_objects(state, &object(&value)?, &object(&other)?, 0)?;
    Ok(to_value(&Json::Object(merged)))
}

fn merge_objects(
    state: &mut State<'_, '_>,
    under: &Arc<json::Object>,
    over: &Arc<json::Object>,
    depth: usize,
) -> Result<Arc<json::Object>, Error> {
    if depth > limits::DEPTH {
        return Err(invalid(format!("`merge`: the objects are nested deeper than {}", limits::DEPTH)));
    }
    charge(state, (under.len() + over.len()).saturating_mul(limits::ITEM_WORK))?;
    let mut merged = json::Object::clone(under);
    for (key, value) in over.iter() {
        let value = match (merged.get(key), value) {
            (Some(Json::Object(inner)), Json::Object(value)) if !json::is_file(inner) && !json::is_file(value) => {
                Json::Object(merge_objects(state, &inner.clone(), value, depth + 1)?)
            }
            _ => value.clone(),
        };
        merged.insert(key.clone(), value);
    }
    Ok(Arc::new(merged))
}

/// `x | pointer(path)`: the part of a value at a JSON Pointer (RFC 6901), missing if there is none.
pub(super) fn pointer(value: Value, path: &str) -> Result<Value, Error> {
    if !path.is_empty() && !path.starts_with('/') {
        return Err(invalid("`pointer` needs a path that starts with `/`, such as `/items/0/id`".to_owned()));
    }
    let mut part = value;
    for token in path.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let is_list = part.try_iter().is_ok() && part.as_str().is_none() && kind(&part) == "a list";
        let key = match token.parse::<usize>() {
            Ok(index) if is_list && (token == "0" || !token.starts_with(['0', '+'])) => Value::from(index),
            _ if is_list => return Ok(Value::UNDEFINED),
            _ => Value::from(token),
        };
        check_part(&part, &key)?;
        if !matches!(kind(&part), "a list" | "an object") {
            return Ok(Value::UNDEFINED);
        }
        part = part.get_item(&key)?;
    }
    Ok(part)
}

/// `x | keys`: the keys of an object.
pub(super) fn keys(value: Value) -> Result<Value, Error> {
    members("keys", &value, |key, _| Json::from(&**key))
}

/// `x | values`: the values of the members of an object.
pub(super) fn values(value: Value) -> Result<Value, Error> {
    members("values", &value, |_, value| value.clone())
}

fn members(name: &str, value: &Value, part: impl Fn(&Arc<str>, &Json) -> Json) -> Result<Value, Error> {
    match from_value(value).map_err(invalid)? {
        Json::Object(members) => Ok(to_value(&Json::array(members.iter().map(|(key, value)| part(key, value))))),
        _ => Err(invalid(format!("`{name}` needs an object, not {}", kind(value)))),
    }
}

/// `x | tocsv(separator)`: a list as one line of CSV (RFC 4180), without a line break at its end.
pub(super) fn to_csv(value: &Value, separator: Option<&str>, options: Kwargs) -> Result<String, Error> {
    let separator = argument(separator, &options, "separator")?.unwrap_or(",");
    options.assert_all_used()?;
    if separator.chars().count() != 1 || separator.contains(['"', '\r', '\n']) {
        return Err(invalid("`tocsv` needs a separator of one character that is no quote or line break".to_owned()));
    }
    if kind(value) != "a list" {
        return Err(invalid(format!("`tocsv` needs a list, not {}", kind(value))));
    }
    let mut line = String::new();
    for (at, item) in value.try_iter()?.enumerate() {
        if matches!(kind(&item), "a list" | "an object") {
            let hint = "write `| tojson` after it, or apply `tocsv` to each row: `rows | map('tocsv') | join('\\n')`";
            return Err(invalid(format!("`tocsv`: the item {at} is {}: {hint}", kind(&item))));
        }
        let mut field = String::new();
        push_value(&mut field, &item)?;
        let is_quoted = field.contains(separator) || field.contains(['"', '\r', '\n']) || field.trim() != field;
        let written = if is_quoted { format!("\"{}\"", field.replace('"', "\"\"")) } else { field };
        let before = if at > 0 { separator } else { "" };
        push_str(&mut line, before).and_then(|()| push_str(&mut line, &written)).map_err(too_long)?;
    }
    Ok(line)
}
