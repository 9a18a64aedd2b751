//! Compares the nodes of two versions of a flow.

mod named;

use flowcell_contract::Json;
use flowcell_expr::{Binding, Condition, Path};
use flowcell_flow::graph::{
    BodyIx, Bound, Edge, EdgeIx, Graph, Node, NodeIx, On, Outcome, PassRead, Reference, Source,
};
use serde::{Deserialize, Serialize};

use self::named::NamedNodes;

/// The part of a node in which two versions of a flow differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The evaluation: one version is strict, the other is not.
    Strict,
    /// The type, its version, or the digest of its pack.
    Type,
    /// The binding of the input, or the literal settings in it.
    Input,
    /// The binding of the config.
    Config,
    /// The condition `when`.
    When,
    /// The join.
    Join,
    /// The grants.
    Grants,
    /// A node, an edge or the result of the body.
    Body,
    /// The edges to the node.
    Edges,
    /// The edges from the node: an edge carries its input after a failure, and the input was not recorded.
    EdgesFrom,
    /// A value in `flow.input` that the node reads: the other version has other defaults.
    FlowInput,
    /// A flow that the node has called.
    Called,
    /// The timeouts, the retries, or the handling of failures.
    Policy,
}

impl Part {
    /// Returns the part for a message: "… changed".
    pub fn name(self) -> &'static str {
        match self {
            Part::Strict => "`flow.strict`",
            Part::Type => "the type or its pack",
            Part::Input => "the input",
            Part::Config => "the config",
            Part::When => "`when`",
            Part::Join => "the join",
            Part::Grants => "the grants",
            Part::Body => "the body",
            Part::Edges => "the edges to it",
            Part::EdgesFrom => "the edges from it",
            Part::FlowInput => "a value of `flow.input`",
            Part::Called => "a flow that it calls",
            Part::Policy => "the timeouts, the retries or `continueOnError`",
        }
    }
}

/// Two versions of a flow, with the whole input of a run in each.
pub(super) struct Versions<'a> {
    pub(super) old: (&'a Graph, &'a Json),
    pub(super) new: (&'a Graph, &'a Json),
}

impl Versions<'_> {
    /// Returns the part in which a node of the flow itself differs. Its own timeouts and retries do not count: they
    /// change no output that the node already has.
    pub(super) fn difference(&self, old: NodeIx, new: NodeIx) -> Option<Part> {
        if self.old.0.strict != self.new.0.strict {
            return Some(Part::Strict);
        }
        let (before, after) = (self.old.0.node(old), self.new.0.node(new));
        let (a, b) = (&before.node_type, &after.node_type);
        if (&a.name, &a.version, &a.pack) != (&b.name, &b.version, &b.pack) {
            return Some(Part::Type);
        }
        let bindings = [(&before.input, &after.input, Part::Input), (&before.config, &after.config, Part::Config)];
        for (before, after, part) in bindings {
            if !self.same_bindings(before, after, (Some(old), Some(new))) {
                return Some(part);
            }
            if self.reads_other_input(&after.references, &after.expr.paths()) {
                return Some(Part::FlowInput);
            }
        }
        if (before.rebinds, &before.collects) != (after.rebinds, &after.collects) {
            return Some(Part::Input);
        }
        if !self.same_conditions(before.when.as_ref(), after.when.as_ref(), (old, new)) {
            return Some(Part::When);
        }
        if before.join != after.join {
            return Some(Part::Join);
        }
        if before.grants != after.grants {
            return Some(Part::Grants);
        }
        if !self.same_edges(before, after) {
            return Some(Part::Edges);
        }
        let same_body = match (before.body, after.body) {
            (Some(before), Some(after)) => self.same_bodies(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        (!same_body).then_some(Part::Body)
    }

    fn same_bodies(&self, old: BodyIx, new: BodyIx) -> bool {
        let (before, after) = (self.old.0.body(old), self.new.0.body(new));
        let same_nodes = || before.nodes.iter().zip(&after.nodes).all(|(old, new)| self.same_inner(*old, *new));
        let same_outcome = || match (&before.outcome, &after.outcome) {
            (Outcome::Output(before), Outcome::Output(after)) => {
                self.same_bindings(before, after, (None, None))
                    && !self.reads_other_input(&after.references, &after.expr.paths())
            }
            (Outcome::Sink(before), Outcome::Sink(after)) => self.same_ids(&[*before], &[*after]),
            // The result of a pass has the names of the nodes.
            (Outcome::Sinks(before), Outcome::Sinks(after)) => {
                let names = (self.old.0.names_in(old), self.new.0.names_in(new));
                let ids = || before.iter().map(|node| &self.old.0.node(*node).id);
                self.same_ids(before, after) && ids().all(|id| names.0.name(id) == names.1.name(id))
            }
            _ => false,
        };
        before.nodes.len() == after.nodes.len() && same_nodes() && same_outcome()
    }

    /// Returns true if a node in a body is the same. Here timeouts and retries count: they change the output of the
    /// body's owner.
    fn same_inner(&self, old: NodeIx, new: NodeIx) -> bool {
        let (before, after) = (self.old.0.node(old), self.new.0.node(new));
        before.id == after.id
            && before.policy == after.policy
            && self.same_undos(before.undo, after.undo)
            && self.difference(old, new).is_none()
    }

    fn same_undos(&self, old: Option<NodeIx>, new: Option<NodeIx>) -> bool {
        match (old, new) {
            (Some(old), Some(new)) => self.same_inner(old, new),
            (old, new) => old.is_none() && new.is_none(),
        }
    }

    fn same_ids(&self, old: &[NodeIx], new: &[NodeIx]) -> bool {
        let same = |(old, new): (&NodeIx, &NodeIx)| self.old.0.node(*old).id == self.new.0.node(*new).id;
        old.len() == new.len() && old.iter().zip(new).all(same)
    }

    fn same_edges(&self, before: &Node, after: &Node) -> bool {
        let (old, new) = (sort_edges(self.old.0, &before.incoming), sort_edges(self.new.0, &after.incoming));
        let same = |(old, new): (&&Edge, &&Edge)| {
            let limit = |graph: &Graph, edge: &Edge| {
                let cycle = graph.node(edge.to).cycle.filter(|_| edge.goes_back);
                cycle.map(|cycle| graph.cycle(cycle).max_passes)
            };
            old.on == new.on
                && old.orders_only == new.orders_only
                && limit(self.old.0, old) == limit(self.new.0, new)
                && self.same_ids(&[old.from], &[new.from])
                && self.same_conditions(old.when.as_ref(), new.when.as_ref(), (old.from, new.from))
        };
        old.len() == new.len() && old.iter().zip(&new).all(same)
    }

    /// Compares two conditions. `at`: the nodes whose incoming edges they may name.
    fn same_conditions(
        &self,
        old: Option<&Bound<Condition>>,
        new: Option<&Bound<Condition>>,
        at: (NodeIx, NodeIx),
    ) -> bool {
        match (old, new) {
            (Some(old), Some(new)) => {
                let named = self.named(old, new, (Some(at.0), Some(at.1)));
                let same_text = match &named {
                    None => old.expr == new.expr,
                    Some((one, other)) => {
                        one.reads_same_names(other, &old.expr.paths())
                            && old.expr.is_same(&|name| one.id(name), &new.expr, &|name| other.id(name))
                    }
                };
                same_text
                    && self.same_references(&old.references, &new.references)
                    && !self.reads_other_input(&new.references, &new.expr.paths())
            }
            (old, new) => old.is_none() && new.is_none(),
        }
    }

    /// Compares two bindings. `at`: the nodes whose incoming edges they may name.
    fn same_bindings(&self, old: &Bound<Binding>, new: &Bound<Binding>, at: (Option<NodeIx>, Option<NodeIx>)) -> bool {
        let same_text = match &self.named(old, new, at) {
            None => old.expr == new.expr,
            Some((one, other)) => {
                one.reads_same_names(other, &old.expr.paths())
                    && old.expr.is_same(&|name| one.id(name), &new.expr, &|name| other.id(name))
            }
        };
        same_text && self.same_references(&old.references, &new.references)
    }

    /// Returns the nodes that two expressions name. `None`: all names are ids.
    fn named<T>(
        &self,
        old: &Bound<T>,
        new: &Bound<T>,
        at: (Option<NodeIx>, Option<NodeIx>),
    ) -> Option<(NamedNodes, NamedNodes)> {
        let are_ids = old.names.is_empty() && new.names.is_empty();
        (!are_ids).then(|| (NamedNodes::new(self.old.0, old, at.0), NamedNodes::new(self.new.0, new, at.1)))
    }

    fn same_references(&self, old: &[Reference], new: &[Reference]) -> bool {
        // `a` and `nodes["a"]` read the same.
        let texts = |graph: &Graph, references: &[Reference]| {
            let sources = references.iter().flat_map(|reference| match reference {
                Reference::Node(source) => std::slice::from_ref(source),
                Reference::Nodes(sources) => sources,
                _ => &[],
            });
            let mut texts: Vec<_> = sources.map(|source| source_text(graph, source)).collect();
            texts.sort_unstable();
            texts.dedup();
            texts
        };
        let others = |references: &'_ [Reference]| {
            let is_source = |reference: &&Reference| matches!(reference, Reference::Node(_) | Reference::Nodes(_));
            references.iter().filter(|reference| !is_source(reference)).cloned().collect::<Vec<_>>()
        };
        let same = |(old, new): (&Reference, &Reference)| match (old, new) {
            (Reference::Owner(old), Reference::Owner(new)) => self.same_ids(&[*old], &[*new]),
            (Reference::Alias(old, name), Reference::Alias(new, other)) => {
                name == other && self.same_ids(&[*old], &[*new])
            }
            (old, new) => old == new,
        };
        let (old_others, new_others) = (others(old), others(new));
        texts(self.old.0, old) == texts(self.new.0, new)
            && old_others.len() == new_others.len()
            && old_others.iter().zip(&new_others).all(same)
    }

    /// Returns true if one of the paths leads to another value of `flow.input` than before.
    fn reads_other_input(&self, references: &[Reference], paths: &[Path]) -> bool {
        if self.old.1 == self.new.1 || !references.contains(&Reference::Flow) {
            return false;
        }
        let roots = |input: &Json| Json::object([("flow", Json::object([("input", input.clone())]))]);
        let (old, new) = (roots(self.old.1), roots(self.new.1));
        paths.iter().filter(|path| path.root() == "flow").any(|path| path.resolve(&old) != path.resolve(&new))
    }
}

/// Returns the id of a node whose output is read, and the names of the nodes by which the pass is told. The same text means
/// the same output in two versions of a flow.
fn source_text(graph: &Graph, source: &Source) -> (String, Vec<String>) {
    let id = |node: NodeIx| graph.node(node).id.to_string();
    let mut pass = match &source.pass {
        PassRead::Current => Vec::new(),
        PassRead::Previous(cycle) => vec![id(graph.cycle(*cycle).entry)],
        PassRead::Left(edges) => {
            let ends = |edge: &EdgeIx| format!("{} -> {}", id(graph.edge(*edge).from), id(graph.edge(*edge).to));
            edges.iter().map(ends).collect()
        }
    };
    pass.sort_unstable();
    (id(source.node), pass)
}

/// Returns edges in an order that does not depend on their places in the file.
fn sort_edges<'g>(graph: &'g Graph, edges: &[EdgeIx]) -> Vec<&'g Edge> {
    let rank = |on: On| match on {
        On::Success => 0,
        On::Error => 1,
        On::End => 2,
    };
    let mut edges: Vec<_> = edges.iter().map(|edge| graph.edge(*edge)).collect();
    edges.sort_by(|a, b| {
        let key = |edge: &'g Edge| (graph.node(edge.from).id.as_str(), rank(edge.on));
        key(a).cmp(&key(b))
    });
    edges
}
