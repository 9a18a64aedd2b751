//! Says where the values come from that an expression reads.

use std::collections::HashSet;

use flowcell_expr::{Binding, Path, RANDOM, Segment};
use serde::Serialize;

use super::{MAX_MEMBERS, short};
use crate::graph::{Bound, Graph, NodeIx, PassRead, Reference};

/// A value that an expression reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Read {
    /// The path, as the expression writes it.
    pub path: String,
    /// The origin of the value.
    pub from: String,
}

/// Returns the origins of paths, each path once and at most [`MAX_MEMBERS`]. `bound` is the whole value.
pub(super) fn reads(graph: &Graph, bound: &Bound<Binding>, paths: &[&Path]) -> Vec<Read> {
    let mut seen = HashSet::new();
    let distinct: Vec<_> = paths.iter().filter(|path| seen.insert(**path)).collect();
    let read = |path: &&&Path| {
        let written = if path.root() == RANDOM { "random values".to_owned() } else { short(&path.to_string()) };
        Read { path: written, from: origin(graph, bound, path) }
    };
    let mut reads: Vec<_> = distinct.iter().take(MAX_MEMBERS).map(read).collect();
    if let Some(more) = distinct.len().checked_sub(MAX_MEMBERS).filter(|more| *more > 0) {
        reads.push(Read { path: "…".into(), from: format!("{more} more values") });
    }
    reads
}

fn origin(graph: &Graph, bound: &Bound<Binding>, path: &Path) -> String {
    let first = path.segments().first();
    let key = |segment: Option<&Segment>| match segment {
        Some(Segment::Key(key)) => Some(key.to_string()),
        _ => None,
    };
    let is_named = |reference: &&Reference| graph.is_named(reference, &bound.names, path.root());
    match (path.root(), bound.references.iter().find(is_named)) {
        ("flow", Some(Reference::Flow)) => match key(first).as_deref() {
            Some("input") => input(graph, key(path.segments().get(1)).as_deref()),
            _ => "a fact about the flow".into(),
        },
        (_, Some(Reference::Node(source))) => output(graph, source.node, &source.pass),
        (_, Some(Reference::Nodes(sources))) => match sources.as_slice() {
            [source] => output(graph, source.node, &source.pass),
            _ => "the outputs of the nodes before".into(),
        },
        (_, Some(Reference::Owner(owner))) => {
            format!("a variable of the present pass of `{}`", graph.node(*owner).id)
        }
        (_, Some(Reference::Alias(owner, _))) => format!("the item of the present pass of `{}`", graph.node(*owner).id),
        (_, Some(Reference::Inbound)) => "the output or the failure of the node whose edge started this one".into(),
        (_, Some(Reference::Inbounds)) => "the outputs or failures of the nodes whose edges have fired".into(),
        (_, Some(Reference::Undo)) => "the task that this node undoes".into(),
        (_, Some(Reference::Random)) => "the seed of the run".into(),
        (_, Some(_)) => "a fact about the run".into(),
        (_, None) => "the node itself, when it evaluates the field".into(),
    }
}

fn input(graph: &Graph, member: Option<&str>) -> String {
    let Some(member) = member else { return "the input of the run".into() };
    match graph.input.get(member) {
        Some(default) => format!("the input of the run, by default {}", short(&default.to_text())),
        None => "the input of the run, without a default".into(),
    }
}

fn output(graph: &Graph, node: NodeIx, pass: &PassRead) -> String {
    let id = &graph.node(node).id;
    match pass {
        PassRead::Current => format!("the output of `{id}`"),
        PassRead::Previous(_) => format!("the output of `{id}` in the pass before"),
        PassRead::Left(_) => format!("the output of `{id}` in the pass that left the cycle"),
    }
}
