//! Switch: rules of all versions, and computed outputs.

use serde_json::{Map, Value};

use super::{
    N8n, Port, conditions, old, pointer,
    values::{self, Place},
};
use crate::{
    expr::{REFUSED, atom},
    report::{At, Verdict},
};

/// Greatest number of rules.
const RULES: usize = 64;
/// Greatest length of all conditions together, in bytes.
const LONGEST: usize = 200_000;

/// A condition, and the output to which it leads.
type Rule = (String, usize);

/// The rules of a node.
struct Rules {
    rules: Vec<Rule>,
    outputs: usize,
    /// The output of items without a rule.
    fallback: Option<usize>,
    /// True if an item goes to the outputs of all its rules.
    takes_all: bool,
}

/// Writes `data.filter` for each output.
pub(super) fn switch(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let place = Place { item: Some("item"), index: Some("index"), list };
    let is_old = parameters.get("rules").is_some_and(|rules| rules.get("rules").is_some());
    if parameters.get("mode").is_some_and(|mode| mode == "expression") {
        return computed(n8n, node, parameters, place, sources);
    }
    let mut rules = match is_old {
        true => old_rules(n8n, node, parameters, place, &at),
        false => new_rules(n8n, parameters, place, &at),
    };
    if rules.rules.is_empty() || rules.rules.len() > RULES {
        let why = format!("there are none, of an unknown version, or more than {RULES}");
        n8n.report.note(Verdict::Refused, &at.join("rules"), "rules", &why);
        rules.rules = vec![(REFUSED.into(), 0)];
        (rules.outputs, rules.fallback) = (1, None);
    }
    let mut routes: Vec<String> = (0..rules.outputs).map(|output| route(&rules, output)).collect();
    if routes.iter().map(String::len).sum::<usize>() > LONGEST {
        n8n.report.note(Verdict::Refused, &at.join("rules"), "rules", "the conditions are too long together");
        routes.truncate(1);
    }
    if parameters.get("mode").is_some_and(|mode| mode != "rules") {
        let why = "only rules and expressions are imported; write the conditions";
        n8n.report.note(Verdict::Refused, &at.join("mode"), "mode", why);
    }
    n8n.filters(node, &routes, list, sources);
}

/// Returns the condition of an output.
fn route(rules: &Rules, output: usize) -> String {
    let none = |before: &[Rule]| before.iter().map(|(condition, _)| format!("not ({condition})")).collect::<Vec<_>>();
    let own = rules.rules.iter().enumerate().filter(|(_, (_, to))| *to == output);
    let mut ways: Vec<String> = own
        .map(|(index, (condition, _))| {
            let earlier = if rules.takes_all { Vec::new() } else { none(&rules.rules[..index]) };
            earlier.into_iter().chain([condition.clone()]).collect::<Vec<_>>().join(" and ")
        })
        .collect();
    if rules.fallback == Some(output) {
        ways.push(none(&rules.rules).join(" and "));
    }
    match ways.as_slice() {
        [] => "false".into(),
        [way] => way.clone(),
        ways => ways.iter().map(|way| format!("({way})")).collect::<Vec<_>>().join(" or "),
    }
}

/// Reads the rules of version 3.
fn new_rules(n8n: &mut N8n<'_>, parameters: &Map<String, Value>, place: Place<'_>, at: &At) -> Rules {
    let values = parameters.get("rules").and_then(|rules| rules.get("values")).and_then(Value::as_array);
    let options = parameters.get("options");
    let option = |key: &str| options.and_then(|options| options.get(key));
    let mut rules: Vec<Rule> = Vec::new();
    for (index, rule) in values.into_iter().flatten().enumerate().take(RULES + 1) {
        let at = at.join("rules").join("values").join(index).join("conditions");
        let conditions = rule.get("conditions").unwrap_or(&Value::Null);
        rules.push((conditions::conditions(n8n, conditions, place, &at), index));
    }
    let mut outputs = rules.len();
    let number = |value: &Value| value.as_u64().and_then(|output| usize::try_from(output).ok());
    let fallback = match option("fallbackOutput") {
        None => None,
        Some(value) if value == "none" => None,
        Some(value) if value == "extra" => {
            outputs += 1;
            Some(outputs - 1)
        }
        Some(value) => {
            let output = number(value).filter(|output| *output < rules.len());
            if output.is_none() {
                let why = "write the rule of the other items";
                n8n.report.note(Verdict::Refused, &at.join("options"), "fallbackOutput", why);
            }
            output
        }
    };
    let known = ["allMatchingOutputs", "fallbackOutput", "looseTypeValidation", "ignoreCase", "renameFallbackOutput"];
    n8n.options(parameters, &known, at);
    n8n.unknown(parameters, &["rules", "options", "mode"], at);
    Rules { rules, outputs, fallback, takes_all: option("allMatchingOutputs") == Some(&true.into()) }
}

/// Reads the rules of versions 1 and 2, which compare one value.
fn old_rules(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, place: Place<'_>, at: &At) -> Rules {
    let kind = parameters.get("dataType").and_then(Value::as_str).unwrap_or("number");
    let left = old::value(n8n, parameters.get("value1"), kind, place, &at.join("value1"));
    let usual = match kind {
        "number" => "smaller",
        "dateTime" => "after",
        _ => "equal",
    };
    let list = parameters.get("rules").and_then(|rules| rules.get("rules")).and_then(Value::as_array);
    let mut rules: Vec<Rule> = Vec::new();
    // The names of outputs that rules of version 2 have.
    let mut keys: Vec<&str> = Vec::new();
    for (index, rule) in list.into_iter().flatten().enumerate().take(RULES + 1) {
        let at = at.join("rules").join("rules").join(index);
        let right = old::value(n8n, rule.get("value2"), kind, place, &at.join("value2"));
        let operation = rule.get("operation").and_then(Value::as_str).unwrap_or(usual);
        let condition = old::test(n8n, kind, operation, &left, &right, &at);
        let output = match rule.get("outputKey").and_then(Value::as_str) {
            Some(key) => keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                keys.push(key);
                keys.len() - 1
            }),
            None => output(n8n, rule.get("output"), &at.join("output")).unwrap_or(0),
        };
        rules.push((condition, output));
    }
    let fallback = match parameters.get("fallbackOutput") {
        Some(value) if value.as_i64() != Some(-1) => output(n8n, Some(value), &at.join("fallbackOutput")),
        _ => None,
    };
    n8n.unknown(parameters, &["rules", "mode", "dataType", "value1", "fallbackOutput", "options"], at);
    n8n.options(parameters, &[], at);
    let most = rules.iter().map(|(_, output)| *output).chain(fallback).max().unwrap_or(0);
    Rules { rules, outputs: most.max(last_output(n8n, node)) + 1, fallback, takes_all: false }
}

/// Reads the number of an output.
fn output(n8n: &mut N8n<'_>, value: Option<&Value>, at: &At) -> Option<usize> {
    let output = value.map_or(Some(0), Value::as_u64).and_then(|output| usize::try_from(output).ok());
    let output = output.filter(|output| *output < RULES);
    if output.is_none() {
        n8n.report.note(Verdict::Refused, at, "output", "it is the number of no output; write the rule");
    }
    output
}

/// Returns the last output with a connection.
fn last_output(n8n: &N8n<'_>, node: usize) -> usize {
    n8n.outgoing[node].iter().map(|link| n8n.links[*link].output).max().unwrap_or(0).min(RULES - 1)
}

/// Writes the outputs that an expression chooses.
fn computed(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, place: Place<'_>, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let outputs = parameters.get("numberOutputs").map_or(Some(4), Value::as_u64);
    let outputs =
        outputs.and_then(|outputs| usize::try_from(outputs).ok()).filter(|outputs| (1..=RULES).contains(outputs));
    if outputs.is_none() {
        n8n.report.note(Verdict::Refused, &at.join("numberOutputs"), "numberOutputs", "write the conditions");
    }
    let chosen = values::parameter(n8n, parameters, "output", place, &at);
    let chosen = chosen.map_or_else(|| "0".to_owned(), |chosen| atom(&chosen.to_expr()));
    n8n.unknown(parameters, &["mode", "output", "numberOutputs", "options"], &at);
    n8n.options(parameters, &[], &at);
    let outputs = outputs.unwrap_or(1);
    // The source fails for another number, too.
    let is_known = format!("({chosen} in range({outputs}) or (null | required))");
    let route = |output: usize| match output {
        0 => format!("{is_known} and {chosen} == 0"),
        output => format!("{chosen} == {output}"),
    };
    let routes: Vec<String> = (0..outputs).map(route).collect();
    n8n.filters(node, &routes, place.list, sources);
}
