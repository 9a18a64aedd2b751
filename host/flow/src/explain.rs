//! Explains a flow: when each node runs, the origin of its input, its output, its capabilities, and its possible cost.
//! Runs nothing, and knows only the graph.

mod costs;
mod origin;
mod policy;
mod sentences;
mod text;

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{BuiltIn, Effect, Json};
use flowcell_expr::{Binding, Path};
use serde::Serialize;

pub use self::policy::policy_json;
use self::{
    origin::{Read, reads},
    policy::{Setting, settings},
};
use crate::{
    defaults::from_defaults,
    graph::{BodyIx, Bound, FACTS, Graph, Node, NodeIx},
};

/// Maximum number of members that an explanation lists of an input or an output.
const MAX_MEMBERS: usize = 40;
/// Maximum number of ids, edges or values in a sentence.
const MAX_LISTED: usize = 12;
/// Maximum number of characters that an explanation shows of a value.
const MAX_VALUE_CHARS: usize = 120;
/// The value of the member that the host adds to the input of a script.
const ADDED_FACTS: &str = "the facts about the run, the flow, the task and the tenant, which the host adds";

/// The explanation of a flow, or of one of its nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The name of the flow.
    pub name: String,
    /// The purpose of the flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Sentences about the whole flow. They are empty in the explanation of one node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flow: Vec<String>,
    /// The outputs of the flow. They are empty in the explanation of one node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Field>,
    /// The nodes, in the order of the file.
    pub nodes: Vec<NodeExplanation>,
}

/// The explanation of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplanation {
    /// The id of the node.
    pub id: String,
    /// The type of the node with its version.
    #[serde(rename = "type")]
    pub node_type: String,
    /// The title of the type.
    pub title: String,
    /// Sentences about when the node runs, and what follows from its failure.
    pub runs: Vec<String>,
    /// The members of the input. The field of a computed input is empty.
    pub input: Vec<Field>,
    /// The members of the config.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<Field>,
    /// The members that the output may have, as far as the type declares them.
    pub output: Vec<String>,
    /// What the node reaches: the capabilities of the type, and further grants.
    pub reaches: Vec<Reached>,
    /// The effect that the type declares for its calls.
    pub effect: Effect,
    /// The timeouts and retries in force.
    pub policy: Vec<Setting>,
    /// Sentences about calls that may cost money or that change something outside.
    pub costs: Vec<String>,
    /// The node that undoes this one, or that this one undoes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
}

/// A member of an input, a config or the outputs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Field {
    /// The name of the member. It is empty if the whole value is one expression.
    pub field: String,
    /// A literal value, or a sentence about a value that the host adds, or about an expression that reads no value of
    /// the flow. A long one is cut, and ends with `…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The values that the member is computed from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Read>,
}

/// A capability that a node reaches.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reached {
    /// The name of the capability.
    pub capability: String,
    /// True if calls are denied without a grant.
    pub needs_grant: bool,
    /// The grant of the flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<Json>,
    /// The origin of the grant: `node`, or `flow.defaults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<&'static str>,
    /// The reason why the type asks for the capability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Explains a flow, or one of its nodes by its id. Returns `None` if the flow has no such node.
pub fn explain(graph: &Graph, node: Option<&str>) -> Option<Explanation> {
    let all = || (0..graph.nodes.len() as u32).map(NodeIx);
    let wanted = |ix: &NodeIx| node.is_none_or(|id| graph.node(*ix).id.as_str() == id);
    let cycles = sentences::of_cycles(graph);
    let nodes: Vec<_> = all().filter(wanted).map(|ix| explain_node(graph, ix, &cycles)).collect();
    if nodes.is_empty() && node.is_some() {
        return None;
    }
    let (mut flow, mut outputs) = (Vec::new(), Vec::new());
    if node.is_none() {
        flow = sentences::of_flow(graph);
        flow.extend(costs::of_flow(graph));
        outputs = graph.outputs.iter().flat_map(|bound| fields(graph, bound)).collect();
    }
    Some(Explanation { name: graph.name.to_string(), description: graph.description.clone(), flow, outputs, nodes })
}

/// Explains a node. `cycles` has a sentence for each cycle of the flow.
fn explain_node(graph: &Graph, ix: NodeIx, cycles: &[String]) -> NodeExplanation {
    let node = graph.node(ix);
    NodeExplanation {
        id: node.id.to_string(),
        node_type: node.node_type.full_name(),
        title: node.node_type.title.clone(),
        runs: sentences::of_node(graph, ix, cycles),
        input: fields(graph, &node.input),
        config: fields(graph, &node.config),
        output: output(node),
        reaches: reaches(node),
        effect: node.node_type.effect,
        policy: settings(node),
        costs: costs::of_node(graph, node),
        undo: undo(graph, node),
    }
}

/// Returns the members of a value, with their literal values or with the values that they are computed from. Evaluates
/// nothing.
fn fields(graph: &Graph, bound: &Bound<Binding>) -> Vec<Field> {
    let uses = bound.expr.path_uses();
    let mut paths: HashMap<String, Vec<&Path>> = HashMap::new();
    let count = bound.expr.members().count();
    for used in &uses {
        // The pointer to an expression begins with the name of its member. A value that is no object is one field.
        let member = match count {
            0 => String::new(),
            _ => used.pointer.split('/').nth(1).unwrap_or_default().replace("~1", "/").replace("~0", "~"),
        };
        paths.entry(member).or_default().push(&used.path);
    }
    let computed = |name: &str| {
        let paths = paths.get(name).map(Vec::as_slice).unwrap_or_default();
        // The flow does not write this member, and its name is none of the language.
        if matches!(paths, [path] if path.root() == FACTS) {
            return Field { field: short(name), value: Some(ADDED_FACTS.to_owned()), reads: Vec::new() };
        }
        let reads = reads(graph, bound, paths);
        let value = reads.is_empty().then(|| "an expression that reads no value of the flow".to_owned());
        Field { field: short(name), value, reads }
    };
    let field = |(name, member): (&Arc<str>, &Binding)| {
        // A template or condition that reads only names of its own is shown as the flow has it.
        let captured = || member.as_captured().filter(|_| !paths.contains_key(&**name));
        match member.as_literal().or_else(captured) {
            Some(value) => Field { field: short(name), value: Some(short(&value.to_text())), reads: Vec::new() },
            None => computed(name),
        }
    };
    let mut fields: Vec<_> = bound.expr.members().take(MAX_MEMBERS).map(field).collect();
    if count == 0 && !bound.expr.is_literal() {
        fields.push(computed(""));
    }
    if count > MAX_MEMBERS {
        let more = format!("{} more members", count - MAX_MEMBERS);
        fields.push(Field { field: "…".into(), value: Some(more), reads: Vec::new() });
    }
    fields
}

/// Returns the names of the members that an output may have, each with its type if the schema has one.
fn output(node: &Node) -> Vec<String> {
    let properties = node.node_type.output.get("properties").and_then(|properties| properties.as_object());
    let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
        return vec!["any value".into()];
    };
    let member = |(name, schema): (&String, &serde_json::Value)| match schema.get("type").and_then(|kind| kind.as_str())
    {
        Some(kind) => format!("{name} ({kind})"),
        None => name.clone(),
    };
    let mut members: Vec<_> = properties.iter().take(MAX_MEMBERS).map(member).collect();
    if properties.len() > MAX_MEMBERS {
        members.push(format!("… {} more members", properties.len() - MAX_MEMBERS));
    }
    members
}

fn reaches(node: &Node) -> Vec<Reached> {
    let defaults = from_defaults(node).unwrap_or_default();
    let asked = node.node_type.capabilities.iter().map(|request| (&*request.name, Some(request.reason.clone())));
    let others = node.grants.0.keys().filter(|name| !node.node_type.asks_for(name)).map(|name| (name.as_str(), None));
    let reached = asked.chain(others).map(|(name, reason)| {
        let grant = node.grants.0.get(name).cloned();
        let from = match defaults.contains(&format!("grants.{name}").as_str()) {
            true => "flow.defaults",
            false => "node",
        };
        let needs_grant = BuiltIn::named(name).is_none_or(|capability| capability.grant().is_some());
        Reached { capability: name.to_owned(), needs_grant, from: grant.as_ref().map(|_| from), grant, reason }
    });
    reached.collect()
}

fn undo(graph: &Graph, node: &Node) -> Option<String> {
    let id = |ix: NodeIx| &graph.node(ix).id;
    match (node.undo, node.undo_of) {
        (Some(undo), _) => {
            Some(format!("If a later failure ends its scope or the flow, `{}` undoes what it has done.", id(undo)))
        }
        (None, Some(undone)) => Some(format!("It undoes `{}`.", id(undone))),
        (None, None) => None,
    }
}

/// Cuts a text that is longer than an explanation shows.
fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a list of ids in a sentence: `a`, `b` and `c`.
fn listed(graph: &Graph, nodes: &[NodeIx]) -> String {
    joined(nodes, |ix| format!("`{}`", graph.node(*ix).id), ", ", " and ")
}

/// Joins the parts of a sentence. Of more than [`MAX_LISTED`] parts, it counts the others, and does not write them.
fn joined<T>(parts: &[T], write: impl Fn(&T) -> String, between: &str, last: &str) -> String {
    let mut shown: Vec<_> = parts.iter().take(MAX_LISTED).map(write).collect();
    if let Some(more) = parts.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        shown.push(format!("{more} more"));
    }
    match shown.split_last() {
        Some((end, [])) => end.clone(),
        Some((end, rest)) => format!("{}{last}{end}", rest.join(between)),
        None => String::new(),
    }
}

/// Returns the owner of the body that contains a node.
fn owner<'a>(graph: &'a Graph, node: &Node) -> Option<&'a Node> {
    if node.body_of == BodyIx::ROOT { None } else { graph.body(node.body_of).owner.map(|owner| graph.node(owner)) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{MAX_LISTED, joined};

    /// A cycle may have thousands of edges that go back, and each of its nodes has a sentence about them.
    #[test]
    fn parts_that_a_sentence_only_counts_are_not_written() {
        let written = Cell::new(0);
        let write = |part: &usize| {
            written.set(written.get() + 1);
            part.to_string()
        };
        let parts: Vec<usize> = (0..50_000).collect();
        let text = joined(&parts, write, ", ", " and ");
        assert_eq!(text, "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 49988 more");
        assert_eq!(written.get(), MAX_LISTED);
        assert_eq!(joined(&parts[..12], write, ", ", " and "), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 11");
        assert_eq!(joined(&parts[..1], write, ", ", " and "), "0");
        assert_eq!(joined(&parts[..0], write, ", ", " and "), "");
    }
}
