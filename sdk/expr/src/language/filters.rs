//! Filters and tests that MiniJinja does not have, or has without limits.

use std::{collections::HashMap, error, fmt, sync::Arc};

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, Rest, ValueOrKwargs},
};

use super::{
    arithmetic,
    budget::{TOO_MUCH_WORK, charge},
    lists::as_list,
    lookup::{Missing, check_attribute, read_attribute},
    names,
    operands::{WrongArgument, argument, invalid, is_null, kind, missing, push_value, too_long},
    text::{TextTooLong, push_compact, push_str},
    values::{FileMisuse, check_part, file_misuse, from_value, is_file, to_value},
};
use crate::{file::not_usable_message, functions::functions_named, json::Json, limits, pattern::Pattern};

/// `x | required`: fails if `x` is missing or null. The canonical form passes the expression's source as the second
/// argument and `false` as the third. If the third argument is true, as in references of the steps dialect, null is
/// allowed.
pub(super) fn required(value: Value, what: Option<&str>, nullable: Option<bool>) -> Result<Value, Error> {
    let what = what.unwrap_or("the value");
    let problem = match nullable {
        Some(true) if value.is_undefined() => "missing",
        Some(false) | None if is_null(&value) => "missing or null",
        _ => return Ok(value),
    };
    let hint = match nullable {
        Some(false) => "provide a value, or write `| default(…)` in place of `| required`",
        _ => "provide a value",
    };
    Err(invalid(format!("`{what}` is required, but {problem}")).with_source(Required(hint)))
}

/// The source of an error about a required value. It contains the help text of the error.
#[derive(Debug)]
pub(super) struct Required(pub(super) &'static str);

impl fmt::Display for Required {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value is required")
    }
}

impl error::Error for Required {}

/// The operand `a` of `a[b:c]`: returns it unchanged, or an error if it is a file value.
pub(super) fn sliced(value: Value) -> Result<Value, Error> {
    if is_file(&value) { Err(file_misuse(not_usable_message("[:]"))) } else { Ok(value) }
}

/// `x | default(other, lax)`: returns `other` (default: an empty text) in place of a missing or null value. If `lax` is
/// true, `false`, zero and empty values are replaced, too. Jinja calls this argument `boolean`.
pub(super) fn default(value: Value, arguments: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let mut arguments = arguments.into_values();
    let named = arguments.pop_if(|last| last.is_kwargs()).map(Kwargs::try_from).transpose()?;
    let lax = match &named {
        Some(options) => {
            let of = |name: &str| options.get::<Option<Value>>(name);
            let lax = of("lax")?.or(of("boolean")?);
            options.assert_all_used()?;
            lax.map(|lax| lax.is_true())
        }
        None => None,
    };
    let (other, is_lax) = match arguments.as_slice() {
        [] => (Value::from(""), lax),
        [other] => (other.clone(), lax),
        [other, lax] => (other.clone(), Some(lax.is_true())),
        _ => return Err(ErrorKind::TooManyArguments.into()),
    };
    let is_lax = is_lax.unwrap_or(false);
    Ok(if is_null(&value) || (is_lax && !value.is_true()) { other } else { value })
}

/// `x is divisibleby(y)`.
pub(super) fn is_divisible_by(value: &Value, other: &Value) -> Result<bool, Error> {
    if !value.is_number() || !other.is_number() {
        return Ok(false);
    }
    let zero = || invalid("`divisibleby` divides by zero".to_owned());
    match (i128::try_from(value.clone()), i128::try_from(other.clone())) {
        (Ok(value), Ok(other)) => value.checked_rem_euclid(other).map(|rest| rest == 0).ok_or_else(zero),
        _ => match f64::try_from(other.clone())? {
            0.0 => Err(zero()),
            other => Ok(f64::try_from(value.clone())? % other == 0.0),
        },
    }
}

/// `x is even`: false for anything that is not a whole number.
pub(super) fn is_even(value: &Value) -> bool {
    value.is_number() && i128::try_from(value.clone()).is_ok_and(|value| value % 2 == 0)
}

/// `x is odd`: false for anything that is not a whole number.
pub(super) fn is_odd(value: &Value) -> bool {
    value.is_number() && i128::try_from(value.clone()).is_ok_and(|value| value % 2 != 0)
}

/// `x | string`: the value as it appears in mixed text.
pub(super) fn string(value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    push_value(&mut text, value)?;
    Ok(text)
}

/// `x | tojson`: the value as compact JSON text.
pub(super) fn to_json(value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    push_compact(&mut text, &from_value(value).map_err(invalid)?).map_err(too_long)?;
    Ok(text)
}

/// `x | fromjson`: the value of a JSON text.
pub(super) fn from_json(text: &str) -> Result<Value, Error> {
    Json::parse(text).map(|value| to_value(&value)).map_err(|error| invalid(format!("`fromjson`: {error}")))
}

/// `x | replace(from, to)`: replaces every occurrence of `from` in a text with `to`.
pub(super) fn replace(value: &Value, from: &Value, to: &Value) -> Result<String, Error> {
    let (value, from, to) = (string(value)?, string(from)?, string(to)?);
    if from.is_empty() {
        return Err(invalid("`replace` needs a text to find that is not empty".to_owned()));
    }
    let mut text = String::new();
    let mut rest = value.as_str();
    while let Some((before, after)) = rest.split_once(&from) {
        push_str(&mut text, before).and_then(|()| push_str(&mut text, &to)).map_err(too_long)?;
        rest = after;
    }
    push_str(&mut text, rest).map_err(too_long)?;
    Ok(text)
}

/// `x | join(separator, attribute=…)`: joins the items of a list to one text.
pub(super) fn join(value: &Value, separator: Option<&str>, options: Kwargs) -> Result<String, Error> {
    let attribute: Option<Value> = options.get("attribute")?;
    options.assert_all_used()?;
    let mut text = String::new();
    for (at, item) in value.try_iter()?.enumerate() {
        if at > 0 {
            push_str(&mut text, separator.unwrap_or_default()).map_err(too_long)?;
        }
        match &attribute {
            Some(attribute) => push_value(&mut text, &read_attribute(&item, attribute)?.unwrap_or_default())?,
            None => push_value(&mut text, &item)?,
        }
    }
    Ok(text)
}

/// `x | indent(width, first=…, blank=…)`: indents every line except the first.
pub(super) fn indent(value: &str, width: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let first = options.get::<Option<bool>>("first")?.unwrap_or(false);
    let blank = options.get::<Option<bool>>("blank")?.unwrap_or(false);
    let width = argument(width, &options, "width")?.unwrap_or(4);
    options.assert_all_used()?;
    if width > limits::TEXT_BYTES {
        return Err(too_long(TextTooLong));
    }
    let (margin, mut text) = (" ".repeat(width), String::new());
    for (at, line) in value.split('\n').enumerate() {
        let break_ = if at > 0 { "\n" } else { "" };
        let wanted = (at > 0 || first) && (blank || !line.trim_end_matches('\r').is_empty());
        let margin = if wanted { margin.as_str() } else { "" };
        for part in [break_, margin, line] {
            push_str(&mut text, part).map_err(too_long)?;
        }
    }
    Ok(text)
}

/// `x | sum(attribute=…)`: adds numbers. Texts are errors, so that no text grows in a loop.
pub(super) fn sum(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let attribute: Option<Value> = options.get("attribute")?;
    let mut total: Value = options.get::<Option<Value>>("start")?.unwrap_or(Value::from(0));
    options.assert_all_used()?;
    if is_null(value) {
        return Err(missing(no_null("sum")));
    }
    for item in value.try_iter()? {
        let item = match &attribute {
            Some(attribute) => read_attribute(&item, attribute)?.unwrap_or_default(),
            None => item,
        };
        let failed = || invalid(format!("`sum` needs numbers, not {}", kind(&item)));
        total = arithmetic::sum(&total, &item).ok_or_else(failed)?;
    }
    Ok(total)
}

/// Returns an error if `slice` would create more than [`limits::GROUPS`] lists.
pub(super) fn check_groups(arguments: Vec<Value>) -> Result<Vec<Value>, Error> {
    match arguments.get(1).and_then(Value::as_usize) {
        Some(count) if count > limits::GROUPS => {
            Err(invalid(format!("`slice` creates more than {} lists", limits::GROUPS)))
        }
        _ => Ok(arguments),
    }
}

/// Returns an error if `batch` would add more than [`limits::GROUPS`] fillings to the last list. Without `fill`, the
/// items of the list bound the result.
pub(super) fn check_fillings(arguments: Vec<Value>) -> Result<Vec<Value>, Error> {
    let has_fill = arguments.get(2).is_some_and(|fill| !is_null(fill));
    let count = arguments.get(1).and_then(Value::as_usize).filter(|count| has_fill && *count > limits::GROUPS);
    let (Some(count), Some(items)) = (count, arguments.first()) else { return Ok(arguments) };
    // Of an operand without a length, one item may be in the last list.
    let last = items.len().map_or(1, |length| length % count);
    if last > 0 && count - last > limits::GROUPS {
        return Err(invalid(format!("`batch` fills up the last list with more than {} items", limits::GROUPS)));
    }
    Ok(arguments)
}

/// The patterns compiled in this evaluation, because `select("matches", p)` uses the same pattern for each item.
#[derive(Default)]
struct Patterns(HashMap<String, Arc<Pattern>>);

/// `x is matches(pattern)`: true if the pattern matches a part of a text; false for a missing or null value.
pub(super) fn matches(state: &mut State<'_, '_>, value: Value, pattern: &str) -> Result<bool, Error> {
    if is_null(&value) {
        return Ok(false);
    }
    let text = value.as_str().ok_or_else(|| invalid(format!("`matches` searches texts, not {}", kind(&value))))?;
    let compiled = compiled(state, pattern)?;
    // A search above the limit is not run, so it costs nothing.
    let searched = Some(compiled.cost(text)).filter(|cost| *cost <= limits::SEARCH_WORK);
    charge(state, searched.unwrap_or(0) / limits::SEARCH_PER_WORK)?;
    compiled.search(text).map_err(invalid)
}

/// Compiles a pattern, once in an evaluation.
pub(super) fn compiled(state: &mut State<'_, '_>, pattern: &str) -> Result<Arc<Pattern>, Error> {
    if let Some(known) = state.get_or_insert_extension_with(Patterns::default).0.get(pattern) {
        return Ok(known.clone());
    }
    let compiled = Arc::new(Pattern::new(pattern).map_err(invalid)?);
    charge(state, compiled.size())?;
    state.get_or_insert_extension_with(Patterns::default).0.insert(pattern.to_owned(), compiled.clone());
    Ok(compiled)
}

/// A function that checks or changes the arguments of a filter before the call.
pub(super) type Prepare = fn(Vec<Value>) -> Result<Vec<Value>, Error>;

/// Returns a filter that counts the work of its arguments and then calls `function`. File values are errors unless
/// `takes_files` is true. Lazy results of MiniJinja become lists.
pub(super) fn metered(
    name: &'static str,
    takes_files: bool,
    function: Value,
    prepare: Prepare,
) -> impl Fn(&mut State<'_, '_>, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    move |state, arguments| {
        let arguments = arguments.into_values();
        charge(state, super::budget::cost(&arguments)).map_err(|error| with_work_of(error, name))?;
        if !takes_files {
            check_files(name, &arguments)?;
        }
        check_attribute(state, name, &arguments)?;
        let operand = arguments.first().cloned().unwrap_or_default();
        let lacks_argument = arguments.iter().any(is_null);
        let given = arguments.iter().skip(1).filter(|argument| !argument.is_kwargs()).count();
        let prepared = prepare(arguments)?;
        let result = function.call(state, &prepared).and_then(|result| as_list(state, result));
        result.map_err(|error| with_filter_name(error, name, &operand, (lacks_argument, given)))
    }
}

/// Adds to an error the name of the filter or test, and the type of its operand. If the operand is null, replaces
/// the message. Leaves an error unchanged if its message already names the filter, the test or the missing value,
/// if it comes from an operator, or if it is about the work of all expressions together. `given` is the number of
/// arguments without a name.
fn with_filter_name(error: Error, name: &str, operand: &Value, (lacks_argument, given): (bool, usize)) -> Error {
    let source = error::Error::source(&error);
    let is_told =
        source.is_some_and(|source| source.is::<FileMisuse>() || source.is::<Missing>() || source.is::<Required>());
    let is_operator = names::OPERATORS.iter().any(|(operator, _)| *operator == name);
    if is_told || is_operator || error.kind() == ErrorKind::OutOfFuel {
        return with_work_of(error, name);
    }
    let function = functions_named(name).next();
    let write = || function.map_or(String::new(), |function| format!(": write `{}`", function.signature));
    let wrong = source.and_then(|source| source.downcast_ref::<WrongArgument>());
    let wrong = wrong.map(|wrong| wrong.describe(name, function));
    let detail = error.detail().map_or_else(|| error.kind().to_string(), without_type_names);
    match (is_null(operand), lacks_argument) {
        (true, _) => missing(no_null(name)),
        _ if wrong.is_some() => wrong.unwrap_or(error),
        // Messages of this crate already name their subject.
        _ if detail.contains('`') => error,
        _ if error.kind() == ErrorKind::MissingArgument && error.detail().is_none() => {
            invalid(format!("`{name}` lacks an argument{}", write()))
        }
        _ if error.kind() == ErrorKind::TooManyArguments && error.detail().is_none() => {
            let named = function.and_then(|function| last_parameter(function.signature, given));
            let named = named.map_or(String::new(), |last| format!(", and give `{last}` by its name: `{last}=…`"));
            invalid(format!("`{name}` has too many arguments{}{named}", write()))
        }
        // The operand is a text, so the error is about an argument.
        (false, false) if detail == "value is not a string" && operand.as_str().is_some() => {
            invalid(format!("`{name}` has an argument that is not a text{}", write()))
        }
        (false, false) if detail == "value is not a string" => {
            invalid(format!("`{name}` needs a text, not {}", kind(operand)))
        }
        (false, true) => missing(format!("`{name}` fails on {}: {detail}", kind(operand))),
        (false, false) => invalid(format!("`{name}` fails on {}: {detail}", kind(operand))),
    }
}

/// Returns the last parameter of a signature if it has a default, and the signature has at least `given` parameters: one
/// of them was given in its place, and has to be named.
fn last_parameter(signature: &str, given: usize) -> Option<&str> {
    let parameters = signature.split_once('(')?.1.strip_suffix(')')?;
    let (last, _) = parameters.rsplit(',').next()?.split_once('=')?;
    (given <= parameters.split(',').count()).then_some(last.trim())
}

/// Names the filter or test in an error about too much work of this expression. Leaves any other error unchanged.
fn with_work_of(error: Error, name: &str) -> Error {
    let is_named = !name.starts_with('_') && error.kind() == ErrorKind::OutOfFuel;
    if is_named && error.detail() == Some(TOO_MUCH_WORK) {
        return Error::new(ErrorKind::OutOfFuel, format!("`{name}` does too much work"));
    }
    error
}

/// Returns a message of MiniJinja about an argument without the names of Rust's types.
fn without_type_names(detail: &str) -> String {
    const TYPES: [(&str, &str); 7] = [
        ("i32", "whole number"),
        ("u64", "whole number of at least 0"),
        ("usize", "whole number of at least 0"),
        ("u32", "whole number of at least 0"),
        ("i64", "whole number"),
        ("f64", "number"),
        ("bool", "boolean"),
    ];
    let plain = TYPES.iter().find_map(|(of_rust, plain)| {
        let before = detail.strip_suffix(of_rust)?;
        before.ends_with(" to ").then(|| format!("{before}a {plain}"))
    });
    plain.unwrap_or_else(|| detail.to_owned())
}

/// Returns the message about null as the operand of a filter.
fn no_null(name: &str) -> String {
    let advice = match name {
        "float" | "int" => ": write `| default(0)` before it",
        "sum" => ": write `| default([])` before it",
        _ => "",
    };
    format!("`{name}` does not work on null{advice}")
}

/// Returns an error for a file value that is used as if it were its content.
fn check_files(name: &str, arguments: &[Value]) -> Result<(), Error> {
    let operator = names::OPERATORS.into_iter().find(|(operator, _)| *operator == name);
    let (shown, used) = match operator {
        Some((_, sign)) => (sign, arguments),
        None => (name, &arguments[..arguments.len().min(1)]),
    };
    match used.iter().find(|value| is_file(value)) {
        Some(file) if name == "attr" => arguments.get(1).map_or(Ok(()), |part| check_part(file, part)),
        Some(_) => Err(file_misuse(not_usable_message(shown))),
        None => Ok(()),
    }
}
