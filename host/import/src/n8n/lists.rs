//! Nodes that change a list of items as a whole.

use flowcell_flow::escape_text;
use serde_json::{Map, Value, json};

use super::{N8n, Port, calls, pointer};
use crate::{
    draft::{Node, On},
    expr::{atom, binding, member, quoted},
    report::Verdict,
};

/// Writes Limit.
pub(super) fn limit(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let count = parameters.get("maxItems").map_or(Some(1), Value::as_u64);
    let Some(count) = count.filter(|count| (1..=1_000_000_000).contains(count)) else {
        return calls::missing(n8n, node, list, sources);
    };
    n8n.unknown(parameters, &["maxItems", "keep"], &at);
    let list = match parameters.get("keep") {
        Some(keep) if keep == "lastItems" => format!("{}[-{count}:]", atom(list)),
        _ => format!("{}[:{count}]", atom(list)),
    };
    n8n.hand_on(node, &list, sources);
}

/// Writes Aggregate, which makes one item of all.
pub(super) fn aggregate(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let known = ["aggregate", "destinationFieldName", "fieldsToAggregate", "options"];
    let takes_all = parameters.get("aggregate") == Some(&"aggregateAllItemData".into());
    let whole = match takes_all {
        true => {
            let field = parameters.get("destinationFieldName").and_then(Value::as_str).unwrap_or("data");
            Some(format!("[{{{}: {list}}}]", quoted(field)))
        }
        false => fields(parameters, list),
    };
    let Some(whole) = whole.filter(|_| !parameters.contains_key("include")) else {
        return calls::missing(n8n, node, list, sources);
    };
    n8n.options(parameters, if takes_all { &[] } else { &["keepMissing"] }, &at);
    n8n.unknown(parameters, &known, &at);
    let whole = super::values::within(n8n, whole, &at).to_expr();
    n8n.hand_on(node, &whole, sources);
}

/// Returns the item with the lists of some fields; `None` if a field is not a plain name.
fn fields(parameters: &Map<String, Value>, list: &str) -> Option<String> {
    let keeps = parameters.get("options").and_then(|options| options.get("keepMissing")) == Some(&true.into());
    let fields = parameters.get("fieldsToAggregate")?.get("fieldToAggregate")?.as_array()?;
    let mut members = Vec::new();
    for field in fields {
        let name = field.get("fieldToAggregate")?.as_str().filter(|name| is_plain(name))?;
        let is_renamed = field.get("renameField") == Some(&true.into());
        let key = if is_renamed { field.get("outputFieldName")?.as_str()? } else { name };
        let values = format!("{} | map(attribute={})", atom(list), quoted(name));
        let values = if keeps { values } else { format!("{values} | select('defined')") };
        members.push(format!("{}: {values}", quoted(key)));
    }
    (!members.is_empty()).then(|| format!("[{{{}}}]", members.join(", ")))
}

/// Returns true for the name of one member.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|sign| sign.is_ascii_alphanumeric() || b"_- ".contains(&sign))
}

/// Returns the expression of a field of an item, which may have points.
fn field(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('.').collect();
    let is_path = parts.len() <= 8 && parts.iter().all(|part| is_plain(part));
    is_path.then(|| parts.into_iter().fold("item".to_owned(), |path, part| member(&path, part)))
}

/// Writes Sort: one `data.sort` for fields of the same direction, or one for each field, the last one first.
pub(super) fn sort(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let kind = parameters.get("type").and_then(Value::as_str).unwrap_or("simple");
    if kind == "random" {
        n8n.unknown(parameters, &["type", "options"], &at);
        return n8n.hand_on(node, &format!("shuffle({list})"), sources);
    }
    let fields = parameters.get("sortFieldsUi").and_then(|fields| fields.get("sortField")?.as_array());
    let keys: Option<Vec<(String, bool)>> = fields.into_iter().flatten().map(sort_key).collect();
    let Some(mut keys) = keys.filter(|keys| kind == "simple" && !keys.is_empty() && keys.len() <= 16) else {
        return calls::missing(n8n, node, list, sources);
    };
    n8n.unknown(parameters, &["type", "sortFieldsUi", "options"], &at);
    n8n.options(parameters, &[], &at);
    let why = "texts are ordered by code points, upper case first, and values of different types by type";
    n8n.report.note(Verdict::Approximated, &at, "sort", why);
    if keys.iter().all(|(_, descending)| *descending == keys[0].1) {
        let by: Vec<String> = keys.iter().map(|(key, _)| key.clone()).collect();
        let by = if by.len() == 1 { by[0].clone() } else { format!("[{}]", by.join(", ")) };
        keys = vec![(by, keys[0].1)];
    }
    let id = n8n.fresh(node);
    let (mut list, mut before) = (list.to_owned(), None::<String>);
    while let Some((by, descending)) = keys.pop() {
        let own =
            if keys.is_empty() { id.clone() } else { n8n.draft.names.fresh(&format!("{id}_by_{}", keys.len() + 1)) };
        let input = json!({ "list": binding(&list), "by": by, "descending": descending });
        let made = Node::new(&own, "data.sort", input);
        match &before {
            None => n8n.add(node, made, sources),
            Some(before) => {
                n8n.draft.edge(before, &own, On::Success);
                n8n.draft.nodes.push(made);
            }
        }
        list = format!("{own}.list");
        before = Some(own);
    }
    n8n.single(node, &id, "list", list, false);
}

/// Returns the expression of a key, and true if the largest value comes first.
fn sort_key(entry: &Value) -> Option<(String, bool)> {
    let key = field(entry.get("fieldName")?.as_str()?)?;
    match entry.get("order").and_then(Value::as_str).unwrap_or("ascending") {
        "ascending" => Some((key, false)),
        "descending" => Some((key, true)),
        _ => None,
    }
}

/// Writes Split Out: an item for each part of a list.
pub(super) fn split_out(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let text = |key: &str| parameters.get(key).and_then(Value::as_str);
    let option = |key: &str| parameters.get("options").and_then(|options| options.get(key)).and_then(Value::as_str);
    let name = text("fieldToSplitOut").filter(|name| name.split('.').all(is_plain));
    let (Some(name), include @ ("noOtherFields" | "allOtherFields")) =
        (name, text("include").unwrap_or("noOtherFields"))
    else {
        return calls::missing(n8n, node, list, sources);
    };
    n8n.options(parameters, &["destinationFieldName"], &at);
    n8n.unknown(parameters, &["fieldToSplitOut", "include", "options"], &at);
    let why = "a field without a value gives no item";
    n8n.report.note(Verdict::Approximated, &at.join("fieldToSplitOut"), "fieldToSplitOut", why);
    let path: Value = name.split('.').collect();
    let key = Value::from(option("destinationFieldName").filter(|key| !key.is_empty()).unwrap_or(name));
    let is_named = option("destinationFieldName").is_some_and(|key| !key.is_empty());
    let parts = "if type == \"array\" then .[] elif type == \"object\" then .[] elif . == null then empty else . end";
    let item = match (include, is_named) {
        ("allOtherFields", _) => {
            format!(". as $item | getpath({path}) | {parts} | ($item | delpaths([{path}])) + {{({key}): .}}")
        }
        (_, true) => format!("getpath({path}) | {parts} | {{({key}): .}}"),
        _ => format!("getpath({path}) | {parts} | if type == \"object\" then . else {{({key}): .}} end"),
    };
    let query = format!("[.[] | {item}]");
    let id = n8n.fresh(node);
    let input = json!({ "input": binding(list), "query": escape_text(&query) });
    n8n.add(node, Node::new(&id, "data.query", input), sources);
    n8n.single(node, &id, "value", format!("{id}.value"), true);
}

/// Writes Remove Duplicates within the items.
pub(super) fn unique(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let text = |key: &str| parameters.get(key).and_then(Value::as_str);
    let is_inner = text("operation").is_none_or(|operation| operation == "removeDuplicateInputItems");
    let by = match text("compare").unwrap_or("allFields") {
        "allFields" => Some("item".to_owned()),
        "selectedFields" => keys(text("fieldsToCompare").unwrap_or_default()),
        _ => None,
    };
    let Some(by) = by.filter(|_| is_inner) else { return calls::missing(n8n, node, list, sources) };
    n8n.options(parameters, &[], &at);
    n8n.unknown(parameters, &["operation", "compare", "fieldsToCompare", "options"], &at);
    let id = n8n.fresh(node);
    let made = Node::new(&id, "data.unique", json!({ "list": binding(list), "by": by }));
    n8n.add(node, made, sources);
    n8n.single(node, &id, "list", format!("{id}.list"), false);
}

/// Returns the expression of the fields that a text names, separated by commas.
fn keys(names: &str) -> Option<String> {
    let keys: Option<Vec<String>> = names.split(',').map(|name| field(name.trim())).collect();
    keys.filter(|keys| keys.len() <= 16).map(|keys| format!("[{}]", keys.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_fields() {
        let cases = [
            ("a", Some("item.a")),
            ("a.b c", Some("item.a['b c']")),
            ("a[0]", None),
            ("", None),
            ("a..b", None),
            ("{{ x }}", None),
            ("a.b.c.d.e.f.g.h.i", None),
        ];
        for (name, expected) in cases {
            assert_eq!(field(name).as_deref(), expected, "{name}");
        }
    }
}
