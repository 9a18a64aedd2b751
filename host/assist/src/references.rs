//! Definitions and references of nodes, flows and files, and the renaming of nodes.

mod written_out;

#[cfg(test)]
mod tests;

use std::{collections::HashMap, ops::Range};

use flowcell_flow::{
    CheckContext, Graph, Severity, Source,
    graph::Reference,
    ids::{self, ID_HELP},
};

use self::written_out::renamed_ids;

use crate::{
    Document, Edit, apply,
    expression::PathAt,
    flow::{Flow, IdUse},
    is_too_large,
    locate::{Dialect, Role, Target, locate},
    reading::{Kind, Style, Value, read},
    scalar::Scalar,
    spots,
};

/// Maximum number of places of plain text with an id that are listed.
const MAX_LEFT: usize = 50;

/// The place where something is defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// The bytes of a node's id in the same text.
    Node(Range<usize>),
    /// The name of another flow.
    Flow(String),
    /// The path of a file beside the flow.
    File(String),
}

/// Returns the place where the name at a byte is defined.
pub fn definition(document: &Document<'_>, at: usize) -> Option<Definition> {
    with_flow(document, at, |flow| {
        if let Some(found) = id_at(flow, at) {
            let node = flow.find(&found.id)?;
            return Some(Definition::Node(flow.nodes[node].id_range.clone()));
        }
        let located = locate(flow, at)?;
        let Target::Value(value) = located.target else { return None };
        let (text, _) = flow.text(Some(value)).filter(|(text, _)| !text.contains("{{"))?;
        match located.role(flow) {
            Role::FlowName => Some(Definition::Flow(text)),
            Role::File => Some(Definition::File(text)),
            _ => None,
        }
    })
}

/// Returns the bytes of all places that name the node at a byte, its definition among them, in the order of the text.
pub fn references(document: &Document<'_>, at: usize) -> Vec<Range<usize>> {
    let found = with_flow(document, at, |flow| {
        let id = id_at(flow, at)?.id;
        Some(uses(flow).into_iter().filter(|found| found.id == id).map(|found| found.range).collect::<Vec<_>>())
    });
    found.unwrap_or_default()
}

/// Returns the id at a byte, and its bytes.
pub fn node_at(document: &Document<'_>, at: usize) -> Option<(String, Range<usize>)> {
    with_flow(document, at, |flow| id_at(flow, at).map(|found| (found.id, found.range)))
}

fn with_flow<T>(document: &Document<'_>, at: usize, find: impl FnOnce(&Flow<'_>) -> Option<T>) -> Option<T> {
    if is_too_large(document.text) {
        return None;
    }
    let root = read(document.text);
    let flow = Flow::at(document.text, &root, document.catalog, at);
    if Dialect::of(&root) == Dialect::Graph { find(&flow) } else { None }
}

/// Returns every place that names a node, in the order of the text.
fn uses(flow: &Flow<'_>) -> Vec<IdUse> {
    let mut found = flow.uses.clone();
    found.extend(spots::id_uses(flow));
    found.sort_by_key(|found| (found.range.start, found.range.end));
    found.dedup();
    found
}

fn id_at(flow: &Flow<'_>, at: usize) -> Option<IdUse> {
    let is_here = |found: &IdUse| found.range.start <= at && at <= found.range.end && !found.id.is_empty();
    uses(flow).into_iter().find(|found| is_here(found) && flow.find(&found.id).is_some())
}

/// The result of renaming a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The changes of the flow's text.
    pub edits: Vec<Edit>,
    /// The bytes of plain text, such as comments and prompts, that contain the id and stay as they are. At most 50.
    pub left: Vec<Range<usize>>,
}

/// Renames the node at a byte: its id, and every edge, body, condition and expression that names it. A flow without
/// errors keeps its graph. The error says why the node cannot get the name.
pub fn rename(
    document: &Document<'_>,
    name: &str,
    at: usize,
    new_id: &str,
    context: &dyn CheckContext,
) -> Result<Renamed, String> {
    let Some((old, _)) = node_at(document, at) else {
        return Err("no id of a node at this place; move the cursor to one".into());
    };
    ids::check_id(new_id).map_err(|message| match ids::is_id(new_id) {
        true => format!("{message}; choose another id"),
        false => format!("{message}: {ID_HELP}"),
    })?;
    let has_other_meaning =
        || format!("`{new_id}` has another meaning in this flow, so that expressions would read other values");
    let renamed = with_flow(document, at, |flow| {
        // These names are refused here, too, because a flow with errors is not checked below.
        let is_root = match new_id {
            "params" => flow.root.member("fragments").is_some(),
            "vars" => flow.head().is_some_and(|head| head.member("vars").is_some()),
            _ => false,
        };
        Some(match () {
            () if flow.find(new_id).is_some() && new_id != old => {
                Err(format!("the flow has a node `{new_id}` already; choose another id"))
            }
            () if is_root => Err(format!("{}; choose another id", has_other_meaning())),
            () => Ok(edits(flow, at, &old, new_id)),
        })
    });
    let renamed = renamed.unwrap_or_else(|| Err("this text is no flow of nodes and edges".into()))?;
    let check = |text: String| flowcell_flow::load(&Source { name: name.to_owned(), text }, document.catalog, context);
    let before = check(document.text.to_owned());
    let after = check(apply(document.text, &renamed.edits));
    match (before.graph, after.graph) {
        (Some(before), Some(after)) if shape(&before) == shape(&after) => Ok(renamed),
        (Some(_), Some(_)) => Err(format!("{}; choose another id", has_other_meaning())),
        (Some(_), None) => {
            let error = after.diagnostics.into_iter().find(|found| found.severity == Severity::Error);
            let why = error.map_or_else(String::new, |error| format!(": {}", error.message));
            Err(format!("with the id `{new_id}` the flow has an error{why}; choose another id"))
        }
        // A flow with errors has no graph to compare with.
        (None, _) => Ok(renamed),
    }
}

/// Returns the nodes, the edges and the values that expressions read, without any id.
fn shape(graph: &Graph) -> String {
    // `a` and `nodes["a"]` read the same.
    let read = |references: &[Reference]| {
        let mut found: Vec<String> = Vec::new();
        for reference in references {
            match reference {
                Reference::Node(source) => found.push(format!("{source:?}")),
                Reference::Nodes(sources) => found.extend(sources.iter().map(|source| format!("{source:?}"))),
                other => found.push(format!("{other:?}")),
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    };
    let nodes = graph.nodes.iter().map(|node| {
        let when = node.when.as_ref().map(|when| read(&when.references));
        let (input, config) = (read(&node.input.references), read(&node.config.references));
        let (undo, links) = (&node.undo, (&node.incoming, &node.outgoing, &node.body, &node.body_of));
        format!("{} {input:?} {config:?} {when:?} {undo:?} {links:?} {:?}", node.node_type.name, node.cancels)
    });
    let edges = graph.edges.iter().map(|edge| {
        let when = edge.when.as_ref().map(|when| read(&when.references));
        format!("{:?} {:?} {:?} {when:?} {}", edge.from, edge.to, edge.on, edge.goes_back)
    });
    let bodies = graph.bodies.iter().map(|body| match &body.outcome {
        flowcell_flow::graph::Outcome::Output(output) => format!("{:?}", read(&output.references)),
        other => format!("{other:?}"),
    });
    let outputs = graph.outputs.as_ref().map(|outputs| read(&outputs.references));
    format!("{:?} {outputs:?}", nodes.chain(edges).chain(bodies).collect::<Vec<_>>())
}

fn edits(flow: &Flow<'_>, at: usize, old: &str, new: &str) -> Renamed {
    let mut edits: Vec<Edit> = Vec::new();
    for found in flow.uses.iter().filter(|found| found.id == old) {
        edits.push(Edit { range: found.range.clone(), text: new.to_owned() });
    }
    let is_plain = crate::expression::is_plain_name(new);
    spots::each(flow, None, &mut |spot| {
        // A text without quotes gets double ones if the name needs brackets.
        let has_none = spot.scalar.style == Style::Plain && !is_plain;
        let quote = if has_none || spot.scalar.style == Style::Double { '\'' } else { '"' };
        let named = |path: &PathAt| spots::named_node(flow, spot.place, path).filter(|(id, _)| id == old);
        let parts = spot.expression().paths().into_iter().filter_map(|path| {
            let (_, part) = named(&path)?;
            let bracket = format!("[{quote}{new}{quote}]");
            let is_root = part == path.root_range;
            let dot = spot.scalar.text[..part.start].ends_with('.').then(|| part.start - 1);
            Some(match (is_root, dot) {
                _ if is_plain => Edit { range: part, text: new.to_owned() },
                (true, _) => Edit { range: part, text: format!("nodes{bracket}") },
                // `nodes.a` becomes `nodes["a-b"]`.
                (false, Some(dot)) => Edit { range: dot..part.end, text: bracket },
                (false, None) => Edit { range: part, text: new.to_owned() },
            })
        });
        let parts: Vec<_> = parts.collect();
        if has_none && !parts.is_empty() {
            let text = serde_json::Value::from(apply(&spot.scalar.text, &parts)).to_string();
            edits.push(Edit { range: spot.scalar.range_to_file(&(0..spot.scalar.text.len())), text });
        } else {
            let in_file = |edit: Edit| Edit { range: spot.scalar.range_to_file(&edit.range), ..edit };
            edits.extend(parts.into_iter().map(in_file));
        }
    });
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    edits.dedup();
    Renamed { left: left(flow, old, &renamed_ids(flow.file, at, old, new), &edits), edits }
}

/// Returns the places of an id, as a word, that no edit changes, and those of the ids that its node has where a
/// fragment is used. `edits` are in the order of the text.
fn left(flow: &Flow<'_>, id: &str, renamed: &HashMap<String, String>, edits: &[Edit]) -> Vec<Range<usize>> {
    let text = flow.file;
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-');
    let mut at = 0;
    let words = text.split_inclusive(|sign| !is_part(sign)).map(|piece| {
        let (start, word) = (at, piece.trim_end_matches(|sign| !is_part(sign)));
        at += piece.len();
        (word, start..start + word.len())
    });
    let places = words.filter(|(word, range)| {
        let is_meant = if *word == id { flow.contains(range.start) } else { renamed.contains_key(*word) };
        // A key of this name is a member of something else.
        let is_key = text[range.end..].starts_with(':');
        let last = edits.partition_point(|edit| edit.range.start <= range.start).checked_sub(1);
        let is_edited = last.is_some_and(|last| range.end <= edits[last].range.end);
        is_meant && !is_key && !is_edited
    });
    places.map(|(_, range)| range).take(MAX_LEFT).collect()
}

/// Renames a node in the test cases of its flow: in `answers`, `given`, `calls` and `route`, and in `outputs` if the
/// flow declares none, so that they are the outputs of its nodes. `flow` is the text of the flow before the renaming,
/// with a byte in the graph of the node. Of a use of a fragment, the nodes inside get other ids, too.
pub fn rename_in_cases(text: &str, (flow, at): (&str, usize), old: &str, new: &str) -> Vec<Edit> {
    if is_too_large(text) || is_too_large(flow) {
        return Vec::new();
    }
    let (root, renamed) = (read(text), renamed_ids(flow, at, old, new));
    let has_outputs = read(flow).member("flow").is_some_and(|head| head.member("outputs").is_some());
    let mut edits = Vec::new();
    for case in root.member("cases").map(Value::items).unwrap_or_default() {
        let mut addresses: Vec<Range<usize>> = Vec::new();
        for member in ["answers", "given"].iter().filter_map(|name| case.member(name)) {
            addresses.extend(member.members().iter().map(|member| member.key.clone()));
        }
        let texts =
            |value: &Value| Scalar::new(text, value).map(|scalar| scalar.range_to_file(&(0..scalar.text.len())));
        let calls = case.member("calls").map(Value::items).unwrap_or_default();
        addresses.extend(calls.iter().filter_map(|call| texts(call.member("node")?)));
        let expect = case.member("expect");
        let route = expect.and_then(|expect| expect.member("route")).map(Value::items).unwrap_or_default();
        addresses.extend(route.iter().filter_map(texts));
        let outputs = expect
            .and_then(|expect| expect.member("outputs"))
            .filter(|outputs| !has_outputs && matches!(outputs.kind, Kind::Map(_)));
        addresses.extend(outputs.map(Value::members).unwrap_or_default().iter().map(|member| member.key.clone()));
        for range in addresses {
            for (place, id) in in_address(&text[range.clone()]) {
                let start = range.start + place;
                let edit = |new: &String| Edit { range: start..start + id.len(), text: new.clone() };
                edits.extend(renamed.get(id).map(edit));
            }
        }
    }
    edits
}

/// Returns the ids in an address such as `each[3].pay`, with their places. Behind `/` stand nodes of called flows.
fn in_address(address: &str) -> impl Iterator<Item = (usize, &str)> {
    let own = address.split('/').next().unwrap_or_default();
    let mut at = 0;
    own.split('.').map(move |part| {
        let start = at;
        at += part.len() + 1;
        (start, part.split(['[', '#']).next().unwrap_or_default())
    })
}
