//! A flow, or one of its fragments, as far as its text can be read: nodes, edges, scopes, and every place that names a
//! node. The steps of other dialects are read as nodes, too.

mod steps;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ops::Range,
    sync::Arc,
};

use flowcell_contract::{Catalog, Lookup, MarkKind, NodeType, TypeRef};
use flowcell_flow::limits::BODY_DEPTH;
use serde_json::{Value as Json, json};

use crate::{
    dialect::Dialect,
    reading::{Kind, Member, Value},
    scalar::Scalar,
    schemas::to_json,
};

/// A flow, or one of its fragments.
pub(crate) struct Flow<'v> {
    pub(crate) file: &'v str,
    pub(crate) root: &'v Value,
    pub(crate) dialect: Dialect,
    /// The fragment; `None` for the flow itself.
    pub(crate) fragment: Option<&'v Value>,
    pub(crate) nodes: Vec<Node<'v>>,
    pub(crate) edges: Vec<Edge<'v>>,
    /// Every place outside of `{{ }}` that names a node, and in flows of steps also other names.
    pub(crate) uses: Vec<IdUse>,
    by_id: HashMap<String, usize>,
    incoming: Vec<Vec<usize>>,
    outgoing: Vec<Vec<usize>>,
    /// The edges that lead back to an ancestor of their source.
    back: HashSet<usize>,
}

/// A node.
pub(crate) struct Node<'v> {
    pub(crate) id: String,
    pub(crate) id_range: Range<usize>,
    pub(crate) value: &'v Value,
    pub(crate) kind: Option<Arc<NodeType>>,
    /// The node in whose body this one stands.
    pub(crate) owner: Option<usize>,
    /// The node that this one undoes.
    pub(crate) undoes: Option<usize>,
    /// The name of the item in the body of the node.
    pub(crate) alias: Option<String>,
}

/// An edge between two nodes of the flow.
pub(crate) struct Edge<'v> {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// True if the edge can fire after a failure.
    pub(crate) after_failure: bool,
    /// True if the edge can fire after a success.
    pub(crate) after_success: bool,
    /// True if the edge only orders its nodes: `inbound: false`.
    pub(crate) orders_only: bool,
    /// True if the edge may be left out although its source has succeeded: it has a condition or waits for a failure, or
    /// its source may be skipped.
    pub(crate) is_conditional: bool,
    /// The label of an edge in text.
    pub(crate) label: Option<String>,
    /// The map of the edge; `None` for an edge in text, and for `after`.
    pub(crate) map: Option<&'v Value>,
}

/// A place that names a node, or another value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IdUse {
    pub(crate) id: String,
    pub(crate) range: Range<usize>,
    pub(crate) kind: NameKind,
    /// True for the place that introduces the name, such as the `id` of the node itself.
    pub(crate) is_definition: bool,
}

impl IdUse {
    /// Returns true if both places name the same value.
    pub(crate) fn is_same(&self, other: &IdUse) -> bool {
        self.kind == other.kind && self.id == other.id
    }
}

/// The kind of a name. Names of different kinds may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    /// A node or a step.
    Node,
    /// The result of a step, which a list of tools reads as `$ctx.name`.
    Result,
    /// An input, which a list of tools reads as `$inputs.name`.
    Input,
    /// An argument, which an agentic flow reads as `${args.name}`.
    Argument,
}

/// Returns the fragments of a text by their names.
fn fragments(root: &Value) -> &[Member] {
    root.member("fragments").map(Value::members).unwrap_or_default()
}

/// The parts of an edge in text, with their bytes.
pub(crate) struct EdgeText {
    pub(crate) ids: Vec<Range<usize>>,
    /// The label behind the colon.
    pub(crate) label: Option<Range<usize>>,
}

impl EdgeText {
    pub(crate) fn read(text: &str) -> EdgeText {
        let trimmed = |range: Range<usize>| {
            let part = &text[range.clone()];
            let start = range.start + (part.len() - part.trim_start().len());
            start..start + part.trim().len()
        };
        let colon = text.find(':');
        let end = colon.unwrap_or(text.len());
        let (mut ids, mut start) = (Vec::new(), 0);
        for (at, arrow) in text[..end].match_indices("->") {
            ids.push(trimmed(start..at));
            start = at + arrow.len();
        }
        ids.push(trimmed(start..end));
        EdgeText { ids, label: colon.map(|colon| trimmed(colon + 1..text.len())) }
    }
}

/// The ends of an edge as they are written.
struct RawEdge<'v> {
    from: String,
    to: String,
    after_failure: bool,
    label: Option<String>,
    map: Option<&'v Value>,
}

impl<'v> Flow<'v> {
    /// Reads the flow itself, without its fragments.
    pub(crate) fn new(file: &'v str, root: &'v Value, catalog: &Catalog) -> Flow<'v> {
        Flow::of(file, root, None, catalog)
    }

    /// Reads the fragment around a byte, or else the flow itself.
    pub(crate) fn at(file: &'v str, root: &'v Value, catalog: &Catalog, at: usize) -> Flow<'v> {
        let contains = |member: &&Member| member.value.range.start <= at && at <= member.value.range.end;
        Flow::of(file, root, fragments(root).iter().find(contains).map(|member| &member.value), catalog)
    }

    /// Reads the flow itself, and then each of its fragments.
    pub(crate) fn all(file: &'v str, root: &'v Value, catalog: &Catalog) -> impl Iterator<Item = Flow<'v>> {
        let graphs = std::iter::once(None).chain(fragments(root).iter().map(|member| Some(&member.value)));
        graphs.map(move |fragment| Flow::of(file, root, fragment, catalog))
    }

    fn of(file: &'v str, root: &'v Value, fragment: Option<&'v Value>, catalog: &Catalog) -> Flow<'v> {
        let mut flow = Flow {
            file,
            root,
            dialect: Dialect::of(root),
            fragment,
            nodes: Vec::new(),
            edges: Vec::new(),
            uses: Vec::new(),
            by_id: HashMap::new(),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            back: HashSet::new(),
        };
        let mut edges = Vec::new();
        match flow.dialect {
            Dialect::Graph => flow.read_graph(flow.graph(), None, catalog, &mut edges),
            Dialect::Agentic | Dialect::Steps => flow.read_steps(catalog, &mut edges),
        }
        for (index, node) in flow.nodes.iter().enumerate() {
            flow.by_id.entry(node.id.clone()).or_insert(index);
        }
        flow.read_links();
        flow.edges = edges.into_iter().filter_map(|edge| flow.edge(edge)).collect();
        flow.incoming = vec![Vec::new(); flow.nodes.len()];
        flow.outgoing = vec![Vec::new(); flow.nodes.len()];
        for (index, edge) in flow.edges.iter().enumerate() {
            flow.incoming[edge.to].push(index);
            flow.outgoing[edge.from].push(index);
        }
        flow.back = flow.find_back_edges();
        flow
    }

    /// Returns an edge as it is written with the indices of its nodes; `None` if one of them is unknown.
    fn edge(&self, RawEdge { from, to, after_failure, label, map }: RawEdge<'v>) -> Option<Edge<'v>> {
        let (from, to) = (self.find(&from)?, self.find(&to)?);
        let is = |name: &str, text: &str| {
            self.text(map.and_then(|map| map.member(name))).is_some_and(|(found, _)| found == text)
        };
        let has_when = |value: &Value| value.member("when").is_some();
        let after_success = !is("on", "error") && label.as_deref() != Some("error");
        let is_conditional = !after_success
            || label.as_deref().is_some_and(|label| !matches!(label, "success" | "end"))
            || map.is_some_and(has_when)
            || has_when(self.nodes[from].value);
        let orders_only = is("inbound", "false");
        Some(Edge { from, to, after_failure, after_success, orders_only, is_conditional, label, map })
    }

    /// Returns true if a byte stands in this graph, and not in another one.
    pub(crate) fn contains(&self, at: usize) -> bool {
        let touches = |value: &Value| value.range.start <= at && at <= value.range.end;
        match self.fragment {
            Some(fragment) => touches(fragment),
            None => !self.root.member("fragments").is_some_and(touches),
        }
    }

    /// Returns the map with the nodes and edges.
    pub(crate) fn graph(&self) -> &'v Value {
        self.fragment.unwrap_or(self.root)
    }

    /// Returns the member `flow` of the text.
    pub(crate) fn head(&self) -> Option<&'v Value> {
        self.root.member("flow")
    }

    /// Returns the names of the fragments, without the one that is read.
    pub(crate) fn fragment_names(&self) -> impl Iterator<Item = &'v str> {
        let is_other = |member: &&Member| self.fragment.is_none_or(|own| !std::ptr::eq(own, &member.value));
        fragments(self.root).iter().filter(is_other).map(|member| member.name.as_str())
    }

    /// Returns the fragment that a node uses.
    pub(crate) fn used_fragment(&self, node: usize) -> Option<&'v Member> {
        let (name, _) = self.text(self.nodes[node].value.member("use"))?;
        fragments(self.root).iter().find(|member| member.name == name)
    }

    /// Returns the schema of the parameters of the fragment that a node uses.
    pub(crate) fn arguments(&self, node: usize) -> Option<Json> {
        Some(self.parameters(&self.used_fragment(node)?.value))
    }

    /// Returns the schema of the parameters of a fragment.
    pub(crate) fn parameters(&self, fragment: &Value) -> Json {
        let params = fragment.member("params").map(Value::members).unwrap_or_default();
        let named = |param: &Member| Some(param.name.clone()).filter(|name| !name.is_empty());
        let schemas: serde_json::Map<_, _> = params
            .iter()
            .filter_map(|param| Some((named(param)?, to_json(self.file, &param.value))))
            .map(|(name, schema)| (name, if schema.is_object() { schema } else { json!({}) }))
            .collect();
        let is_required = |param: &&Member| param.value.member("default").is_none();
        let required: Vec<_> = params.iter().filter(is_required).filter_map(named).collect();
        json!({ "type": "object", "properties": schemas, "required": required, "additionalProperties": false })
    }

    /// Returns the text of a member that is a scalar, and its bytes.
    pub(crate) fn text(&self, value: Option<&Value>) -> Option<(String, Range<usize>)> {
        let scalar = Scalar::new(self.file, value?)?;
        let range = scalar.range_to_file(&(0..scalar.text.len()));
        Some((scalar.text, range))
    }

    fn use_id(&mut self, value: Option<&Value>, is_definition: bool) -> Option<String> {
        self.add_use(value, NameKind::Node, is_definition)
    }

    fn add_use(&mut self, value: Option<&Value>, kind: NameKind, is_definition: bool) -> Option<String> {
        let (id, range) = self.text(value)?;
        self.uses.push(IdUse { id: id.clone(), range, kind, is_definition });
        Some(id)
    }

    fn read_graph(&mut self, graph: &'v Value, owner: Option<usize>, catalog: &Catalog, edges: &mut Vec<RawEdge<'v>>) {
        for value in graph.member("nodes").map(Value::items).unwrap_or_default() {
            let id = self.use_id(value.member("id"), true).unwrap_or_default();
            let id_range =
                self.text(value.member("id")).map_or(value.range.start..value.range.start, |(_, range)| range);
            let name = self.text(value.member("type")).map(|(name, _)| name).unwrap_or_default();
            let kind = match catalog.lookup(&TypeRef::parse(&name)) {
                Lookup::Found(kind) => Some(kind),
                _ => None,
            };
            let after = value.member("after");
            for before in after
                .map(|after| if after.items().is_empty() { std::slice::from_ref(after) } else { after.items() })
                .unwrap_or_default()
            {
                if let Some(from) = self.use_id(Some(before), false) {
                    edges.push(RawEdge { from, to: id.clone(), after_failure: false, label: None, map: None });
                }
            }
            let alias = self.alias(value, kind.as_deref());
            let index = self.nodes.len();
            self.nodes.push(Node { id, id_range, value, kind, owner, undoes: None, alias });
            if let Some(body) = value.member("body").filter(|body| matches!(body.kind, Kind::Map(_))) {
                self.read_graph(body, Some(index), catalog, edges);
            }
        }
        for item in graph.member("edges").map(Value::items).unwrap_or_default() {
            self.read_edge(item, edges);
        }
    }

    fn read_edge(&mut self, item: &'v Value, edges: &mut Vec<RawEdge<'v>>) {
        if let Some(scalar) = Scalar::new(self.file, item) {
            let parts = EdgeText::read(&scalar.text);
            for range in &parts.ids {
                let id = scalar.text[range.clone()].to_owned();
                let range = scalar.range_to_file(range);
                self.uses.push(IdUse { id, range, kind: NameKind::Node, is_definition: false });
            }
            let label = parts.label.map(|label| &scalar.text[label]);
            for pair in parts.ids.windows(2) {
                let [from, to] = [&pair[0], &pair[1]].map(|range| scalar.text[range.clone()].to_owned());
                let after_failure = matches!(label, Some("error" | "end"));
                edges.push(RawEdge { from, to, after_failure, label: label.map(str::to_owned), map: None });
            }
            return;
        }
        let ends = [self.use_id(item.member("from"), false), self.use_id(item.member("to"), false)];
        let on = self.text(item.member("on")).map(|(on, _)| on).filter(|on| on != "success");
        if let [Some(from), Some(to)] = ends {
            edges.push(RawEdge { from, to, after_failure: on.is_some(), label: None, map: Some(item) });
        }
    }

    /// Reads the nodes of bodies that are lists, and the nodes that undo others.
    fn read_links(&mut self) {
        let all = 0..self.nodes.len();
        for index in all.clone() {
            let value = self.nodes[index].value;
            for item in value.member("body").map(Value::items).unwrap_or_default() {
                let id = self.use_id(Some(item), false);
                if let Some(inner) = id.and_then(|id| self.by_id.get(&id).copied()).filter(|inner| *inner != index) {
                    self.nodes[inner].owner = Some(index);
                }
            }
        }
        for index in all {
            let value = self.nodes[index].value;
            let undo = self.use_id(value.member("undo"), false);
            if let Some(undo) = undo.and_then(|id| self.by_id.get(&id).copied()) {
                self.nodes[undo].undoes = Some(index);
                // The list of a body may name it, too.
                self.nodes[undo].owner = self.nodes[undo].owner.or(self.nodes[index].owner);
            }
        }
    }

    /// Returns the name of the item in the body of a node.
    fn alias(&self, node: &Value, kind: Option<&NodeType>) -> Option<String> {
        let mark = kind?.marks.iter().find(|mark| mark.kind == MarkKind::Alias)?;
        let field = mark.path.first()?;
        let written = node.member("input").and_then(|input| self.text(input.member(field)));
        let default = || kind?.input.get("properties")?.get(&**field)?.get("default")?.as_str().map(str::to_owned);
        written.map(|(name, _)| name).or_else(default)
    }

    fn find_back_edges(&self) -> HashSet<usize> {
        let mut back = HashSet::new();
        // 1: on the way, 2: done.
        let mut state = vec![0u8; self.nodes.len()];
        let starts = (0..self.nodes.len()).filter(|node| self.incoming[*node].is_empty()).chain(0..self.nodes.len());
        for start in starts.collect::<Vec<_>>() {
            if state[start] != 0 {
                continue;
            }
            state[start] = 1;
            let mut way = vec![(start, 0)];
            while let Some((node, next)) = way.last_mut() {
                let Some(edge) = self.outgoing[*node].get(*next).copied() else {
                    state[*node] = 2;
                    way.pop();
                    continue;
                };
                *next += 1;
                let to = self.edges[edge].to;
                match state[to] {
                    0 => {
                        state[to] = 1;
                        way.push((to, 0));
                    }
                    1 => _ = back.insert(edge),
                    _ => {}
                }
            }
        }
        back
    }

    pub(crate) fn find(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// Returns the edges to a node.
    pub(crate) fn incoming(&self, node: usize) -> impl Iterator<Item = &Edge<'v>> {
        self.incoming[node].iter().map(|edge| &self.edges[*edge])
    }

    /// Returns the edges from a node.
    pub(crate) fn outgoing(&self, node: usize) -> impl Iterator<Item = &Edge<'v>> {
        self.outgoing[node].iter().map(|edge| &self.edges[*edge])
    }

    /// Returns the nodes that run before a node in each pass, the nearest first.
    pub(crate) fn ancestors(&self, node: usize) -> Vec<usize> {
        let (mut seen, mut found) = (vec![false; self.nodes.len()], Vec::new());
        seen[node] = true;
        let mut next = VecDeque::from([node]);
        while let Some(at) = next.pop_front() {
            for edge in self.incoming[at].iter().filter(|edge| !self.back.contains(edge)) {
                let from = self.edges[*edge].from;
                if self.nodes[from].owner == self.nodes[node].owner && !std::mem::replace(&mut seen[from], true) {
                    found.push(from);
                    next.push_back(from);
                }
            }
        }
        found
    }

    /// Tells for each node whether a node of its scope runs before it in each pass, or is the node itself.
    pub(crate) fn after(&self, node: usize) -> Vec<bool> {
        let mut seen = vec![false; self.nodes.len()];
        seen[node] = true;
        let mut next = vec![node];
        while let Some(at) = next.pop() {
            for edge in self.outgoing[at].iter().filter(|edge| !self.back.contains(edge)) {
                let to = self.edges[*edge].to;
                if self.nodes[to].owner == self.nodes[node].owner && !std::mem::replace(&mut seen[to], true) {
                    next.push(to);
                }
            }
        }
        seen
    }

    /// Tells for each node whether edges lead to it from a node, or, with `is_reverse`, from it to the node.
    pub(crate) fn reached(&self, node: usize, is_reverse: bool) -> Vec<bool> {
        self.reached_by(&[node], is_reverse, |_| true)
    }

    /// Tells the same for several nodes: whether edges lead to a node from any of them.
    pub(crate) fn reached_from(&self, nodes: &[usize]) -> Vec<bool> {
        self.reached_by(nodes, false, |_| true)
    }

    /// Tells for each node whether edges lead from it to any of several nodes.
    pub(crate) fn reached_to(&self, nodes: &[usize]) -> Vec<bool> {
        self.reached_by(nodes, true, |_| true)
    }

    /// Tells for each node whether edges that cannot be left out lead to it from a node.
    pub(crate) fn reached_in_any_case(&self, node: usize) -> Vec<bool> {
        self.reached_by(&[node], false, |edge| !edge.is_conditional)
    }

    fn reached_by(&self, nodes: &[usize], is_reverse: bool, counts: impl Fn(&Edge<'_>) -> bool) -> Vec<bool> {
        let (mut seen, mut next) = (vec![false; self.nodes.len()], nodes.to_vec());
        nodes.iter().for_each(|node| seen[*node] = true);
        while let Some(at) = next.pop() {
            let links = if is_reverse { &self.incoming[at] } else { &self.outgoing[at] };
            let edges = links.iter().map(|edge| &self.edges[*edge]).filter(|edge| counts(edge));
            let ends = edges.map(|edge| if is_reverse { edge.from } else { edge.to });
            next.extend(ends.filter(|end| !std::mem::replace(&mut seen[*end], true)));
        }
        seen
    }

    /// Returns the owners of the bodies around a scope, the innermost first. `scope` is the owner of the scope. Of more
    /// bodies than a flow may have, returns only the inner ones, and of owners that contain each other each one once.
    pub(crate) fn owners_from(&self, scope: Option<usize>) -> Vec<usize> {
        let (mut found, mut at) = (Vec::new(), scope);
        while let Some(owner) = at.filter(|owner| found.len() < BODY_DEPTH && !found.contains(owner)) {
            found.push(owner);
            at = self.nodes[owner].owner;
        }
        found
    }

    /// Returns the nodes of a scope.
    pub(crate) fn scope(&self, owner: Option<usize>) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(move |node| self.nodes[*node].owner == owner)
    }
}
