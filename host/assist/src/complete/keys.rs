//! Completions of keys, and of values that a schema lists.

use std::collections::HashSet;

use flowcell_contract::{NodeType, Trait};
use flowcell_flow::{
    ids::USE_KEYS,
    triggers::schemes::{SCHEMES, STANDARD, Scheme},
};
use serde_json::Value as Json;

use super::{CompletionKind, Context, Offer, compared, quoted, steps};
use crate::{
    dialect::Dialect,
    expression::{Expression, braces, is_plain_name},
    flow::Flow,
    locate::{Located, Role, in_graph},
    names,
    reading::{Kind, Member, Style, Value},
    schemas::{Property, Schema, Step},
    spots::{self, Place},
};

/// The words of a JSON Schema. Each schema of an input has at least one of them.
const SCHEMA_WORDS: [&str; 9] = ["type", "properties", "required", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"];

/// Returns the keys that a map may have besides those that it has. `at` is the map and the member that is typed;
/// without it the whole value is the word that is typed.
pub(super) fn keys(
    context: &Context<'_>,
    located: &Located<'_>,
    schemas: &[Schema<'_>],
    at: Option<(&Value, &Member)>,
    role: Role,
) -> Vec<Offer> {
    let others = at.into_iter().flat_map(|(map, typed)| {
        map.members().iter().filter(|member| member.key != typed.key).map(|member| member.name.as_str())
    });
    let taken: HashSet<_> = others.collect();
    let is_taken = |name: &str| taken.contains(name);
    let file = &context.marked.file;
    let is_json =
        file.trim_start().starts_with('{') && at.is_none_or(|(_, typed)| !file[..typed.key.start].ends_with('"'));
    let value = at.map(|(_, typed)| &typed.value).filter(|value| value.kind != Kind::Missing);
    let has_colon = at.is_some_and(|(_, typed)| typed.has_colon);
    let kind = located.node_type(context.flow);
    if role == Role::Grant {
        return grants(context, kind, value, has_colon).into_iter().filter(|offer| !is_taken(&offer.label)).collect();
    }
    let is_node = context.flow.dialect == Dialect::Graph
        && matches!(in_graph(&located.steps), [Step::Key(list), Step::Item] if list == "nodes");
    let scheme = scheme(context, located, at.map(|(map, _)| map));
    // Keys that exclude each other, such as `type` and `use`.
    let exclusive: Vec<&str> = schemas.iter().flat_map(|schema| schema.one_of()).collect();
    let has_one = exclusive.iter().any(|name| is_taken(name));
    let (mut found, mut known) = (Vec::<(u8, Offer)>::new(), HashSet::new());
    for schema in schemas {
        for property in schema.properties() {
            let is_known = known.contains(property.name);
            // People remove the marks of an import, and do not write them.
            let is_wanted =
                property.name != "approximated" && (!is_node || fits_node(&property, located, context, kind));
            let is_wanted = is_wanted && !(property.name == "timeoutMs" && waits_for_body(context.flow, located));
            let is_wanted = is_wanted && scheme.is_none_or(|scheme| has_key(scheme, property.name));
            let is_exclusive = exclusive.contains(&property.name);
            if is_taken(property.name) || is_known || !is_wanted || (is_exclusive && has_one) {
                continue;
            }
            let is_odd = |value: &Value| is_odd(&property, value, (context, located));
            if value.is_some_and(|value| !property.schema.may_be(file, value) || is_odd(value)) {
                continue;
            }
            known.insert(property.name);
            // The flow reads vars, and nothing else has the members of `defaults`.
            let is_at_home =
                matches!(property.name, "vars" | "defaults") && value.is_some_and(|value| !value.members().is_empty());
            let is_required = property.is_required
                || is_at_home
                || is_exclusive
                || (is_node && needs(&property, located, context))
                || scheme.is_some_and(|scheme| scheme.required.contains(&property.name));
            let example = kind.and_then(|kind| example(kind, located, property.name));
            let insert = match (has_colon, is_json) {
                (true, false) => property.name.to_owned(),
                (true, true) => format!("\"{}\"", property.name),
                (false, false) => format!("{}: {}", property.name, new_value(property.schema, example.as_ref())),
                (false, true) => format!("\"{}\": {}", property.name, new_value(property.schema, example.as_ref())),
            };
            let score = u8::from(!is_required) * 2 + u8::from(value.is_some_and(|value| is_vague(&property, value)));
            let offer = Offer::new(property.name, CompletionKind::Key, property.schema.type_text())
                .with_documentation(property.schema.description().unwrap_or_default())
                .with_insert(insert);
            found.push((score, offer));
        }
    }
    // The value of a member that must be there belongs to it.
    if value.is_some() && found.iter().any(|(score, _)| *score < 2) {
        found.retain(|(score, _)| *score < 2);
    }
    found.sort_by_key(|(score, _)| *score);
    found.into_iter().map(|(_, offer)| offer).collect()
}

/// Returns true in the policy of a node that only waits for its body, or of a use of a fragment, which becomes such a node.
/// Its `timeoutMs` counts no pauses, and ends nothing.
fn waits_for_body(flow: &Flow<'_>, located: &Located<'_>) -> bool {
    let ([Step::Key(list), Step::Item, Step::Key(policy)], Some(node)) = (in_graph(&located.steps), located.node)
    else {
        return false;
    };
    let node = &flow.nodes[node];
    let owns = node.kind.as_ref().is_some_and(|kind| kind.body.is_some() && kind.name.starts_with("control."));
    list == "nodes" && policy == "policy" && (owns || node.value.member("use").is_some())
}

/// Returns the scheme of the webhook around the place; `None` elsewhere, or if no scheme has its name.
fn scheme(context: &Context<'_>, located: &Located<'_>, webhook: Option<&Value>) -> Option<&'static Scheme<'static>> {
    let steps: Vec<_> =
        located.steps.iter().map(|step| if let Step::Key(key) = step { key.as_str() } else { "*" }).collect();
    if context.flow.dialect != Dialect::Graph || steps != ["flow", "triggers", "*", "webhook"] {
        return None;
    }
    let name = context.flow.text(webhook.and_then(|webhook| webhook.member("scheme")));
    let name = name.map_or_else(|| STANDARD.to_owned(), |(name, _)| name.to_string());
    SCHEMES.iter().find(|scheme| scheme.name == name)
}

/// Returns true if a webhook of this scheme may have a key.
fn has_key(scheme: &Scheme<'_>, key: &str) -> bool {
    ["secret", "scheme", "respond", "respondTimeoutMs"].contains(&key)
        || scheme.required.contains(&key)
        || scheme.optional.contains(&key)
}

/// Returns true if the node's type has a use for a key of nodes.
fn fits_node(property: &Property<'_>, located: &Located<'_>, context: &Context<'_>, kind: Option<&NodeType>) -> bool {
    let node = located.node.map(|node| context.flow.nodes[node].value);
    let has = |name: &str| node.is_some_and(|node| node.member(name).is_some());
    let Some(kind) = kind else { return !has("use") || USE_KEYS.contains(&property.name) };
    match property.name {
        "with" => false,
        "body" => kind.has(Trait::Body),
        "bodyOutput" => kind.has(Trait::Body) && has("body"),
        "config" => !Schema::new(&kind.config).properties().is_empty(),
        "grants" => !kind.capabilities.is_empty(),
        "promptFile" => {
            let names_prompt = Schema::new(&kind.input).properties().iter().any(|property| property.name == "prompt");
            names_prompt
                && node.is_none_or(|node| node.member("input").is_none_or(|input| input.member("prompt").is_none()))
        }
        _ => true,
    }
}

/// Returns true if the type of a node, or the fragment that it uses, cannot do without a key.
fn needs(property: &Property<'_>, located: &Located<'_>, context: &Context<'_>) -> bool {
    let (flow, Some(node)) = (context.flow, located.node) else { return false };
    let requires = |schema: &Json| Schema::new(schema).properties().iter().any(|property| property.is_required);
    match (property.name, &flow.nodes[node].kind) {
        ("with", _) => flow.arguments(node).is_some_and(|schema| requires(&schema)),
        ("body", Some(kind)) => kind.has(Trait::Body),
        ("input", Some(kind)) => flow.nodes[node].value.member("promptFile").is_none() && requires(&kind.input),
        _ => false,
    }
}

/// Returns true if a value fits the type of a key, but not its purpose.
fn is_odd(property: &Property<'_>, value: &Value, (context, located): (&Context<'_>, &Located<'_>)) -> bool {
    let flow = context.flow;
    let is_map = matches!(value.kind, Kind::Map(_));
    let text = flow.text(Some(value)).map(|(text, _)| text);
    let node = text.as_deref().and_then(|text| flow.find(text));
    let has = |name: &str| value.member(name).is_some();
    let kind = located.node_type(flow);
    let is_computed = text.as_deref().is_some_and(|text| text.contains("{{"));
    match property.name {
        "in" => is_map && !has("values"),
        "matches" => is_map && !has("pattern"),
        "exists" => is_map,
        "equals" | "gt" | "gte" | "lt" | "lte" => is_map && !has("value"),
        "id" | "type" | "after" | "join" | "cancelRest" | "policy" | "grants" | "body" | "undo" | "promptFile"
            if is_computed =>
        {
            true
        }
        "id" => is_map || node.is_some(),
        "use" => !text.is_some_and(|text| flow.fragment_names().any(|name| name == text)),
        "with" => !is_map,
        "vars" => !is_map || !["vars.", "vars["].iter().any(|reads| flow.file.contains(reads)),
        "type" => is_map || !text.is_some_and(|text| text.contains('.')),
        "when" | "input" | "config" if reads_body(flow, located, (property.name, value)) => true,
        "input" => kind.is_some_and(|kind| !Schema::new(&kind.input).may_be(flow.file, value)),
        "config" => kind.is_some_and(|kind| !Schema::new(&kind.config).may_be(flow.file, value)),
        "inputSchema" => is_map && !value.members().iter().any(|member| SCHEMA_WORDS.contains(&member.name.as_str())),
        // A word alone is no condition.
        "when" => {
            value.members().len() > 1 || text.as_deref().is_some_and(|text| is_plain_name(text) && text != "true")
        }
        "after" => {
            is_map
                || (text.is_some() && node.is_none())
                || node.is_some_and(|node| flow.file[flow.nodes[node].value.range.clone()].contains("undo."))
        }
        "undo" => {
            let is_free = |node: usize| flow.incoming(node).next().is_none() && flow.outgoing(node).next().is_none();
            let is_read = |node: usize| spots::reads(flow).iter().any(|read| read.node == node);
            !node.is_some_and(|node| is_free(node) && !is_read(node))
        }
        "promptFile" => is_map || node.is_some(),
        _ => false,
    }
}

/// Returns true if a value reads a node in the body of its own node.
fn reads_body(flow: &Flow<'_>, located: &Located<'_>, (key, value): (&str, &Value)) -> bool {
    let Some(owner) = located.node else { return false };
    let text = &flow.file[value.range.clone()];
    // `when` is an expression without braces, too.
    let expressions = braces(text).into_iter().chain((key == "when").then_some(0..text.len()));
    let mut paths = expressions.flat_map(|part| Expression::new(text, part).paths());
    paths.any(|path| flow.find(&path.root).is_some_and(|node| flow.nodes[node].owner == Some(owner)))
}

/// Returns the names of the fragments that a node may use.
pub(super) fn fragments(context: &Context<'_>, value: &Value) -> Vec<Offer> {
    let style = value.style().unwrap_or(Style::Plain);
    let names = context.flow.fragment_names().filter(|name| !name.is_empty());
    names.map(|name| Offer::new(name, CompletionKind::Name, "a fragment").with_insert(quoted(name, style))).collect()
}

/// Returns true if a schema says nothing about a value.
fn is_vague(property: &Property<'_>, value: &Value) -> bool {
    let types = property.schema.types();
    types.is_empty() || (matches!(value.kind, Kind::Map(_)) && property.schema.properties().is_empty())
}

/// Returns the value of a field in the first example of a node type.
fn example(kind: &NodeType, located: &Located<'_>, name: &str) -> Option<Json> {
    let steps = in_graph(&located.steps);
    let input = &kind.examples.iter().find(|example| example.failure.is_none())?.input;
    match steps {
        [_, Step::Item] if name == "input" => {
            let required = Schema::new(&kind.input).properties().into_iter().filter(|property| property.is_required);
            let members =
                required.filter_map(|property| Some((property.name.to_owned(), input.get(property.name)?.clone())));
            Some(Json::Object(members.collect()))
        }
        [_, Step::Item, Step::Key(field)] if field == "input" => input.get(name).cloned(),
        _ => None,
    }
}

/// Writes a value for a new key.
fn new_value(schema: Schema<'_>, example: Option<&Json>) -> String {
    if let Some(example) = example {
        return example.to_string();
    }
    if let Some(default) = schema.keyword("default").or_else(|| schema.keyword("enum").and_then(|values| values.get(0)))
    {
        return match default.as_str() {
            Some(text) => quoted(text, Style::Plain),
            None => default.to_string(),
        };
    }
    let types = schema.types();
    let least = || schema.keyword("minimum").map_or("1".to_owned(), |least| least.to_string().replace('0', "1"));
    match types.first().copied() {
        Some("boolean") => "true".into(),
        Some("integer" | "number") => least(),
        Some("array") => "[]".into(),
        Some("object") => "{}".into(),
        Some("string") => "\"\"".into(),
        _ => String::new(),
    }
}

fn grants(context: &Context<'_>, kind: Option<&NodeType>, value: Option<&Value>, has_colon: bool) -> Vec<Offer> {
    let insert = |name: &str| match (has_colon, value) {
        (true, _) => name.to_owned(),
        (false, _) => format!("{name}: []"),
    };
    let Some(kind) = kind else {
        let offer = |name: String| {
            let insert = insert(&name);
            Offer::new(name, CompletionKind::Key, "a capability").with_insert(insert)
        };
        return context.document.surroundings.capabilities().into_iter().map(offer).collect();
    };
    let asked = kind.capabilities.iter().map(|request| {
        Offer::new(&*request.name, CompletionKind::Key, "a capability")
            .with_documentation(request.reason.clone())
            .with_insert(insert(&request.name))
    });
    let of_requests = [("secrets", "secrets that it sends"), ("credentials", "credentials that it uses")];
    let of_requests = of_requests.into_iter().filter(|_| kind.asks_for("http"));
    asked
        .chain(
            of_requests.map(|(name, detail)| Offer::new(name, CompletionKind::Key, detail).with_insert(insert(name))),
        )
        .collect()
}

/// Returns the values that a schema lists. For a field of an input without such values, returns the names of values.
pub(super) fn values(
    context: &Context<'_>,
    located: &Located<'_>,
    schemas: &[Schema<'_>],
    value: &Value,
) -> Vec<Offer> {
    let style = value.style().unwrap_or(Style::Plain);
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for listed in schemas.iter().flat_map(|schema| schema.values()) {
        let text = listed.as_str().map_or_else(|| listed.to_string(), str::to_owned);
        let insert = if listed.is_string() { quoted(&text, style) } else { text.clone() };
        if (listed.is_string() || style == Style::Plain) && known.insert(text.clone()) {
            found.push(Offer::new(text, CompletionKind::Value, "").with_insert(insert));
        }
    }
    let flow = context.flow;
    if found.is_empty() {
        found = compared::in_condition(flow, located, style);
    }
    let is_field = match (flow.dialect, in_graph(&located.steps)) {
        (Dialect::Graph, [Step::Key(list), Step::Item, Step::Key(member), _, ..]) => {
            list == "nodes" && matches!(member.as_str(), "input" | "with")
        }
        (Dialect::Steps, [Step::Key(list), Step::Item, Step::Key(params), _, ..]) => {
            list == "steps" && params == "params"
        }
        (Dialect::Steps, [Step::Key(output)]) => output == "output",
        _ => false,
    };
    let is_alone = context.marked.file[value.range.clone()].trim_matches(['"', '\'']) == super::MARK;
    if !found.is_empty() || !is_field || !is_alone {
        return found;
    }
    if flow.dialect == Dialect::Steps {
        return steps::referred(flow, located.node);
    }
    let Some(node) = located.node else { return found };
    let place = Place::of_input(flow, node);
    for name in names::names(flow, &place).into_iter().filter(|name| crate::expression::is_plain_name(&name.name)) {
        let text = format!("{{{{ {} }}}}", name.name);
        let insert = quoted(&text, style);
        found.push(Offer::new(text, CompletionKind::Name, name.detail).with_insert(insert));
    }
    found
}
