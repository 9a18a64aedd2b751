//! From what is written to the checked graph.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{Catalog, Grants, Json, Lookup, MarkKind, NodeType, Trait, TypeRef};
use flowcell_expr::Binding;

use crate::{
    Files, Source,
    diagnostic::{Findings, did_you_mean},
    fields::{entries, shown},
    graph::{Body, BodyIx, Bound, Edge, EdgeIx, Graph, Join, Node, NodeIx, On, Outcome, Reference},
    input::{self, Compiled},
    names::{OwnerNames, Viewpoint},
    read::{RawBody, RawFlow, RawNode, parse_join},
    shape::Shape,
    yaml::{Kind, Span, Tree},
};

/// Capabilities that need no grant line.
const GRANTED: [&str; 4] = ["log", "metrics", "state", "cache"];

/// Checks a flow and builds its graph. The graph is of use only if nothing was found.
pub(crate) fn lower(
    flow: &RawFlow<'_>,
    catalog: &Catalog,
    files: &dyn Files,
    findings: &mut Findings<'_>,
) -> Option<Graph> {
    let types: Vec<_> = flow.nodes.iter().map(|node| node_type(node, catalog, findings)).collect();
    let mut shape = Shape::new(flow, findings);
    let joins: Vec<_> =
        flow.nodes.iter().zip(&types).map(|(node, kind)| join(node, kind.as_deref(), findings)).collect();
    shape.check_cycles(flow, &joins, findings);
    let owners: Vec<_> = flow.nodes.iter().zip(&types).map(|(node, kind)| owner_names(node, kind.as_deref())).collect();
    let lowering = Lowering { flow, shape: &shape, types: &types, owners: &owners, files };
    lowering.check_joins(&joins, findings);
    let mut nodes = Vec::new();
    for (index, join) in joins.iter().enumerate() {
        nodes.extend(lowering.node(index, *join, findings));
    }
    let edges = lowering.edges(findings);
    let bodies = lowering.bodies(findings);
    let outputs = flow.outputs.map(|tree| {
        let compiled = input::compile(tree, findings);
        let view = lowering.view(0, shape.scopes[0].nodes.iter().copied().collect(), false, None);
        bound(compiled, &view, findings)
    });
    if findings.has_errors() || nodes.len() != flow.nodes.len() {
        return None;
    }
    Some(Graph {
        name: flow.name.as_str().into(),
        version: flow.version.map(Tree::json),
        description: flow.description.clone(),
        input: flow.input.map_or_else(|| Json::object::<&str>([]), Tree::json),
        input_schema: flow.input_schema.map(|tree| tree.json().to_serde()),
        outputs,
        policy: flow.policy.clone(),
        nodes,
        edges,
        bodies,
        labels: Default::default(),
    })
}

fn node_type(node: &RawNode<'_>, catalog: &Catalog, findings: &mut Findings<'_>) -> Option<Arc<NodeType>> {
    if node.type_name.is_empty() {
        return None;
    }
    let wanted = TypeRef::parse(&node.type_name);
    match catalog.lookup(&wanted) {
        Lookup::Found(found) => Some(found),
        Lookup::OtherVersions(versions) => {
            let versions: Vec<_> = versions.iter().map(ToString::to_string).collect();
            let message =
                format!("`{}` has no version `{}`", wanted.name, wanted.version.as_deref().unwrap_or_default());
            let help = Some(format!("there is {}", versions.join(", ")));
            findings.error("unknown_version", node.type_span, message, help);
            None
        }
        Lookup::Unknown => {
            let help = did_you_mean(&wanted.name, catalog.names())
                .or_else(|| Some("`flowcell nodes` lists all types; `flow.packs` and `--packs DIR` add more".into()));
            let message = format!("there is no node type `{}`", shown(&wanted.name));
            findings.error("unknown_type", node.type_span, message, help);
            None
        }
    }
}

/// The join that is written, or that the type's marked field sets.
fn join(node: &RawNode<'_>, kind: Option<&NodeType>, findings: &mut Findings<'_>) -> Join {
    if let Some((join, _)) = node.join {
        return join;
    }
    let Some((text, tree)) = kind.and_then(|kind| input::marked_text(node.input, kind, MarkKind::Join)) else {
        return Join::Settled;
    };
    parse_join(&text).unwrap_or_else(|| {
        let span = tree.map_or(node.id_span, |tree| tree.span);
        let help = Some("write all, any or settled; it must be literal".into());
        findings.error("bad_value", span, format!("the join cannot be `{}`", shown(&text)), help);
        Join::Settled
    })
}

fn owner_names(node: &RawNode<'_>, kind: Option<&NodeType>) -> OwnerNames {
    let body = kind.and_then(|kind| kind.body.as_ref());
    OwnerNames {
        variables: body.map(|body| body.variables.clone()).unwrap_or_default(),
        alias: kind.and_then(|kind| input::marked_text(node.input, kind, MarkKind::Alias)).map(|(text, _)| text.into()),
    }
}

fn bound(compiled: Compiled, view: &Viewpoint<'_>, findings: &mut Findings<'_>) -> Bound<Binding> {
    let mut references: Vec<Reference> = Vec::new();
    for read in &compiled.reads {
        let view = Viewpoint { own: view.own.filter(|_| read.rebind), visible: view.visible.clone(), ..*view };
        for reference in view.resolve(&read.paths, &read.locals, findings) {
            let merged = references.iter_mut().find_map(|known| match (known, &reference) {
                (Reference::Nodes(known), Reference::Nodes(more)) => {
                    known.extend(more);
                    known.sort_unstable();
                    known.dedup();
                    Some(())
                }
                (known, more) => (*known == *more).then_some(()),
            });
            if merged.is_none() {
                references.push(reference);
            }
        }
    }
    Bound { expr: compiled.binding, references }
}

struct Lowering<'a> {
    flow: &'a RawFlow<'a>,
    shape: &'a Shape,
    types: &'a [Option<Arc<NodeType>>],
    owners: &'a [OwnerNames],
    files: &'a dyn Files,
}

impl<'a> Lowering<'a> {
    fn view(&self, scope: usize, visible: HashSet<usize>, inbound: bool, own: Option<usize>) -> Viewpoint<'a> {
        let Lowering { flow, shape, owners, .. } = *self;
        Viewpoint { flow, shape, owners, scope, visible, inbound, own }
    }

    fn view_of(&self, node: usize) -> Viewpoint<'a> {
        self.view(self.shape.scope_of[node], self.shape.ancestors(node).into_iter().collect(), true, Some(node))
    }

    fn node(&self, index: usize, join: Join, findings: &mut Findings<'_>) -> Option<Node> {
        let raw = &self.flow.nodes[index];
        let view = self.view_of(index);
        let kind = self.types[index].as_ref();
        let marks = kind.map(|kind| kind.marks.as_slice()).unwrap_or_default();
        let input = self.input(raw, kind.map(Arc::as_ref), findings);
        let rebinds = marks.iter().any(|mark| mark.rebind);
        let input = bound(input, &view, findings);
        let config = match raw.config {
            Some(tree) => {
                if let Some(kind) = kind {
                    input::check_schema(tree, &kind.config, &[], findings);
                }
                bound(input::compile(tree, findings), &view, findings)
            }
            None => Bound { expr: Binding::literal(Json::object::<&str>([])), references: Vec::new() },
        };
        let when = raw.when.and_then(|tree| {
            let (expr, paths) = input::compile_condition(tree, findings)?;
            let view = Viewpoint { own: None, visible: view.visible.clone(), ..view };
            Some(Bound { expr, references: view.resolve(&paths, &[], findings) })
        });
        let kind = kind?;
        self.check_body(index, kind, findings);
        let grants = self.grants(raw, kind, findings);
        let scope = self.shape.scope_of[index];
        let slot = self.shape.scopes[scope].nodes.iter().position(|node| *node == index)?;
        let edges = |edges: &[usize]| edges.iter().map(|edge| EdgeIx(*edge as u32)).collect();
        Some(Node {
            id: raw.id.as_str().into(),
            node_type: kind.clone(),
            body_of: BodyIx(scope as u32),
            slot: slot as u32,
            input,
            config,
            when,
            join,
            policy: raw.policy.clone(),
            grants: Arc::new(grants),
            body: self.shape.owned[index].map(|scope| BodyIx(scope as u32)),
            incoming: edges(&self.shape.incoming[index]),
            outgoing: edges(&self.shape.outgoing[index]),
            on_cycle: self.shape.on_cycle[index],
            rebinds,
            labels: Default::default(),
        })
    }

    /// The input, with the prompt file in it, checked against the type's schema.
    fn input(&self, raw: &RawNode<'_>, kind: Option<&NodeType>, findings: &mut Findings<'_>) -> Compiled {
        let empty = Tree { span: raw.id_span, kind: Kind::Map(Vec::new()) };
        let prompt = raw.prompt_file.as_ref().and_then(|(path, span)| self.prompt(raw, path, *span, findings));
        let with_prompt = prompt.map(|prompt| {
            let mut entries = raw.input.map(|tree| entries(tree, "the input", findings).to_vec()).unwrap_or_default();
            entries.push(prompt);
            Tree { span: raw.input.map_or(raw.id_span, |tree| tree.span), kind: Kind::Map(entries) }
        });
        let tree = with_prompt.as_ref().or(raw.input).unwrap_or(&empty);
        let whole = tree.text().is_some_and(|text| text.trim().starts_with("{{"));
        if !whole && !matches!(tree.kind, Kind::Map(_)) {
            let message = format!("the input is a map, this is {}", tree.type_name());
            findings.error("wrong_type", tree.span, message, None);
        } else if let Some(kind) = kind.filter(|_| !whole) {
            input::check_schema(tree, &kind.input, &kind.marks, findings);
            self.check_flow_name(raw, kind, findings);
        }
        input::compile_marked(tree, kind.map(|kind| kind.marks.as_slice()).unwrap_or_default(), findings)
    }

    fn prompt(
        &self,
        raw: &RawNode<'_>,
        path: &str,
        span: Span,
        findings: &mut Findings<'_>,
    ) -> Option<crate::yaml::Entry> {
        if raw.input.is_some_and(|input| input.member("prompt").is_some()) {
            let help = Some("leave one of them out".into());
            findings.error("two_prompts", span, "the node has both `promptFile` and `input.prompt`", help);
            return None;
        }
        match self.files.read(path) {
            Ok(text) => {
                let value = Tree { span, kind: Kind::Scalar(Json::from(text)) };
                Some(crate::yaml::Entry { key: "prompt".into(), key_span: span, value })
            }
            Err(error) => {
                let message = format!("cannot read `{}`: {error}", shown(path));
                findings.error(
                    "unreadable_file",
                    span,
                    message,
                    Some("the path is relative to the flow's file".into()),
                );
                None
            }
        }
    }

    /// A literal name of a flow must be there, and must not lead back to this flow.
    fn check_flow_name(&self, raw: &RawNode<'_>, kind: &NodeType, findings: &mut Findings<'_>) {
        let Some((name, Some(tree))) = input::marked_text(raw.input, kind, MarkKind::Flow) else { return };
        if name.contains("{{") {
            return;
        }
        let Some(source) = self.files.flow(&name) else {
            let help = Some(format!("put `{}.yaml` beside this file", shown(&name)));
            findings.error("unknown_flow", tree.span, format!("there is no flow `{}`", shown(&name)), help);
            return;
        };
        if let Some(chain) = self.way_back(&name, source) {
            let message = format!("the flow calls itself: {}", chain.join(" -> "));
            findings.error("flow_recursion", tree.span, message, Some("repeat with `control.loop`".into()));
        }
    }

    /// A chain of calls from a flow back to this one, or to one that it has met before.
    fn way_back(&self, name: &str, source: Source) -> Option<Vec<String>> {
        let mut open = vec![(vec![self.flow.name.clone(), name.to_owned()], source)];
        let mut seen = HashSet::new();
        while let Some((chain, source)) = open.pop() {
            if chain.len() > crate::limits::FLOW_DEPTH {
                return Some(chain);
            }
            for called in called_flows(&source) {
                let longer = [chain.as_slice(), std::slice::from_ref(&called)].concat();
                if chain.contains(&called) {
                    return Some(longer);
                }
                if seen.insert(called.clone())
                    && let Some(source) = self.files.flow(&called)
                {
                    open.push((longer, source));
                }
            }
        }
        (name == self.flow.name).then(|| vec![name.to_owned(), name.to_owned()])
    }

    fn check_body(&self, index: usize, kind: &NodeType, findings: &mut Findings<'_>) {
        let raw = &self.flow.nodes[index];
        let has_body = !matches!(raw.body, RawBody::None);
        if has_body && !kind.has(Trait::Body) {
            let message = format!("`{}` runs no body", kind.name);
            findings.error(
                "no_body_here",
                raw.body_span,
                message,
                Some("use `control.foreach` or `control.loop`".into()),
            );
        }
        if !has_body && kind.body.as_ref().is_some_and(|body| body.required) {
            let message = format!("`{}` needs a body", kind.name);
            findings.error("body_missing", raw.id_span, message, Some("add `body: [ids of nodes]`".into()));
        }
    }

    fn grants(&self, raw: &RawNode<'_>, kind: &NodeType, findings: &mut Findings<'_>) -> Grants {
        let mut grants = Grants::default();
        for entry in raw.grants.map(|tree| entries(tree, "`grants`", findings)).unwrap_or_default() {
            if !kind.asks_for(&entry.key) {
                let message = format!("`{}` does not ask for `{}`", kind.name, shown(&entry.key));
                findings.warning("unused_grant", entry.key_span, message, Some("leave it out".into()));
            }
            grants.0.insert(entry.key.to_string(), entry.value.json());
        }
        for request in &kind.capabilities {
            if !GRANTED.contains(&&*request.name) && !grants.covers(&request.name) {
                let message = format!("`{}` asks for `{}`: {}", kind.name, request.name, request.reason);
                let help = Some(format!("add `grants: {{ {}: […] }}` to the node", request.name));
                findings.error("missing_grant", raw.type_span, message, help);
            }
        }
        grants
    }

    fn check_joins(&self, joins: &[Join], findings: &mut Findings<'_>) {
        for (index, raw) in self.flow.nodes.iter().enumerate() {
            let mut ends = self.shape.outgoing[index].iter().map(|edge| &self.flow.edges[self.shape.edges[*edge].0]);
            let error = ends.find(|edge| edge.on == On::Error);
            if let Some(edge) = error.filter(|_| raw.policy.continue_on_error) {
                let message = format!("`{}` continues on error, so this edge never fires", raw.id);
                findings.error("error_edge_never_fires", edge.span, message, Some("leave one of them out".into()));
            }
            if joins[index] == Join::All
                && let Some((a, b)) = self.exclusive(index)
            {
                let message =
                    format!("`{}` waits for all of its edges, but `{a}` and `{b}` exclude each other", raw.id);
                let help = "use `join: settled`, or `mode: any` for a merge";
                findings.warning("impossible_join", raw.id_span, message, Some(help.into()));
            }
        }
    }

    /// Two branches into a node of which only one can fire: a success and an error edge of one node, or edges that
    /// compare one name with different values.
    fn exclusive(&self, node: usize) -> Option<(String, String)> {
        let mut lines = Vec::new();
        for edge in &self.shape.incoming[node] {
            let (raw, from, _) = self.shape.edges[*edge];
            lines.push((from, raw, self.flow.nodes[from].id.clone()));
            for before in &self.shape.incoming[from] {
                let (raw, source, _) = self.shape.edges[*before];
                lines.push((source, raw, self.flow.nodes[from].id.clone()));
            }
        }
        for (at, (source, raw, name)) in lines.iter().enumerate() {
            for (other_source, other, other_name) in &lines[at + 1..] {
                let (a, b) = (&self.flow.edges[*raw], &self.flow.edges[*other]);
                let ends = a.on != b.on && a.on != On::End && b.on != On::End;
                if source == other_source && raw != other && (ends || compares_otherwise(a.when, b.when)) {
                    return Some((name.clone(), other_name.clone()));
                }
            }
        }
        None
    }

    fn edges(&self, findings: &mut Findings<'_>) -> Vec<Edge> {
        let mut slots = vec![0; self.shape.scopes.len()];
        let mut edges = Vec::new();
        for (raw, from, to) in &self.shape.edges {
            let scope = self.shape.scope_of[*from];
            let when = self.flow.edges[*raw].when.and_then(|tree| {
                let (expr, paths) = input::compile_condition(tree, findings)?;
                let mut view = self.view_of(*from);
                view.visible.insert(*from);
                view.own = None;
                Some(Bound { expr, references: view.resolve(&paths, &[], findings) })
            });
            let ix = |node: &usize| NodeIx(*node as u32);
            edges.push(Edge { from: ix(from), to: ix(to), on: self.flow.edges[*raw].on, when, slot: slots[scope] });
            slots[scope] += 1;
        }
        edges
    }

    fn bodies(&self, findings: &mut Findings<'_>) -> Vec<Body> {
        let shape = self.shape;
        let body = |(index, scope): (usize, &crate::shape::Scope)| {
            let ix = |node: &usize| NodeIx(*node as u32);
            let filtered = |links: &[Vec<usize>]| -> Vec<NodeIx> {
                scope.nodes.iter().filter(|node| links[**node].is_empty()).map(ix).collect()
            };
            let sinks = filtered(&shape.outgoing);
            let output = scope.owner.and_then(|owner| self.flow.nodes[owner].body_output);
            let outcome = match (output, sinks.as_slice()) {
                (Some(tree), _) => {
                    let compiled = input::compile(tree, findings);
                    let view = self.view(index, scope.nodes.iter().copied().collect(), false, None);
                    Outcome::Output(bound(compiled, &view, findings))
                }
                (None, [sink]) => Outcome::Sink(*sink),
                (None, _) => Outcome::Sinks(sinks),
            };
            let edges = shape.edges.iter().enumerate().filter(|(_, (_, from, _))| shape.scope_of[*from] == index);
            Body {
                owner: scope.owner.map(|owner| NodeIx(owner as u32)),
                nodes: scope.nodes.iter().map(ix).collect(),
                edges: edges.map(|(edge, _)| EdgeIx(edge as u32)).collect(),
                starts: filtered(&shape.incoming),
                outcome,
            }
        };
        shape.scopes.iter().enumerate().map(body).collect()
    }
}

/// Whether two conditions compare one name with different literals.
fn compares_otherwise(a: Option<&Tree>, b: Option<&Tree>) -> bool {
    let compared = |tree: Option<&Tree>| {
        let equals = tree?.member("equals")?;
        Some((equals.member("var")?.text()?.to_owned(), equals.member("value")?.json()))
    };
    matches!((compared(a), compared(b)), (Some((a, x)), Some((b, y))) if a == b && x != y)
}

/// The names of the flows that a flow calls, as far as they are literal.
fn called_flows(source: &Source) -> Vec<String> {
    fn walk(tree: &Tree, found: &mut Vec<String>) {
        if let Kind::List(items) = &tree.kind {
            for node in items {
                let subflow = node.member("type").and_then(Tree::text).is_some_and(|kind| kind.contains("subflow"));
                let name = node.member("input").and_then(|input| input.member("name")).and_then(Tree::text);
                found.extend(name.filter(|name| subflow && !name.contains("{{")).map(str::to_owned));
                if let Some(nodes) = node.member("body").and_then(|body| body.member("nodes")) {
                    walk(nodes, found);
                }
            }
        }
    }
    let mut found = Vec::new();
    if let Ok(tree) = crate::yaml::parse(&source.text)
        && let Some(nodes) = tree.member("nodes")
    {
        walk(nodes, &mut found);
    }
    found
}
