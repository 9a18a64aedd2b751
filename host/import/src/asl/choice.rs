//! The state `Choice`: rules become the cases of `control.switch`.

use serde_json::{Map, Value, json};

use super::{
    Asl, path,
    template::{self, States},
};
use crate::{
    draft::{Node, On},
    expr::{LONGEST, REFUSED, atom, binding, bounded, literal, quoted},
    report::{At, Verdict},
    scope::{Env, Exit, Scope},
    walk::Target,
};

/// Maximum nesting of `And`, `Or` and `Not`.
const DEPTH: usize = 8;
/// Length from which a pattern exceeds the limit of expressions.
const LONGEST_PATTERN: usize = 1_000;
/// A time as RFC 3339 has it, as far as a pattern can tell.
const TIMESTAMP: &str =
    "^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?(Z|[+-]\\d\\d:\\d\\d)$";

/// A rule that could not be converted, with the reason.
type Refused = String;

pub(super) fn choice(
    asl: &mut Asl,
    scope: &Scope<'_>,
    state: &Map<String, Value>,
    at: &At,
    mut exit: Exit,
) -> Vec<(Target, Exit)> {
    let id = asl.draft.names.fresh(&exit.env.state);
    let times_id = asl.draft.names.fresh(&format!("{id}_times"));
    let rules = state.get("Choices").and_then(Value::as_array).cloned().unwrap_or_default();
    if rules.is_empty() {
        asl.report.note(Verdict::Refused, &at.join("Choices"), "Choices", "the state has no rules; add cases");
    }
    let before = exit.env.clone();
    let data = asl.input_path(state, &exit.env, at);
    // Conditions read the data as `value`, the local name of `control.switch`.
    let mut env = Env { data: "value".into(), ..exit.env.clone() };
    let (mut cases, mut routes, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for (index, rule) in rules.iter().enumerate() {
        let at = at.join("Choices").join(index);
        let mut context = Times { data: data.clone(), id: times_id.clone(), found: &mut times };
        let when = when(asl, rule, &env, &at, &mut context);
        let target = asl.target(scope, rule.get("Next"), &at.join("Next"));
        let assigned = rule.get("Assign").filter(|_| rule.is_object()).cloned();
        let route = route(&mut routes, &target, assigned, rule.get("Output").cloned(), &at);
        cases.push(json!({ "when": when, "route": route }));
        asl.check_keys(rule, if asl.is_jsonata { &JSONATA_KEYS } else { &RULE_KEYS }, &at);
    }
    let fallback = match state.get("Default") {
        Some(next) => asl.target(scope, Some(next), &at.join("Default")),
        None => Target::NoMatch,
    };
    if !times.is_empty() {
        // The conditions of `control.switch` have no functions for dates.
        let values: Vec<Value> = times.iter().map(|time| binding(time)).collect();
        let node = Node::value(&times_id, values.into());
        exit.push(&mut asl.draft, node);
    }
    let mut node = Node::new(&id, "control.switch", json!({ "value": binding(&data), "cases": cases }));
    asl.settle(&mut node, state, at);
    exit.push(&mut asl.draft, node);
    env = before;
    env.data = data;
    env.data = asl.output_path(state, &env, at);
    let carries = scope.assigned.is_empty() && state.get("OutputPath").is_none() && state.get("Output").is_none();
    let fallback = Route {
        name: "default".into(),
        target: fallback,
        assigned: state.get("Assign").cloned(),
        output: state.get("Output").cloned(),
        at: at.clone(),
    };
    routes.push(fallback);
    routes.into_iter().map(|route| way(asl, route, &id, &env, carries)).collect()
}

/// Returns the condition of a rule.
fn when(asl: &mut Asl, rule: &Value, env: &Env, at: &At, times: &mut Times<'_>) -> String {
    if !asl.is_jsonata {
        return condition(asl, rule, env, at, times, DEPTH).unwrap_or_else(|why| {
            asl.report.note(Verdict::Refused, at, "rule", &format!("{why}; write the condition"));
            REFUSED.into()
        });
    }
    let Some(condition) = rule.get("Condition").filter(|condition| !condition.is_null()) else {
        asl.report.note(Verdict::Refused, at, "rule", "it has no `Condition`; write the condition");
        return REFUSED.into();
    };
    template::query(asl, condition, env, States::default(), &at.join("Condition")).to_expr()
}

/// Returns the transition of a route with the end of the way to it.
fn way(asl: &mut Asl, route: Route, id: &str, env: &Env, carries: bool) -> (Target, Exit) {
    let mut exit = Exit { from: Some((id.to_owned(), On::Route(route.name))), env: env.clone(), carries };
    if let Some(output) = route.output.filter(|_| asl.is_jsonata) {
        exit.env.data = template::query(asl, &output, env, States::default(), &route.at.join("Output")).to_expr();
        exit.carries = false;
    }
    if let Some(assigned) = route.assigned {
        asl.assign(&mut exit, &assigned, env, States::default(), &route.at);
    }
    (route.target, exit)
}

/// Returns the name of the route to a target. Rules without variables and output of their own share it.
fn route(routes: &mut Vec<Route>, target: &Target, assigned: Option<Value>, output: Option<Value>, at: &At) -> String {
    let is_plain = assigned.is_none() && output.is_none();
    let same = routes.iter().find(|route| route.target == *target && is_plain && route.is_plain());
    if let Some(route) = same {
        return route.name.clone();
    }
    let name = format!("way{}", routes.len() + 1);
    routes.push(Route { name: name.clone(), target: target.clone(), assigned, output, at: at.clone() });
    name
}

/// Converts a rule to a condition.
fn condition(
    asl: &mut Asl,
    rule: &Value,
    env: &Env,
    at: &At,
    times: &mut Times<'_>,
    depth: usize,
) -> Result<String, Refused> {
    let depth = depth.checked_sub(1).ok_or("the rule is nested too deep")?;
    let rule = rule.as_object().ok_or("a rule must be an object")?;
    for (key, word) in [("And", " and "), ("Or", " or ")] {
        if let Some(parts) = rule.get(key).and_then(Value::as_array) {
            let mut whole = String::new();
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    whole.push_str(word);
                }
                whole.push_str(&condition(asl, part, env, &at.join(key).join(index), times, depth)?);
                if whole.len() > LONGEST {
                    return Err(format!("`{key}` has too many parts"));
                }
            }
            if whole.is_empty() {
                return Err(format!("`{key}` has no parts"));
            }
            asl.report.note(Verdict::Exact, &at.join(key), key, "");
            return bounded(format!("({whole})"));
        }
    }
    if let Some(part) = rule.get("Not") {
        let inner = condition(asl, part, env, &at.join("Not"), times, depth)?;
        asl.report.note(Verdict::Exact, &at.join("Not"), "Not", "");
        return bounded(format!("(not {inner})"));
    }
    let variable = rule.get("Variable").and_then(Value::as_str).ok_or("the rule has no `Variable`")?;
    let is_operator = |(key, _): &(&String, &Value)| {
        !RULE_KEYS.contains(&key.as_str()) && !JSONATA_KEYS.contains(&key.as_str()) && *key != "QueryLanguage"
    };
    let (operator, operand) = rule.iter().find(is_operator).ok_or("the rule has no operator")?;
    if rule.iter().filter(is_operator).count() > 1 {
        return Err("the rule has several operators".into());
    }
    bounded(test(asl, variable, operator, operand, env, at, times)?)
}

/// Converts a comparison.
fn test(
    asl: &mut Asl,
    variable: &str,
    operator: &str,
    operand: &Value,
    env: &Env,
    at: &At,
    times: &mut Times<'_>,
) -> Result<String, Refused> {
    let at = at.join(operator);
    let flag = || operand.as_bool().ok_or_else(|| format!("`{operator}` must be true or false"));
    let negated = |condition: String| flag().map(|holds| if holds { condition } else { format!("(not {condition})") });
    if operator == "IsPresent" {
        asl.report.note(Verdict::Exact, &at, operator, "");
        return negated(path::presence(variable, env)?);
    }
    let read = path::path(variable, env)?;
    let x = atom(&read.expr);
    if let Some(simple) = type_test(operator, &x) {
        match operator == "IsTimestamp" {
            true => {
                asl.report.note(Verdict::Approximated, &at, operator, "days that a month does not have are accepted")
            }
            false => asl.report.note(Verdict::Exact, &at, operator, ""),
        }
        return negated(simple);
    }
    let (name, by_path) = match operator.strip_suffix("Path") {
        Some(name) => (name, true),
        None => (operator, false),
    };
    let other = match (by_path, operand) {
        (true, Value::String(text)) => atom(&path::path(text, env)?.expr),
        (true, _) => return Err(format!("`{operator}` must be a path")),
        (false, operand) => literal(operand),
    };
    let kinds = ["String", "Numeric", "Timestamp", "Boolean"];
    let kind = kinds.into_iter().find(|kind| name.starts_with(kind)).ok_or_else(|| unknown(operator))?;
    if operator == "StringMatches" {
        let pattern = operand.as_str().ok_or("`StringMatches` must be a text")?;
        asl.report.note(Verdict::Exact, &at, operator, "");
        return Ok(format!("({x} is string and {x} is matches({}))", quoted(&wildcards(pattern)?)));
    }
    let sign = sign(&name[kind.len()..]).ok_or_else(|| unknown(operator))?;
    if !(by_path || fits(kind, operand)) || (kind == "Boolean" && sign != "==") {
        return Err(format!("`{operator}` has an operand of another type"));
    }
    asl.report.note(Verdict::Exact, &at, operator, "");
    let test = match kind {
        "Numeric" => "number",
        "Boolean" => "boolean",
        _ => "string",
    };
    // A path is read also if the types differ, so that a missing value fails.
    let types = if by_path { format!("{x} is {test} and {other} is {test}") } else { format!("{x} is {test}") };
    if kind == "Timestamp" {
        return time_test(variable, operand, by_path, sign, env, times);
    }
    Ok(format!("({types} and {x} {sign} {other})"))
}

/// Returns true if an operand has the type of its operator.
fn fits(kind: &str, operand: &Value) -> bool {
    match kind {
        "Numeric" => operand.is_number(),
        "Boolean" => operand.is_boolean(),
        _ => operand.is_string(),
    }
}

/// Returns the test of a value's type; `None` if an operator is none.
fn type_test(operator: &str, x: &str) -> Option<String> {
    match operator {
        // A comparison within a list does not count as a test, so a missing value still fails.
        "IsNull" => Some(format!("([{x}] == [null])")),
        "IsString" => Some(format!("({x} is string)")),
        "IsNumeric" => Some(format!("({x} is number)")),
        "IsBoolean" => Some(format!("({x} is boolean)")),
        "IsTimestamp" => Some(format!("({x} is string and {x} is matches({}))", quoted(TIMESTAMP))),
        _ => None,
    }
}

/// Returns the sign of a comparison.
fn sign(comparison: &str) -> Option<&'static str> {
    match comparison {
        "Equals" => Some("=="),
        "LessThan" => Some("<"),
        "GreaterThan" => Some(">"),
        "LessThanEquals" => Some("<="),
        "GreaterThanEquals" => Some(">="),
        _ => None,
    }
}

/// Adds a comparison of times to the node before the switch, and returns the condition that reads it.
fn time_test(
    variable: &str,
    operand: &Value,
    by_path: bool,
    sign: &str,
    env: &Env,
    times: &mut Times<'_>,
) -> Result<String, Refused> {
    let outer = Env { data: times.data.clone(), ..env.clone() };
    let x = atom(&path::path(variable, &outer)?.expr);
    let pattern = quoted(TIMESTAMP);
    let is_time = |value: &str| format!("{value} is string and {value} is matches({pattern})");
    let mut present = vec![path::presence(variable, &outer)?];
    let mut tests = vec![is_time(&x)];
    let other = match (by_path, operand.as_str()) {
        (true, Some(text)) => {
            present.push(path::presence(text, &outer)?);
            let other = atom(&path::path(text, &outer)?.expr);
            tests.push(is_time(&other));
            other
        }
        (false, Some(text)) => quoted(text),
        _ => return Err("a time must be a text".into()),
    };
    let compared = format!("{} and ({x} | datediff({other})) {sign} 0", tests.join(" and "));
    // Null stands for a missing value, and fails only if the rule is reached.
    times.found.push(bounded(format!("({compared}) if {} else null", present.join(" and ")))?);
    Ok(format!("({}.value[{}] | required)", times.id, times.found.len() - 1))
}

/// The comparisons of times of one state.
struct Times<'t> {
    /// Expression of the data, outside of `control.switch`.
    data: String,
    /// Id of the node that makes the comparisons.
    id: String,
    found: &'t mut Vec<String>,
}

/// A way out of the state.
struct Route {
    name: String,
    target: Target,
    assigned: Option<Value>,
    output: Option<Value>,
    at: At,
}

impl Route {
    fn is_plain(&self) -> bool {
        self.assigned.is_none() && self.output.is_none()
    }
}

/// Keys of a rule in JSONPath.
const RULE_KEYS: [&str; 7] = ["Variable", "Next", "Comment", "And", "Or", "Not", "Assign"];
/// Keys of a rule in JSONata.
const JSONATA_KEYS: [&str; 5] = ["Next", "Comment", "Condition", "Assign", "Output"];

fn unknown(operator: &str) -> Refused {
    format!("the operator {} is unknown", Value::from(operator))
}

/// Returns the regular expression of a text with wildcards. `\*` is a star, and `\\` a backslash.
fn wildcards(text: &str) -> Result<String, Refused> {
    let mut pattern = String::from("(?s)^");
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            '*' => {
                pattern.push_str(".*");
                continue;
            }
            '\\' => letters.next().unwrap_or('\\'),
            letter => letter,
        };
        if "\\.+*?()|[]{}^$#&-~".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    match pattern.len() < LONGEST_PATTERN {
        true => Ok(pattern + "$"),
        false => Err("the pattern is too long".into()),
    }
}
