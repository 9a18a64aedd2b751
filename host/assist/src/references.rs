//! Definitions and references of nodes, steps, flows and files, and the renaming of nodes and steps.

mod cases;
mod plan;

#[cfg(test)]
mod tests;

use std::ops::Range;

use flowcell_flow::{
    CheckContext, Graph, Severity, Source,
    agentic::is_kebab_case,
    graph::Reference,
    ids::{self, ID_HELP},
    is_flow_name,
};

pub use self::{cases::rename_in_cases, plan::Plan};
use crate::{
    Document, Edit, apply,
    dialect::Dialect,
    expression::PathAt,
    flow::{Flow, IdUse, NameKind},
    is_too_large,
    locate::{Located, Role, Target, in_graph, locate},
    reading::{Member, Style, read},
    schemas::Step,
    spots,
};

/// Maximum number of places of plain text with an id that are listed.
const MAX_LEFT: usize = 50;

/// The place where something is defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// The bytes of a name in the same text: the id of a node or a step, a result, an input, an argument, a fragment or
    /// its parameter.
    Name(Range<usize>),
    /// The name of another flow.
    Flow(String),
    /// The path of a file beside the flow.
    File(String),
    /// The name of an agent.
    Agent(String),
}

/// Returns the place where the name at a byte is defined.
pub fn definition(document: &Document<'_>, at: usize) -> Option<Definition> {
    with_flow(document, at, |flow| {
        if let Some(found) = id_at(flow, at) {
            let defined = uses(flow).into_iter().find(|other| other.is_definition && other.is_same(&found))?;
            return Some(Definition::Name(defined.range));
        }
        let located = locate(flow, at)?;
        let value = match located.target {
            Target::Value(value) => value,
            Target::Key(_, argument) => return parameter(flow, &located, argument).map(Definition::Name),
        };
        let (text, _) = flow.text(Some(value)).filter(|(text, _)| !text.contains("{{"))?;
        match located.role(flow) {
            Role::FlowName => Some(Definition::Flow(text)),
            Role::File => Some(Definition::File(text)),
            Role::Agent => Some(Definition::Agent(text)),
            Role::Fragment => Some(Definition::Name(flow.used_fragment(located.node?)?.key.clone())),
            _ => None,
        }
    })
}

/// Returns the bytes of the parameter of a fragment that an argument in `with` sets.
fn parameter(flow: &Flow<'_>, located: &Located<'_>, argument: &Member) -> Option<Range<usize>> {
    match in_graph(&located.steps) {
        [Step::Key(list), Step::Item, Step::Key(with)] if list == "nodes" && with == "with" => {}
        _ => return None,
    }
    let params = flow.used_fragment(located.node?)?.value.member("params")?;
    params.members().iter().find(|param| param.name == argument.name).map(|param| param.key.clone())
}

/// Returns the bytes of all places that name the node, or the other value, at a byte. Its definition is among them. They
/// are in the order of the text.
pub fn references(document: &Document<'_>, at: usize) -> Vec<Range<usize>> {
    let found = with_flow(document, at, |flow| {
        let named = id_at(flow, at)?;
        Some(uses(flow).into_iter().filter(|found| found.is_same(&named)).map(|found| found.range).collect::<Vec<_>>())
    });
    found.unwrap_or_default()
}

/// Returns the id, or the other name, at a byte, and its bytes.
pub fn node_at(document: &Document<'_>, at: usize) -> Option<(String, Range<usize>)> {
    with_flow(document, at, |flow| id_at(flow, at).map(|found| (found.id, found.range)))
}

fn with_flow<T>(document: &Document<'_>, at: usize, find: impl FnOnce(&Flow<'_>) -> Option<T>) -> Option<T> {
    if is_too_large(document.text) {
        return None;
    }
    let root = read(document.text);
    find(&Flow::at(document.text, &root, document.catalog, at))
}

/// Returns every place that names a node or another value, in the order of the text.
fn uses(flow: &Flow<'_>) -> Vec<IdUse> {
    let mut found = flow.uses.clone();
    found.extend(spots::id_uses(flow));
    found.sort_by_key(|found| (found.range.start, found.range.end));
    found.dedup();
    found
}

fn id_at(flow: &Flow<'_>, at: usize) -> Option<IdUse> {
    let is_here = |found: &IdUse| found.range.start <= at && at <= found.range.end && !found.id.is_empty();
    let all = uses(flow);
    let is_defined = |found: &IdUse| all.iter().any(|other| other.is_definition && other.is_same(found));
    all.iter().find(|found| is_here(found) && is_defined(found)).cloned()
}

/// The result of renaming a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The changes of the flow's text.
    pub edits: Vec<Edit>,
    /// The bytes of plain text, such as comments and prompts, that contain the id and stay as they are. At most 50.
    pub left: Vec<Range<usize>>,
    /// The changes of test cases.
    pub plan: Plan,
}

/// Renames the node at a byte: its id, and every edge, body, condition and expression that names it. In a flow of steps
/// renames a step or its result. A flow without errors keeps its graph. The error says why there cannot be this name.
pub fn rename(
    document: &Document<'_>,
    name: &str,
    at: usize,
    new_id: &str,
    context: &dyn CheckContext,
) -> Result<Renamed, String> {
    let renamed = with_flow(document, at, |flow| {
        let old = id_at(flow, at)?;
        Some(match flow.dialect {
            Dialect::Graph => check_new_id(flow, &old.id, new_id).map(|()| edits(flow, at, &old.id, new_id)),
            _ => check_new_name(flow, &old, new_id).map(|()| edits_of_steps(flow, &old, new_id)),
        })
    });
    let renamed =
        renamed.unwrap_or_else(|| Err("no id of a node or a step at this place; move the cursor to one".into()))?;
    let check = |text: String| flowcell_flow::load(&Source { name: name.to_owned(), text }, document.catalog, context);
    let before = check(document.text.to_owned());
    let after = check(apply(document.text, &renamed.edits));
    match (before.graph, after.graph) {
        (Some(before), Some(after)) if shape(&before) == shape(&after) => Ok(renamed),
        (Some(_), Some(_)) => Err(other_meaning(new_id)),
        (Some(_), None) => {
            let error = after.diagnostics.into_iter().find(|found| found.severity == Severity::Error);
            let why = error.map_or_else(String::new, |error| format!(": {}", error.message));
            Err(format!("with the id `{new_id}` the flow has an error{why}; choose another id"))
        }
        // A flow with errors has no graph to compare with.
        (None, _) => Ok(renamed),
    }
}

fn other_meaning(new_id: &str) -> String {
    format!(
        "`{new_id}` has another meaning in this flow, so that expressions would read other values; choose another id"
    )
}

/// Checks the new id of a node in a graph.
fn check_new_id(flow: &Flow<'_>, old: &str, new: &str) -> Result<(), String> {
    ids::check_id(new).map_err(|message| match ids::is_id(new) {
        true => format!("{message}; choose another id"),
        false => format!("{message}: {ID_HELP}"),
    })?;
    // These names are refused here, too, because a flow with errors is not checked afterwards.
    let is_root = match new {
        "params" => flow.root.member("fragments").is_some(),
        "vars" => flow.head().is_some_and(|head| head.member("vars").is_some()),
        _ => false,
    };
    match () {
        () if flow.find(new).is_some() && new != old => {
            Err(format!("the flow has a node `{new}` already; choose another id"))
        }
        () if is_root => Err(other_meaning(new)),
        () => Ok(()),
    }
}

/// Checks the new name of a step, or of its result, in a flow of steps.
fn check_new_name(flow: &Flow<'_>, old: &IdUse, new: &str) -> Result<(), String> {
    let is_id = names_step(flow, old);
    let help = match (old.kind, flow.dialect) {
        (NameKind::Input | NameKind::Argument, _) => {
            return Err(format!("callers name `{}`, too, so this renames only steps; change it by hand", old.id));
        }
        (_, Dialect::Agentic) if !is_kebab_case(new) => {
            "use lowercase letters, digits and single dashes, at most 64 characters"
        }
        (_, Dialect::Steps) if is_id && !ids::is_id(new) => ID_HELP,
        (_, Dialect::Steps) if !is_flow_name(new) => "use letters, digits, `_` and `-`, at most 64 characters",
        _ => {
            let is_taken = |other: &IdUse| other.is_definition && other.kind == old.kind && other.id == new;
            let is_taken = flow.uses.iter().any(is_taken) || (is_id && flow.find(new).is_some());
            return match is_taken && new != old.id {
                true => Err(format!("the flow has `{new}` already; choose another name")),
                false => Ok(()),
            };
        }
    };
    Err(format!("`{new}` is not a valid name here: {help}"))
}

/// Returns true if a name is the id of a step. The result of a step without `save_as` has its id as its name.
fn names_step(flow: &Flow<'_>, name: &IdUse) -> bool {
    let defined: Vec<_> = flow.uses.iter().filter(|found| found.is_definition && found.is_same(name)).collect();
    flow.nodes.iter().any(|node| defined.iter().any(|found| found.range == node.id_range))
}

fn edits_of_steps(flow: &Flow<'_>, old: &IdUse, new: &str) -> Renamed {
    let mut edits: Vec<_> = flow.uses.iter().filter(|found| found.is_same(old)).collect();
    edits.sort_by_key(|found| found.range.start);
    let edits: Vec<_> =
        edits.into_iter().map(|found| Edit { range: found.range.clone(), text: new.to_owned() }).collect();
    let plan = if names_step(flow, old) { Plan::of_step(&old.id, new) } else { Plan::default() };
    Renamed { left: left(flow, &old.id, &plan, &edits), edits, plan }
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
    let plan = Plan::new(flow.file, flow.root, at, (old, new));
    Renamed { left: left(flow, old, &plan, &edits), edits, plan }
}

/// Returns the places of an id, as a word, that no edit changes, and those of the ids that its node has where a
/// fragment is used. `edits` are in the order of the text.
fn left(flow: &Flow<'_>, id: &str, plan: &Plan, edits: &[Edit]) -> Vec<Range<usize>> {
    let text = flow.file;
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-');
    let mut at = 0;
    let words = text.split_inclusive(|sign| !is_part(sign)).map(|piece| {
        let (start, word) = (at, piece.trim_end_matches(|sign| !is_part(sign)));
        at += piece.len();
        (word, start..start + word.len())
    });
    let places = words.filter(|(word, range)| {
        let is_meant = if *word == id { flow.contains(range.start) } else { plan.new_id(word).is_some() };
        // A key of this name is a member of something else.
        let is_key = text[range.end..].starts_with(':');
        let last = edits.partition_point(|edit| edit.range.start <= range.start).checked_sub(1);
        let is_edited = last.is_some_and(|last| range.end <= edits[last].range.end);
        is_meant && !is_key && !is_edited
    });
    places.map(|(_, range)| range).take(MAX_LEFT).collect()
}
