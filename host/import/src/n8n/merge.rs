//! Merge: the modes of all versions.

use flowcell_flow::escape_text;
use serde_json::{Map, Value, json};

use super::{N8n, Port, calls, pointer, values};
use crate::{
    draft::Node,
    expr::{atom, binding},
    report::{At, Verdict},
};

/// Greatest number of inputs.
const INPUTS: usize = 64;

/// How Merge combines the items of two inputs.
enum Way {
    /// The items of all inputs, one input after the other.
    Append,
    /// The items of one input.
    Choose(usize),
    /// One empty item.
    Empty,
    /// A query over the lists `a` and `b`.
    Query(String),
}

/// Writes the node.
pub(super) fn merge(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>) {
    let at = pointer(node).join("parameters");
    let inputs = n8n.incoming[node].iter().map(|link| n8n.links[*link].input).max();
    let inputs = inputs.map_or(0, |most| most.saturating_add(1));
    let (mut lists, mut sources) = (Vec::new(), Vec::new());
    for input in 0..inputs.min(INPUTS) {
        let (list, ports) = n8n.input(node, input);
        lists.push(format!("({} | default([]))", atom(&list)));
        sources.extend(ports);
    }
    let way = if inputs > INPUTS { None } else { way(n8n, node, parameters, &at) };
    match way {
        Some(Way::Query(query)) if inputs <= 2 => {
            let id = n8n.fresh(node);
            let list = |input: usize| binding(lists.get(input).map_or("[]", String::as_str));
            let input = json!({ "input": { "a": list(0), "b": list(1) }, "query": escape_text(&query) });
            n8n.add(node, Node::new(&id, "data.query", input), &sources);
            n8n.single(node, &id, "value", format!("{id}.value"), true);
        }
        Some(Way::Choose(input)) => {
            let list = lists.get(input).cloned().unwrap_or_else(|| "[]".into());
            hand_on(n8n, node, &list, &sources, true);
        }
        Some(Way::Empty) => hand_on(n8n, node, "[{}]", &sources, false),
        Some(Way::Append) => {
            let list = appended(n8n, node, &lists);
            n8n.hand_on(node, &list, &sources);
        }
        None | Some(Way::Query(_)) => {
            let list = appended(n8n, node, &lists);
            calls::missing(n8n, node, &list, &sources);
        }
    }
}

fn hand_on(n8n: &mut N8n<'_>, node: usize, list: &str, sources: &[Port], may_be_empty: bool) {
    let id = n8n.fresh(node);
    n8n.add(node, Node::value(&id, binding(list)), sources);
    n8n.single(node, &id, "value", format!("{id}.value"), may_be_empty);
}

/// Returns the expression of the items of all inputs.
fn appended(n8n: &mut N8n<'_>, node: usize, lists: &[String]) -> String {
    let list = match lists.split_first() {
        None => "[]".to_owned(),
        Some((first, [])) => first.clone(),
        Some((first, others)) => format!("{first} | chain({})", others.join(", ")),
    };
    values::within(n8n, list, &pointer(node)).to_expr()
}

/// Reads the mode; `None` if it is not imported.
fn way(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, at: &At) -> Option<Way> {
    let text = |key: &str| parameters.get(key).and_then(Value::as_str);
    let version = n8n.nodes[node].get("typeVersion").and_then(Value::as_f64).unwrap_or(1.0);
    let (known, way): (&[&str], Way) = match text("mode").unwrap_or("append") {
        "append" => (&["numberInputs"], Way::Append),
        "chooseBranch" => {
            let number = parameters.get("useDataOfInput").and_then(|input| {
                input.as_u64().or_else(|| input.as_str()?.parse().ok()).and_then(|input| usize::try_from(input).ok())
            });
            let way = match (text("output").unwrap_or("specifiedInput"), number.unwrap_or(1)) {
                ("empty", _) => Way::Empty,
                ("input2", _) => Way::Choose(1),
                ("input1" | "specifiedInput", number) if number > 0 => Way::Choose(number - 1),
                _ => return None,
            };
            (&["output", "useDataOfInput", "chooseBranchMode", "numberInputs"], way)
        }
        "passThrough" => match text("output").unwrap_or("input1") {
            "input1" => (&["output"], Way::Choose(0)),
            "input2" => (&["output"], Way::Choose(1)),
            _ => return None,
        },
        "wait" => (&[], Way::Empty),
        "combine" => (
            &[
                "combinationMode",
                "combineBy",
                "advanced",
                "mergeByFields",
                "fieldsToMatchString",
                "joinMode",
                "outputDataFrom",
            ],
            Way::Query(combined(n8n, parameters, at)?),
        ),
        "multiplex" => (&[], Way::Query("[.a[] as $a | .b[] as $b | $a + $b]".into())),
        "mergeByIndex" if version < 2.0 => {
            let length = match text("join").unwrap_or("left") {
                "inner" => "[(.a | length), (.b | length)] | min",
                "left" => ".a | length",
                "outer" => "[(.a | length), (.b | length)] | max",
                _ => return None,
            };
            (&["join"], Way::Query(by_position(length, "+", false)))
        }
        mode @ ("keepKeyMatches" | "removeKeyMatches") => {
            let pair = (text("propertyName1")?, text("propertyName2")?);
            let join = if mode == "keepKeyMatches" { "keepMatches" } else { "keepNonMatches" };
            note_fields(n8n, at);
            (&["propertyName1", "propertyName2"], Way::Query(by_fields(&[pair], join, "input1", ["$a", "$b"], "+")?))
        }
        _ => return None,
    };
    n8n.options(parameters, &["clashHandling", "includeUnpaired"], at);
    n8n.unknown(parameters, &[known, &["mode", "options"]].concat(), at);
    Some(way)
}

/// Returns the query of the mode `combine`.
fn combined(n8n: &mut N8n<'_>, parameters: &Map<String, Value>, at: &At) -> Option<String> {
    let text = |key: &str| parameters.get(key).and_then(Value::as_str);
    let option = |key: &str| parameters.get("options").and_then(|options| options.get(key));
    let clash = option("clashHandling").and_then(|clash| clash.get("values")).and_then(Value::as_object);
    if clash.is_some_and(|clash| clash.keys().any(|key| key != "resolveClash" && key != "mergeMode")) {
        return None;
    }
    let clash = |key: &str| clash.and_then(|clash| clash.get(key)).and_then(Value::as_str);
    let order = match clash("resolveClash").unwrap_or("preferInput2") {
        "preferInput1" => ["$b", "$a"],
        "preferInput2" | "preferLast" => ["$a", "$b"],
        _ => return None,
    };
    let sign = match clash("mergeMode").unwrap_or("deepMerge") {
        "deepMerge" => {
            let why = "the list of one item replaces that of the other, and there lists are merged item by item";
            n8n.report.note(Verdict::Approximated, &at.join("mode"), "deep merge", why);
            "*"
        }
        "shallowMerge" => "+",
        _ => return None,
    };
    match text("combineBy").or_else(|| text("combinationMode")).unwrap_or("combineByFields") {
        "combineAll" | "multiplex" => Some(format!("[.a[] as $a | .b[] as $b | {} {sign} {}]", order[0], order[1])),
        "combineByPosition" | "mergeByPosition" => {
            let length = match option("includeUnpaired") == Some(&true.into()) {
                true => "[(.a | length), (.b | length)] | max",
                false => "[(.a | length), (.b | length)] | min",
            };
            Some(by_position(length, sign, order[0] == "$b"))
        }
        "combineByFields" | "mergeByFields" => {
            note_fields(n8n, at);
            let names = text("fieldsToMatchString").unwrap_or_default();
            let mut pairs: Vec<(&str, &str)> =
                names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(|name| (name, name)).collect();
            let values = parameters.get("mergeByFields").and_then(|fields| fields.get("values")?.as_array());
            for pair in values.into_iter().flatten() {
                pairs.push((pair.get("field1")?.as_str()?, pair.get("field2")?.as_str()?));
            }
            let join = text("joinMode").unwrap_or("keepMatches");
            by_fields(&pairs, join, text("outputDataFrom").unwrap_or("both"), order, sign)
        }
        _ => None,
    }
}

fn note_fields(n8n: &mut N8n<'_>, at: &At) {
    let why = "1 and '1' are different, and an item may match several others";
    n8n.report.note(Verdict::Approximated, &at.join("mode"), "matching fields", why);
}

/// Returns the query that combines items at the same place.
fn by_position(length: &str, sign: &str, is_reversed: bool) -> String {
    let (a, b) = ("(.a[$i] // {})", "(.b[$i] // {})");
    let (first, second) = if is_reversed { (b, a) } else { (a, b) };
    format!("[range({length}) as $i | {first} {sign} {second}]")
}

/// Returns the query that combines items with equal fields; `None` for an unknown mode.
fn by_fields(pairs: &[(&str, &str)], join: &str, from: &str, order: [&str; 2], sign: &str) -> Option<String> {
    if pairs.is_empty() || pairs.len() > 16 || pairs.iter().any(|(a, b)| a.is_empty() || b.is_empty()) {
        return None;
    }
    let key = |names: Vec<&str>| {
        let paths = names.into_iter().map(|name| {
            let path: Value = name.split('.').collect();
            format!("getpath({path})")
        });
        format!("[{}]", paths.collect::<Vec<_>>().join(", "))
    };
    let a_key = key(pairs.iter().map(|(a, _)| *a).collect());
    let b_key = key(pairs.iter().map(|(_, b)| *b).collect());
    let matches = |own: &str, list: &str, other: &str| {
        format!("({own} as $k | ($k | all(. != null)) and any({list}[]; {other} == $k))")
    };
    let (in_b, in_a) = (matches(&a_key, "$bs", &b_key), matches(&b_key, "$as", &a_key));
    let both = format!(
        "$as[] as $a | ($a | {a_key}) as $k | select($k | all(. != null)) | $bs[] as $b \
         | select(($b | {b_key}) == $k) | {} {sign} {}",
        order[0], order[1]
    );
    let query = match (join, from) {
        ("keepMatches", "both") => both,
        ("keepMatches", "input1") => format!("$as[] | select({in_b})"),
        ("keepMatches", "input2") => format!("$bs[] | select({in_a})"),
        ("keepNonMatches", "input1") => format!("$as[] | select({in_b} | not)"),
        ("keepNonMatches", "input2") => format!("$bs[] | select({in_a} | not)"),
        ("keepNonMatches", "both") => {
            format!("($as[] | select({in_b} | not)), ($bs[] | select({in_a} | not))")
        }
        ("keepEverything", _) => {
            format!("({both}), ($as[] | select({in_b} | not)), ($bs[] | select({in_a} | not))")
        }
        ("enrichInput1", _) => format!("({both}), ($as[] | select({in_b} | not))"),
        ("enrichInput2", _) => format!("({both}), ($bs[] | select({in_a} | not))"),
        _ => return None,
    };
    Some(format!(".a as $as | .b as $bs | [{query}]"))
}
