//! Gives nodes other ids: in the nodes, edges and expressions that name them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use flowcell_contract::{Catalog, Json, Lookup, MarkKind, NodeType, TypeRef};
use flowcell_expr::{Binding, Condition, Path, apply_edits, rename_nodes};

use crate::{
    input::{self, Locals, OpenMarks, marks_below},
    literal::is_one_binding,
    yaml::{Entry, Kind, Span, Tree, place},
};

/// Gives the nodes of a graph other ids. The graph is a map with `nodes` and `edges`.
pub(crate) struct Renaming<'a> {
    /// The new ids by the old ones.
    ids: &'a HashMap<String, String>,
    catalog: &'a Catalog,
    /// The owners of the bodies around each node, by the ids of the nodes.
    owners: BTreeMap<&'a str, &'a Tree>,
    /// The paths in expressions that name no node of the graph.
    others: RefCell<Vec<(Path, Span)>>,
    /// The paths that name a node of the graph, but cannot be rewritten.
    refused: RefCell<Vec<(Path, Span)>>,
}

/// The names that do not stand for nodes in a value: local names of a field, and items of the owners around it.
type Hidden<'n> = &'n [Arc<str>];

impl<'a> Renaming<'a> {
    /// Prepares to rename the nodes of a graph.
    pub(crate) fn new(graph: &'a Tree, ids: &'a HashMap<String, String>, catalog: &'a Catalog) -> Renaming<'a> {
        let mut owners = BTreeMap::new();
        collect_owners(graph, None, &mut owners);
        Renaming { ids, catalog, owners, others: RefCell::default(), refused: RefCell::default() }
    }

    /// Returns the paths that name no node of the graph, and those that cannot be rewritten.
    pub(crate) fn finish(self) -> [Vec<(Path, Span)>; 2] {
        [self.others.into_inner(), self.refused.into_inner()]
    }

    /// Renames a node and the nodes that it names. Leaves the nodes and edges inside a written body.
    pub(crate) fn node(&self, node: &Tree) -> Tree {
        let id = node.member("id").and_then(Tree::text).unwrap_or_default();
        let hidden = self.items_around(id);
        let kind = self.kind(node);
        let member = |key: &str, value: &Tree| match key {
            "id" | "undo" => self.id(value),
            "after" => self.ids(value),
            "body" if matches!(value.kind, Kind::List(_)) => self.ids(value),
            "when" => self.condition(value, &hidden),
            "config" | "with" => self.value(value, &hidden),
            "bodyOutput" => {
                let item = self.item(node).map(|(name, _)| name.into());
                self.value(value, &hidden.iter().cloned().chain(item).collect::<Vec<_>>())
            }
            "input" => {
                let marks = kind.as_ref().map(|kind| kind.marks.as_slice()).unwrap_or_default();
                let marks: OpenMarks<'_> = marks.iter().map(|mark| (mark, mark.path.as_slice())).collect();
                self.input(value, &marks, (value, &hidden))
            }
            _ => value.clone(),
        };
        with_members(node, member)
    }

    /// Renames the nodes of an item of a list `edges`.
    pub(crate) fn edge(&self, edge: &Tree) -> Tree {
        if let Some(text) = edge.text() {
            let (chain, label) = text.split_at(text.find(':').unwrap_or(text.len()));
            let ids: Vec<_> = chain.split("->").map(|id| self.new_id(id.trim()).unwrap_or(id.trim())).collect();
            return Tree { span: edge.span, kind: Kind::Scalar(Json::from(ids.join(" -> ") + label)) };
        }
        let from = edge.member("from").and_then(Tree::text).unwrap_or_default();
        let hidden = self.items_around(from);
        let member = |key: &str, value: &Tree| match key {
            "from" | "to" => self.id(value),
            "when" => self.condition(value, &hidden),
            _ => value.clone(),
        };
        with_members(edge, member)
    }

    /// Renames the nodes in a value with bindings.
    pub(crate) fn value(&self, tree: &Tree, hidden: Hidden<'_>) -> Tree {
        let value = tree.json();
        self.rewrite(tree, &value, Binding::reads_of(&value).paths, hidden)
    }

    fn condition(&self, tree: &Tree, hidden: Hidden<'_>) -> Tree {
        let value = tree.json();
        self.rewrite(tree, &value, Condition::reads_of(&value).paths, hidden)
    }

    /// Renames the nodes in an input or a part of it. `whole` is the whole input.
    fn input(&self, tree: &Tree, marks: &OpenMarks<'_>, (whole, hidden): (&Tree, Hidden<'_>)) -> Tree {
        let is_here = |mark: MarkKind| mark != MarkKind::Script || !tree.text().is_some_and(is_one_binding);
        let here = marks.iter().filter(|(mark, rest)| rest.is_empty() && is_here(mark.kind)).map(|(mark, _)| *mark);
        for mark in here {
            let names = || hidden.iter().cloned().chain(Locals::new(mark, whole).names).collect::<Vec<_>>();
            match mark.kind {
                MarkKind::Script | MarkKind::File => return tree.clone(),
                MarkKind::Condition => return self.condition(tree, &names()),
                MarkKind::Template => return self.value(tree, &names()),
                _ => {}
            }
        }
        match &tree.kind {
            Kind::Map(_) if !marks.is_empty() => {
                with_members(tree, |key, value| self.input(value, &marks_below(marks, key), (whole, hidden)))
            }
            Kind::List(items) if !marks.is_empty() => {
                let below = marks_below(marks, "*");
                let items = items.iter().map(|item| self.input(item, &below, (whole, hidden))).collect();
                Tree { span: tree.span, kind: Kind::List(items) }
            }
            _ => self.value(tree, hidden),
        }
    }

    fn rewrite(&self, tree: &Tree, value: &Json, paths: Vec<flowcell_expr::PathUse>, hidden: Hidden<'_>) -> Tree {
        let is_hidden = |name: &str| hidden.iter().any(|local| &**local == name);
        let paths: Vec<_> = paths.into_iter().filter(|found| !is_hidden(found.path.root())).collect();
        let (edits, refused) = rename_nodes(value, &paths, &|id| self.new_id(id).map(str::to_owned));
        let at =
            |found: &flowcell_expr::PathUse| (found.path.clone(), place(tree, &found.pointer, found.bytes.clone()));
        self.refused.borrow_mut().extend(refused.into_iter().map(at));
        let others = paths.iter().filter(|found| self.new_id(found.path.root()).is_none());
        self.others.borrow_mut().extend(others.map(at));
        let mut rewritten = tree.clone();
        for group in edits.chunk_by(|a, b| a.pointer == b.pointer) {
            let Some(part) = rewritten.part_mut(&group[0].pointer) else { continue };
            let text = part.text().map(|text| apply_edits(text, group));
            part.kind = text.map_or(Kind::Scalar(Json::Null), |text| Kind::Scalar(Json::from(text)));
        }
        rewritten
    }

    fn new_id(&self, id: &str) -> Option<&str> {
        self.ids.get(id).map(String::as_str)
    }

    fn id(&self, tree: &Tree) -> Tree {
        match tree.text().and_then(|id| self.new_id(id)) {
            Some(id) => Tree { span: tree.span, kind: Kind::Scalar(id.into()) },
            None => tree.clone(),
        }
    }

    /// Renames an id or a list of ids.
    fn ids(&self, tree: &Tree) -> Tree {
        match &tree.kind {
            Kind::List(items) => {
                Tree { span: tree.span, kind: Kind::List(items.iter().map(|item| self.id(item)).collect()) }
            }
            _ => self.id(tree),
        }
    }

    /// Returns the names of the items of the owners around a node.
    fn items_around(&self, id: &str) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        let mut at = self.owners.get(id);
        // Bodies that contain each other have an error of their own.
        for _ in 0..=self.owners.len() {
            let Some(owner) = at else { break };
            names.extend(self.item(owner).map(|(name, _)| name.into()));
            at = owner.member("id").and_then(Tree::text).and_then(|id| self.owners.get(id));
        }
        names
    }

    /// Returns the name under which the body of a node reads the item of its pass, and its place.
    pub(crate) fn item(&self, node: &Tree) -> Option<(String, Span)> {
        let kind = self.kind(node)?;
        let (name, tree) = input::marked_text(node.member("input"), &kind, MarkKind::Alias)?;
        Some((name, tree.map_or(node.span, |tree| tree.span)))
    }

    fn kind(&self, node: &Tree) -> Option<Arc<NodeType>> {
        match self.catalog.lookup(&TypeRef::parse(node.member("type")?.text()?)) {
            Lookup::Found(kind) => Some(kind),
            _ => None,
        }
    }
}

/// Collects the owners of the bodies of a graph, by the ids of the nodes in the bodies.
fn collect_owners<'t>(graph: &'t Tree, owner: Option<&'t Tree>, owners: &mut BTreeMap<&'t str, &'t Tree>) {
    for node in graph.member("nodes").map(Tree::items).unwrap_or_default() {
        if let (Some(id), Some(owner)) = (node.member("id").and_then(Tree::text), owner) {
            owners.insert(id, owner);
        }
        let Some(body) = node.member("body") else { continue };
        body.items().iter().filter_map(Tree::text).for_each(|id| _ = owners.insert(id, node));
        collect_owners(body, Some(node), owners);
    }
}

/// Returns a map with other values. Any other tree stays as it is.
fn with_members(tree: &Tree, value: impl Fn(&str, &Tree) -> Tree) -> Tree {
    let Kind::Map(entries) = &tree.kind else { return tree.clone() };
    let entry = |entry: &Entry| Entry { value: value(&entry.key, &entry.value), ..entry.clone() };
    Tree { span: tree.span, kind: Kind::Map(entries.iter().map(entry).collect()) }
}
