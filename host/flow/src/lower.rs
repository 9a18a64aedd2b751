//! Checks a flow and builds its graph.

use std::sync::Arc;

use flowcell_contract::{Catalog, Json, MarkKind, NodeType, Trait};
use flowcell_expr::Binding;

use crate::{
    CheckContext, answers,
    calls::{CallError, Calls},
    diagnostic::Diagnostics,
    fields::{entries, for_message, is_name, not_a_map},
    grants,
    graph::{Body, BodyIx, Bound, CycleIx, Edge, EdgeIx, Graph, Join, Names, Node, NodeIx, On, Outcome, Reference},
    input::{self, Compiled},
    joins, key_hints, limits, literal,
    names::{KnownInput, NameResolver, OwnerNames, Visible},
    node_limits, policy,
    ports::PortMap,
    read::{RawBody, RawFlow, RawNode},
    schema_check::{self, Part, Schemas},
    shape::Shape,
    triggers,
    types::{collects, node_type, warn_of_deprecated},
    yaml::{Entry, Kind, Span, Tree},
};

/// Checks a flow and builds its graph. The graph is valid only if the check reported no error.
pub(crate) fn lower(
    mut flow: RawFlow<'_>,
    catalog: &Catalog,
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Graph> {
    if flow.nodes.len() > limits::NODES || flow.edges.len() > limits::EDGES {
        // Further short edges were not read.
        let more = if flow.edges.len() > limits::EDGES { " or more" } else { "" };
        let message = format!("the flow has {} nodes and {}{more} edges", flow.nodes.len(), flow.edges.len());
        let help = Some(format!("use at most {} nodes and {} edges", limits::NODES, limits::EDGES));
        diagnostics.error("too_large", flow.head, message, help);
        return None;
    }
    flow.defaults.limit(flow.nodes.len(), diagnostics);
    let types: Vec<_> = flow.nodes.iter().map(|node| node_type(node, catalog, diagnostics)).collect();
    warn_of_deprecated(&flow.nodes, &types, diagnostics);
    PortMap::new(&flow.nodes, &types).resolve(&mut flow.edges, diagnostics);
    let flow = &flow;
    let shape = Shape::new(flow, diagnostics);
    let joins: Vec<_> =
        flow.nodes.iter().zip(&types).map(|(node, kind)| joins::read(node, kind.as_deref(), diagnostics)).collect();
    let owners: Vec<_> =
        flow.nodes.iter().zip(&types).map(|(node, kind)| OwnerNames::new(node, kind.as_deref())).collect();
    let (calls, schemas) = (Calls::new(&flow.name, catalog, context), Schemas::default());
    let known_input = KnownInput::of(flow);
    let lowering = Lowering {
        flow,
        shape: &shape,
        types: &types,
        owners: &owners,
        known_input: &known_input,
        flow_input: flow.input.map(Tree::json).unwrap_or_default(),
        context,
        calls: &calls,
        schemas: &schemas,
    };
    lowering.check_joins(&joins, diagnostics);
    lowering.check_aliases(diagnostics);
    if let Some(schema) = flow.input_schema {
        schema_check::check_defaults(schema, flow.input, diagnostics);
        flow.triggers.iter().for_each(|_| triggers::check_schema(schema, diagnostics));
    }
    let triggers =
        flow.triggers.map(|tree| triggers::read(tree, Some(&flow.name), context, diagnostics)).unwrap_or_default();
    flow.triggers.iter().for_each(|tree| triggers::check_labels(&triggers, &flow.labels, tree, diagnostics));
    let mut nodes = Vec::new();
    for (index, join) in joins.iter().enumerate() {
        nodes.extend(lowering.node(index, *join, diagnostics));
    }
    let rests = joins::rests(flow, &shape, &joins, diagnostics);
    grants::check_defaults(&flow.defaults, &nodes, context, diagnostics);
    let edges = lowering.edges(diagnostics);
    let bodies = lowering.bodies(diagnostics);
    let cycles = shape.cycles.lower(shape.links(), &shape.scope_of);
    let view = lowering.resolver_in_scope(0, Visible::All, false, None);
    answers::check(flow, &shape, &types, &triggers, diagnostics);
    let outputs = flow.outputs.map(|tree| {
        let compiled = input::compile(tree, diagnostics);
        with_references(compiled, &view, diagnostics)
    });
    let probed = diagnostics
        .compile_probe(None, |text, found| with_references(input::compile_probe(text, false, found), &view, found));
    let outputs = probed.or(outputs);
    shape.cycles.check_ways(flow, diagnostics);
    if diagnostics.has_errors() || nodes.len() != flow.nodes.len() {
        return None;
    }
    flow.vars.iter().for_each(|vars| vars.warn_of_unused(diagnostics));
    for (join, rest) in rests {
        for node in rest {
            nodes[node].cancelled_by.push(NodeIx(join as u32));
            nodes[join].cancels.push(NodeIx(node as u32));
        }
    }
    Some(Graph {
        name: flow.name.as_str().into(),
        version: flow.version.map(Tree::json),
        description: flow.description.clone(),
        input: flow.input.map_or_else(|| Json::object::<&str>([]), Tree::json),
        input_schema: flow.input_schema.map(|tree| tree.json().to_serde()),
        outputs,
        strict: flow.strict,
        triggers,
        run_labels: flow.labels.clone(),
        policy: flow.policy.clone(),
        nodes,
        edges,
        bodies,
        cycles,
        views: shape.cycles.take_views(),
        labels: Default::default(),
        names: Names::default(),
    })
}

fn with_references(compiled: Compiled, view: &NameResolver<'_>, diagnostics: &mut Diagnostics<'_>) -> Bound<Binding> {
    let mut references: Vec<Reference> = Vec::new();
    for read in &compiled.reads {
        let view = NameResolver { own: view.own.filter(|_| read.rebind), ..*view };
        for reference in view.resolve(read, diagnostics) {
            let merged = references.iter_mut().find_map(|known| match (known, &reference) {
                (Reference::Nodes(known), Reference::Nodes(more)) => {
                    known.extend(more.iter().cloned());
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
    Bound { expr: compiled.binding, references, names: Names::default() }
}

struct Lowering<'a> {
    flow: &'a RawFlow<'a>,
    shape: &'a Shape,
    types: &'a [Option<Arc<NodeType>>],
    owners: &'a [OwnerNames],
    known_input: &'a KnownInput,
    /// The flow's default input.
    flow_input: Json,
    context: &'a dyn CheckContext,
    calls: &'a Calls<'a>,
    schemas: &'a Schemas,
}

impl<'a> Lowering<'a> {
    fn resolver_in_scope(&self, scope: usize, visible: Visible, inbound: bool, own: Option<usize>) -> NameResolver<'a> {
        let Lowering { flow, shape, owners, types, known_input, .. } = *self;
        NameResolver { flow, shape, owners, types, known_input, scope, visible, inbound, own }
    }

    fn resolver_at_node(&self, node: usize) -> NameResolver<'a> {
        if let Some(undone) = self.shape.undos.of[node] {
            return self.resolver_in_scope(self.shape.scope_of[undone], Visible::Undone(undone), false, None);
        }
        self.resolver_in_scope(self.shape.scope_of[node], Visible::Before(node), true, Some(node))
    }

    fn node(&self, index: usize, join: Join, diagnostics: &mut Diagnostics<'_>) -> Option<Node> {
        let raw = &self.flow.nodes[index];
        let view = self.resolver_at_node(index);
        let kind = self.types[index].as_ref();
        let marks = kind.map(|kind| kind.marks.as_slice()).unwrap_or_default();
        let input = self.input(raw, kind.map(Arc::as_ref), diagnostics);
        let rebinds = marks.iter().any(|mark| mark.rebind);
        let input = with_references(input, &view, diagnostics);
        let probed = diagnostics.compile_probe(Some(&raw.id), |text, found| {
            with_references(input::compile_probe(text, rebinds, found), &view, found)
        });
        let config = match raw.config {
            Some(tree) => {
                if let Some(kind) = kind {
                    self.schemas.check(tree, (kind, raw.type_span), Part::Config, diagnostics);
                }
                with_references(input::compile(tree, diagnostics), &view, diagnostics)
            }
            None => Bound {
                expr: Binding::literal(Json::object::<&str>([])),
                references: Vec::new(),
                names: Names::default(),
            },
        };
        let when = raw.when.and_then(|tree| {
            let (expr, read) = input::compile_condition(tree, diagnostics);
            let references = NameResolver { own: None, ..view }.resolve(&read, diagnostics);
            let expr = expr?;
            input::warn_of_constant(tree, &expr, false, diagnostics);
            Some(Bound { expr, references, names: Names::default() })
        });
        let kind = kind?;
        self.check_body(index, kind, diagnostics);
        raw.own_policy.iter().for_each(|policy| policy::check_codes(policy, kind, diagnostics));
        raw.own_policy.iter().for_each(|policy| policy::check_timeout(policy, kind, diagnostics));
        let url = grants::url(raw, kind, &input.expr, &self.flow_input);
        let defaults = &self.flow.defaults;
        let (grants, granted) = grants::read(raw, kind, (url.as_ref(), defaults), self.context, diagnostics);
        let scope = self.shape.scope_of[index];
        let edges = |edges: &[usize]| edges.iter().map(|edge| EdgeIx(*edge as u32)).collect();
        Some(Node {
            id: raw.id.as_str().into(),
            node_type: kind.clone(),
            body_of: BodyIx(scope as u32),
            slot: self.shape.slot[index] as u32,
            input: probed.unwrap_or(input),
            config,
            when,
            join,
            cancels: Vec::new(),
            cancelled_by: Vec::new(),
            policy: node_limits::policy(raw, kind, defaults, self.context, diagnostics),
            undo: self.shape.undos.by[index].map(|undo| NodeIx(undo as u32)),
            undo_of: self.shape.undos.of[index].map(|undone| NodeIx(undone as u32)),
            grants: Arc::new(grants),
            body: self.shape.owned[index].map(|scope| BodyIx(scope as u32)),
            incoming: edges(&self.shape.incoming[index]),
            outgoing: edges(&self.shape.outgoing[index]),
            on_cycle: self.shape.on_cycle(index),
            cycle: self.shape.cycles.innermost(index).map(|cycle| CycleIx(cycle as u32)),
            rebinds,
            collects: collects(raw, kind, diagnostics),
            labels: defaults.label(raw.own_policy, &granted).into_iter().collect(),
        })
    }

    /// Compiles the input, including the prompt file, and checks it against the type's schema.
    fn input(&self, raw: &RawNode<'_>, kind: Option<&NodeType>, diagnostics: &mut Diagnostics<'_>) -> Compiled {
        let empty = Tree { span: raw.id_span, kind: Kind::Map(Vec::new()) };
        let prompt = raw.prompt_file.as_ref().and_then(|(path, span)| self.prompt(raw, path, *span, diagnostics));
        // Without its prompt the input matches no schema; the missing prompt already has an error.
        let unread = raw.prompt_file.is_some() && prompt.is_none();
        let with_prompt = prompt.map(|prompt| {
            let mut entries =
                raw.input.map(|tree| entries(tree, "the input", diagnostics).to_vec()).unwrap_or_default();
            entries.push(prompt);
            Tree { span: raw.input.map_or(raw.id_span, |tree| tree.span), kind: Kind::Map(entries) }
        });
        let tree = with_prompt.as_ref().or(raw.input).unwrap_or(&empty);
        let whole = tree.text().is_some_and(literal::is_one_binding);
        if !whole && !matches!(tree.kind, Kind::Map(_)) {
            not_a_map(tree, "the input", diagnostics);
        } else if let Some(kind) = kind.filter(|_| !whole && !unread) {
            self.schemas.check(tree, (kind, raw.type_span), Part::Input, diagnostics);
            self.check_flow_name(raw, kind, diagnostics);
        }
        input::compile_marked(
            tree,
            kind.map(|kind| kind.marks.as_slice()).unwrap_or_default(),
            self.context,
            diagnostics,
        )
    }

    fn prompt(&self, raw: &RawNode<'_>, path: &str, span: Span, diagnostics: &mut Diagnostics<'_>) -> Option<Entry> {
        if raw.input.is_some_and(|input| input.member("prompt").is_some()) {
            let help = Some("remove one of them".into());
            diagnostics.error("two_prompts", span, "the node has both `promptFile` and `input.prompt`", help);
            return None;
        }
        match self.context.read(path) {
            Ok(text) => {
                let value = Tree { span, kind: Kind::Scalar(Json::from(text)) };
                Some(Entry { key: "prompt".into(), key_span: span, value })
            }
            Err(error) => {
                let message = format!("cannot read `{}`: {error}", for_message(path));
                diagnostics.error(
                    "unreadable_file",
                    span,
                    message,
                    Some("the path is relative to the flow's file".into()),
                );
                None
            }
        }
    }

    /// Reports a literal name of a called flow if no flow has this name, or if the calls that follow from it are
    /// recursive or nested too deeply.
    fn check_flow_name(&self, raw: &RawNode<'_>, kind: &NodeType, diagnostics: &mut Diagnostics<'_>) {
        let Some((name, Some(tree))) = input::marked_text(raw.input, kind, MarkKind::Flow) else { return };
        if name.contains("{{") {
            return;
        }
        match self.calls.check(&name) {
            None => {
                if let Some(why) = self.calls.unusable(&name) {
                    let message = format!("the flow `{}` cannot run: {why}", for_message(&name));
                    diagnostics.warning("unusable_flow", tree.span, message, None);
                }
            }
            Some(CallError::Unknown) => {
                let meant = diagnostics.flow_names.did_you_mean(&name, Some(&self.flow.name), self.context);
                let help = meant.or_else(|| Some(self.context.advise_flow(&for_message(&name))));
                diagnostics.error("unknown_flow", tree.span, format!("unknown flow `{}`", for_message(&name)), help);
            }
            Some(CallError::Recursion(chain)) => {
                let message = format!("the flow calls itself: {}", shown_chain(&chain));
                diagnostics.error(
                    "flow_recursion",
                    tree.span,
                    message,
                    Some("use `control.loop` to repeat nodes".into()),
                );
            }
            Some(CallError::TooDeep(chain)) => {
                let message = format!(
                    "the calls between flows are nested more than {} levels deep: {}",
                    limits::FLOW_DEPTH,
                    shown_chain(&chain)
                );
                diagnostics.error("flows_too_deep", tree.span, message, None);
            }
        }
    }

    /// Checks the alias of each owner, the name under which its body reads the current item. The alias must be
    /// literal and valid. It must not be the id of the owner, or of a node that expressions in the body may name.
    fn check_aliases(&self, diagnostics: &mut Diagnostics<'_>) {
        for (index, raw) in self.flow.nodes.iter().enumerate() {
            let (Some(alias), Some(scope)) = (&self.owners[index].alias, self.shape.owned[index]) else { continue };
            let kind = self.types[index].as_deref();
            let found = kind.and_then(|kind| input::marked_text(raw.input, kind, MarkKind::Alias));
            let span = found.and_then(|(_, tree)| tree).map_or(raw.id_span, |tree| tree.span);
            let view = self.resolver_in_scope(scope, Visible::All, false, None);
            let taken = self.shape.by_id.get(&**alias).is_some_and(|node| *node == index || view.is_visible(*node));
            let (code, message) = if alias.contains("{{") {
                ("literal_needed", "the name of the item must be literal".to_owned())
            } else if !is_name(alias) {
                ("bad_value", format!("`{}` is not a valid name for the item", for_message(alias)))
            } else if taken {
                ("alias_taken", format!("`{alias}` is the name of a node, so it cannot be the item of `{}`", raw.id))
            } else {
                continue;
            };
            let help = Some("choose another name of letters, digits and `_`".into());
            diagnostics.error(code, span, message, help);
        }
    }

    fn check_body(&self, index: usize, kind: &NodeType, diagnostics: &mut Diagnostics<'_>) {
        let raw = &self.flow.nodes[index];
        let has_body = !matches!(raw.body, RawBody::None);
        if has_body && !kind.has(Trait::Body) {
            let message = format!("`{}` does not run a body", kind.name);
            let fields = kind.input.get("properties").and_then(serde_json::Value::as_object);
            let fields = fields.into_iter().flat_map(|fields| fields.keys().map(String::as_str));
            let help = key_hints::for_content("body", fields).map_or_else(
                || "use `control.scope`, `control.foreach` or `control.loop`".to_owned(),
                |content| format!("write {content}, inside `input`"),
            );
            diagnostics.error("no_body_here", raw.body_span, message, Some(help));
        }
        if !has_body && kind.body.as_ref().is_some_and(|body| body.required) {
            let message = format!("`{}` needs a body", kind.name);
            diagnostics.error("body_missing", raw.id_span, message, Some("add `body: [ids of nodes]`".into()));
        }
    }

    fn check_joins(&self, joins: &[Join], diagnostics: &mut Diagnostics<'_>) {
        for (index, raw) in self.flow.nodes.iter().enumerate() {
            let mut ends = self.shape.outgoing[index].iter().map(|edge| &self.flow.edges[self.shape.edges[*edge].0]);
            let error = ends.find(|edge| edge.on == On::Error);
            if let Some(edge) = error.filter(|_| raw.policy.continue_on_error) {
                let message = format!("`{}` has `continueOnError`, so this edge never fires", raw.id);
                diagnostics.error("error_edge_never_fires", edge.span, message, Some("remove one of them".into()));
            }
        }
        for (node, found) in joins::find_exclusions(self.flow, self.shape, joins) {
            let id = |node: usize| &self.flow.nodes[node].id;
            let branches = match found.sources {
                (a, b) if a == b => format!("two of them, from `{}`,", id(a)),
                (a, b) => format!("those from `{}` and `{}`", id(a), id(b)),
            };
            let (one, other) = found.needs;
            let message = format!(
                "`{}` waits for all of its edges, but {branches} exclude each other: one fires if {one}, the other if {other}",
                id(node)
            );
            let help = "use `join: settled`, or `mode: any` for a merge";
            diagnostics.warning("impossible_join", self.flow.nodes[node].id_span, message, Some(help.into()));
        }
    }

    fn edges(&self, diagnostics: &mut Diagnostics<'_>) -> Vec<Edge> {
        let mut slots = vec![0; self.shape.scopes.len()];
        let mut edges = Vec::new();
        for (index, (raw, from, to)) in self.shape.edges.iter().enumerate() {
            let scope = self.shape.scope_of[*from];
            let when = self.flow.edges[*raw].when.as_deref().and_then(|tree| {
                let (expr, read) = input::compile_condition(tree, diagnostics);
                let references =
                    self.resolver_in_scope(scope, Visible::Through(*from), true, None).resolve(&read, diagnostics);
                let expr = expr?;
                if let Some(constant) = input::constant_value(tree, &expr).filter(|_| !self.flow.is_agentic) {
                    self.check_constant(tree, constant, *from, diagnostics);
                }
                Some(Bound { expr, references, names: Names::default() })
            });
            let ix = |node: &usize| NodeIx(*node as u32);
            let leaves = self.shape.cycles.left_between(*from, *to).map(|cycle| CycleIx(cycle as u32));
            let (written, goes_back) = (&self.flow.edges[*raw], self.shape.goes_back(index));
            let (on, orders_only, slot) = (written.on, written.orders_only, slots[scope]);
            edges.push(Edge { from: ix(from), to: ix(to), on, when, goes_back, orders_only, leaves, slot });
            slots[scope] += 1;
        }
        edges
    }

    /// Warns of an edge whose condition reads nothing: it always fires, or never.
    fn check_constant(&self, when: &Tree, constant: bool, from: usize, diagnostics: &mut Diagnostics<'_>) {
        let id = &self.flow.nodes[from].id;
        let has = |member: &str| {
            let output = self.types[from].as_ref().map(|kind| &kind.output);
            output.and_then(|output| output.get("properties")?.get(member)).is_some()
        };
        let help = match constant {
            _ if !input::is_bool(when) => input::constant_condition_help(when),
            _ if has("condition") => {
                format!("write `when: {{ equals: {{ var: {id}.condition, value: {constant} }} }}`")
            }
            _ if has("route") => format!("write `when: {{ equals: {{ var: {id}.route, value: … }} }}`"),
            true => "remove `when`, or name a value to test".to_owned(),
            false => "remove the edge, or name a value to test".to_owned(),
        };
        let fires = if constant { "always fires" } else { "never fires" };
        let message = format!("`when` is always {constant}, so the edge {fires}, regardless of the output of `{id}`");
        diagnostics.warning("constant_condition", when.span, message, Some(help));
    }

    fn bodies(&self, diagnostics: &mut Diagnostics<'_>) -> Vec<Body> {
        let shape = self.shape;
        let mut edges = vec![Vec::new(); shape.scopes.len()];
        for (edge, (_, from, _)) in shape.edges.iter().enumerate() {
            edges[shape.scope_of[*from]].push(EdgeIx(edge as u32));
        }
        let body = |(index, scope): (usize, &crate::shape::Scope)| {
            let ix = |node: &usize| NodeIx(*node as u32);
            let in_order = || scope.nodes.iter().filter(|node| shape.undos.of[**node].is_none());
            let is_start = |node: &&usize| shape.incoming[**node].iter().all(|edge| shape.goes_back(*edge));
            let sinks: Vec<_> = shape.sinks(index).map(|node| ix(&node)).collect();
            let (mut starts, mut absent) = (in_order().filter(is_start).map(ix).collect::<Vec<_>>(), Vec::new());
            if let (0, Some(begin)) = (index, &self.flow.starts) {
                absent = std::mem::replace(&mut starts, begin.iter().map(ix).collect());
                absent.retain(|node| !starts.contains(node));
            }
            let output = scope.owner.and_then(|owner| self.flow.nodes[owner].body_output);
            let outcome = match (output, sinks.as_slice()) {
                (Some(tree), _) => {
                    let compiled = input::compile(tree, diagnostics);
                    let view = self.resolver_in_scope(index, Visible::All, false, None);
                    Outcome::Output(with_references(compiled, &view, diagnostics))
                }
                (None, [sink]) => Outcome::Sink(*sink),
                (None, _) => Outcome::Sinks(sinks),
            };
            Body {
                owner: scope.owner.map(|owner| NodeIx(owner as u32)),
                nodes: in_order().map(ix).collect(),
                edges: std::mem::take(&mut edges[index]),
                starts,
                absent,
                cycles: (0..shape.cycles.list.len() as u32)
                    .filter(|cycle| shape.scope_of[shape.cycles.list[*cycle as usize].entry] == index)
                    .map(CycleIx)
                    .collect(),
                outcome,
            }
        };
        shape.scopes.iter().enumerate().map(body).collect()
    }
}

fn shown_chain(chain: &[String]) -> String {
    chain.iter().map(|name| for_message(name)).collect::<Vec<_>>().join(" -> ")
}
