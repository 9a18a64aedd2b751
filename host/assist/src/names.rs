//! The names that an expression may use at its place, with the schemas of their values.

use std::{cell::LazyCell, collections::HashMap, sync::Arc};

use flowcell_contract::NodeType;
use serde_json::{Value as Json, json};

use crate::{
    expression::{Expression, PathAt, Step as PathStep, braces},
    flow::Flow,
    reading::Value,
    schemas::{Schema, Step, schema_like, to_json},
    spots::{Local, Place, Visible},
};

/// A name of a value.
pub(crate) struct Known {
    pub(crate) name: String,
    /// The meaning in a few words.
    pub(crate) detail: String,
    pub(crate) schema: Arc<Json>,
}

fn known(name: &str, detail: impl Into<String>, schema: Arc<Json>) -> Known {
    Known { name: name.to_owned(), detail: detail.into(), schema }
}

fn anything() -> Arc<Json> {
    Arc::new(json!({}))
}

/// Returns the schema of an output with the members that the host records for a node that did not run or did not
/// succeed.
fn with_recorded(output: &Json) -> Json {
    let mut output = output.clone();
    // An output without members, such as that of a node that always fails, has only these.
    if let Some(members) = output.get_mut("properties").and_then(Json::as_object_mut) {
        let (flag, count) = (json!({ "type": "boolean" }), json!({ "type": "integer" }));
        let recorded = [("skipped", &flag), ("cancelled", &flag), ("failed", &flag), ("attempts", &count)];
        for (name, schema) in recorded.into_iter().chain([("error", &failure())]) {
            members.entry(name).or_insert_with(|| schema.clone());
        }
    }
    output
}

fn failure() -> Json {
    json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" },
            "message": { "type": "string" },
            "retryable": { "type": "boolean" },
            "details": {},
        },
    })
}

/// Returns the schema of a flow's input: the one that it declares, or one like its defaults.
pub(crate) fn input_schema(flow: &Flow<'_>) -> Json {
    let head = flow.head();
    let declared = head.and_then(|head| head.member("inputSchema")).map(|schema| to_json(flow.file, schema));
    if let Some(declared) = declared.filter(Json::is_object) {
        return declared;
    }
    let defaults = head.and_then(|head| head.member("input")).map(|input| to_json(flow.file, input));
    let mut schema = schema_like(&defaults.unwrap_or_else(|| json!({})));
    if head.is_some_and(|head| head.member("triggers").is_some())
        && let Some(members) = schema.get_mut("properties").and_then(Json::as_object_mut)
    {
        members.insert("trigger".into(), json!({}));
    }
    schema
}

/// Maximum number of inputs of nodes that are read one after the other to find the members of an item.
const MAX_FOLLOWED_INPUTS: usize = 3;

/// Returns the names that an expression may use, the likeliest first.
pub(crate) fn names(flow: &Flow<'_>, place: &Place) -> Vec<Known> {
    names_to(flow, place, MAX_FOLLOWED_INPUTS)
}

/// Returns the nodes on a cycle with the one of an expression that run after it. Their outputs are those of the pass
/// before.
pub(crate) fn names_of_last_pass(flow: &Flow<'_>, place: &Place) -> Vec<Known> {
    let Visible::Before(node) = place.visible else { return Vec::new() };
    let (after, before, now) = (flow.reached(node, false), flow.reached(node, true), flow.ancestors(node));
    let is_meant = |other: &usize| *other != node && after[*other] && before[*other] && !now.contains(other);
    outputs(flow, flow.scope(place.scope).filter(is_meant))
}

fn names_to(flow: &Flow<'_>, place: &Place, depth: usize) -> Vec<Known> {
    let mut found: Vec<Known> = Vec::new();
    let local = |Local { name, field }: &Local| {
        let schema = match (name.as_str(), field, place.visible) {
            (name, Some(field), Visible::Before(node)) => {
                Arc::new(field_schema(flow, node, &[field.as_str(), name], depth))
            }
            ("item", _, Visible::Before(node)) => Arc::new(item_schema(flow, node, depth)),
            ("index", None, _) => Arc::new(json!({ "type": "integer" })),
            (field, _, Visible::Before(node)) => Arc::new(field_schema(flow, node, &[field], depth)),
            _ => anything(),
        };
        known(name, "a value of this node", schema)
    };
    found.extend(place.locals.iter().map(local));
    found.extend(place.own.map(|own| owner(flow, own, &|| item_schema(flow, own, depth))));
    let owners = flow.owners_from(place.scope);
    for index in &owners {
        let item = LazyCell::new(|| Arc::new(item_schema(flow, *index, depth)));
        let alias = flow.nodes[*index].alias.as_deref();
        found.extend(
            alias.map(|alias| known(alias, format!("the item of `{}`", flow.nodes[*index].id), Arc::clone(&item))),
        );
        found.push(owner(flow, *index, &|| Json::clone(&item)));
    }
    if let Some(fragment) = flow.fragment {
        found.push(known("params", "the parameters of the fragment", Arc::new(flow.parameters(fragment))));
    }
    if let Some(vars) = flow.head().and_then(|head| head.member("vars")).filter(|_| place.visible != Visible::None) {
        found.push(known("vars", "values that are computed once", Arc::new(vars_schema(flow, vars))));
    }
    let mut nodes = match place.visible {
        Visible::None => Vec::new(),
        Visible::All => flow.scope(place.scope).filter(|node| flow.nodes[*node].undoes.is_none()).collect(),
        Visible::Before(node) => flow.ancestors(node),
        Visible::Through(node) | Visible::Undone(node) => {
            let mut through = vec![node];
            through.extend(flow.ancestors(node));
            through
        }
    };
    nodes.extend(owners.iter().flat_map(|owner| flow.ancestors(*owner)));
    found.extend(outputs(flow, nodes));
    let has_inbound = match place.visible {
        Visible::Before(node) | Visible::Through(node) => flow.incoming(node).any(|edge| !edge.orders_only),
        _ => false,
    };
    if let Visible::Undone(undone) = place.visible {
        let output = flow.nodes[undone].kind.as_ref().map_or(json!({}), |kind| kind.output.clone());
        let input = flow.nodes[undone].kind.as_ref().map_or(json!({}), |kind| kind.input.clone());
        let schema = json!({ "properties": { "input": input, "output": output, "task": { "type": "string" } } });
        found.push(known("undo", "the task that this node undoes", Arc::new(schema)));
    }
    let facts = json!({ "type": "string" });
    let head = json!({ "type": "object", "properties": {
        "input": input_schema(flow), "name": facts, "version": { "type": ["integer", "null"] },
    } });
    found.push(known("flow", "the flow and its input", Arc::new(head)));
    if has_inbound {
        found.push(known("inbound", "the output or failure that led here", inbound(flow, place)));
        let sources = match place.visible {
            Visible::Before(node) | Visible::Through(node) => {
                flow.incoming(node).filter(|edge| !edge.orders_only).map(|edge| edge.from).collect()
            }
            _ => Vec::new(),
        };
        let members: serde_json::Map<_, _> =
            sources.iter().map(|source| (flow.nodes[*source].id.clone(), output_of(flow, *source))).collect();
        let schema = json!({ "type": "object", "properties": members });
        found.push(known("inbounds", "the outputs that led here, by node", Arc::new(schema)));
    }
    let run =
        json!({ "type": "object", "properties": { "id": facts, "started": facts, "labels": { "type": "object" } } });
    found.push(known("run", "this run", Arc::new(run)));
    if !matches!(place.visible, Visible::All) {
        let task = json!({ "type": "object", "properties": { "id": facts, "pass": { "type": ["integer", "null"] } } });
        found.push(known("task", "this task", Arc::new(task)));
    }
    found.push(known("tenant", "the tenant", Arc::new(facts.clone())));
    found.push(known("now", "the present time", Arc::new(facts)));
    // The first name hides later ones.
    let mut seen = std::collections::HashSet::new();
    found.retain(|known| !known.name.is_empty() && seen.insert(known.name.clone()));
    // A node or an item with the name of a fact hides the fact in the whole flow.
    let is_fact = |name: &str| matches!(name, "run" | "task" | "tenant" | "now" | "undo");
    found.retain(|known| {
        !is_fact(&known.name) || flow.find(&known.name).is_none() || known.detail.starts_with("output of")
    });
    found
}

/// Returns the schema of the vars of a flow. Nothing is known of a computed one.
fn vars_schema(flow: &Flow<'_>, vars: &Value) -> Json {
    let schema = |value: &Value| schema_like(&to_json(flow.file, value));
    let named = vars.members().iter().filter(|member| !member.name.is_empty());
    let members: serde_json::Map<_, _> = named.map(|member| (member.name.clone(), schema(&member.value))).collect();
    json!({ "type": "object", "properties": members, "additionalProperties": false })
}

/// Returns the outputs of nodes as names.
fn outputs(flow: &Flow<'_>, nodes: impl IntoIterator<Item = usize>) -> Vec<Known> {
    let mut schemas: HashMap<*const NodeType, Arc<Json>> = HashMap::new();
    let output = |index: usize| {
        let node = &flow.nodes[index];
        let Some(kind) = &node.kind else { return known(&node.id, "a node", anything()) };
        let schema = schemas.entry(Arc::as_ptr(kind)).or_insert_with(|| Arc::new(with_recorded(&kind.output)));
        known(&node.id, format!("output of `{}`", kind.name), schema.clone())
    };
    nodes.into_iter().map(output).collect()
}

fn output_of(flow: &Flow<'_>, node: usize) -> Json {
    flow.nodes[node].kind.as_ref().map_or(json!({}), |kind| kind.output.clone())
}

/// Returns the schema of the items of a node's field `list`.
fn item_schema(flow: &Flow<'_>, node: usize, depth: usize) -> Json {
    let list = field_schema(flow, node, &["list"], depth);
    union(Schema::new(&list).below(&Step::Item))
}

/// Returns the schema of the value at a path in a node's input, if it is written there or if one path names it. `depth`
/// limits the inputs of other nodes that are read for it.
fn field_schema(flow: &Flow<'_>, node: usize, path: &[&str], depth: usize) -> Json {
    let Some(depth) = depth.checked_sub(1) else { return json!({}) };
    let input = flow.nodes[node].value.member("input");
    let value = path.iter().try_fold(input, |value, name| value.map(|value| value.member(name)));
    let Some(value) = value.flatten() else { return json!({}) };
    let Some((text, _)) = flow.text(Some(value)) else { return schema_like(&to_json(flow.file, value)) };
    let parts = braces(&text);
    let [part] = parts.as_slice() else { return json!({}) };
    let expression = Expression::new(&text, part.clone());
    let paths = expression.paths();
    let [path] = paths.as_slice() else { return json!({}) };
    if path.end() < expression.tokens.last().map_or(0, |token| token.range.start) {
        return json!({});
    }
    let place = Place::of_input(flow, node);
    let known = names_to(flow, &place, depth);
    union(schemas_of(&known, flow, path, path.steps.len()))
}

/// Returns one schema for several.
fn union(schemas: Vec<Schema<'_>>) -> Json {
    match schemas.as_slice() {
        [] => json!({}),
        [schema] => schema.to_json(),
        more => json!({ "anyOf": more.iter().map(|schema| schema.to_json()).collect::<Vec<_>>() }),
    }
}

/// Returns the variables of an owner as a name.
fn owner(flow: &Flow<'_>, index: usize, item: &dyn Fn() -> Json) -> Known {
    let node = &flow.nodes[index];
    let body = node.kind.as_ref().and_then(|kind| kind.body.as_ref());
    let names = body.map(|body| body.variables.as_slice()).unwrap_or_default();
    let schema = |name: &str| if name == "item" { item() } else { json!({}) };
    let concurrency = node.value.member("input").and_then(|input| flow.text(input.member("concurrency")));
    let is_sequential = concurrency.is_some_and(|(number, _)| number == "1");
    let has_last = |kind: &Arc<NodeType>| kind.has_last() && (is_sequential || !kind.has_concurrent_passes());
    let has_last = node.kind.as_ref().is_none_or(has_last);
    let names = names.iter().map(|name| &**name).chain(has_last.then_some("last"));
    let members: serde_json::Map<_, _> = names.map(|name| (name.to_owned(), schema(name))).collect();
    known(&node.id, "the pass of the body", Arc::new(json!({ "type": "object", "properties": members })))
}

fn inbound(flow: &Flow<'_>, place: &Place) -> Arc<Json> {
    let (Visible::Before(node) | Visible::Through(node)) = place.visible else { return anything() };
    let mut parts: Vec<Json> = Vec::new();
    for edge in flow.incoming(node).filter(|edge| !edge.orders_only) {
        if edge.after_success {
            parts.push(output_of(flow, edge.from));
        }
        if edge.after_failure {
            let members = json!({ "failed": { "type": "boolean" }, "error": failure(), "input": {} });
            parts.push(json!({ "type": "object", "properties": members }));
        }
    }
    Arc::new(json!({ "anyOf": parts }))
}

/// Returns the schemas of the value to which the first `steps` steps of a path lead, and the name of its root.
pub(crate) fn schemas_of<'k>(known: &'k [Known], flow: &Flow<'_>, path: &PathAt, steps: usize) -> Vec<Schema<'k>> {
    let mut steps: Vec<_> = path.steps.iter().take(steps).collect();
    let mut root = path.root.as_str();
    if root == "nodes" && !steps.is_empty() {
        root = &steps.remove(0).name;
        if flow.find(root).is_none() {
            return Vec::new();
        }
    }
    let Some(known) = known.iter().find(|known| known.name == root) else { return Vec::new() };
    let steps: Vec<_> = steps.into_iter().map(to_step).collect();
    Schema::new(&known.schema).follow(&steps)
}

/// Returns a step of a path as a step in a schema.
pub(crate) fn to_step(step: &PathStep) -> Step {
    if step.is_index { Step::Item } else { Step::Key(step.name.clone()) }
}
