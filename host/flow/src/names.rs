//! Resolves the root names of expressions. Reports names that an expression cannot use where it stands.

mod facts;
mod giver;
mod inbound;
mod keys;
mod known_input;
mod owners;
mod passes;
mod plain_paths;
mod reach;
mod suggest;

use std::{collections::HashSet, iter, sync::Arc};

use flowcell_contract::NodeType;
use flowcell_expr::{Path, RANDOM, Segment};

pub use self::facts::FACT_NAMES;
pub(crate) use self::{facts::FLOW_MEMBERS, known_input::KnownInput, owners::OwnerNames};
use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    first_node,
    fragments::PARAMS,
    graph::{FACTS, NodeIx, PassRead, Reference, Source},
    input::{FieldReads, PathUse},
    members::{self, MissingMember},
    read::RawFlow,
    shape::Shape,
    vars::Vars,
    yaml::Span,
};

/// The nodes to which an expression may refer, among the nodes of its own scope.
#[derive(Clone, Copy)]
pub(crate) enum Visible {
    /// Only the ancestors of this node.
    Before(usize),
    /// This node and its ancestors.
    Through(usize),
    /// This node, which has succeeded, and its ancestors. The expression stands in the node that undoes it.
    Undone(usize),
    /// All nodes of the scope.
    All,
}

/// The context in which names are resolved.
#[derive(Clone, Copy)]
pub(crate) struct NameResolver<'a> {
    pub(crate) flow: &'a RawFlow<'a>,
    pub(crate) shape: &'a Shape,
    pub(crate) owners: &'a [OwnerNames],
    /// The types of all nodes; `None` for unknown types.
    pub(crate) types: &'a [Option<Arc<NodeType>>],
    /// The run's input.
    pub(crate) known_input: &'a KnownInput,
    /// The scope of the expression.
    pub(crate) scope: usize,
    /// The visible nodes of that scope.
    pub(crate) visible: Visible,
    /// True if the expression may use `inbound` and `inbounds`.
    pub(crate) inbound: bool,
    /// The node whose own variables the expression may use, if there is one.
    pub(crate) own: Option<usize>,
}

impl NameResolver<'_> {
    /// Resolves the paths of a field to references. Reports names that are unknown or not visible.
    pub(crate) fn resolve(&self, read: &FieldReads, diagnostics: &mut Diagnostics<'_>) -> Vec<Reference> {
        let mut references: Vec<Reference> = Vec::new();
        plain_paths::warn(self, read, diagnostics);
        // If a field tests for a value in one place, its other uses of the value need no test.
        let tested: HashSet<String> =
            read.paths.iter().filter(|named| named.is_tested).map(|named| named.path.to_string()).collect();
        for PathUse { path, span, is_key, .. } in &read.paths {
            let is_tested = !tested.is_empty() && tested.contains(&path.to_string());
            let locals = &read.locals;
            if locals.names.iter().any(|local| &**local == path.root()) {
                continue;
            }
            let is_fact = !locals.any && self.is_fact(path.root());
            if !is_fact && !self.is_known_root(path.root()) && (locals.any || locals.from_input) {
                if !locals.any {
                    self.report_unknown_local(path.root(), &locals.names, *span, diagnostics);
                }
                continue;
            }
            if !is_fact
                && !self.is_known_root(path.root())
                && self.report_near(path.root(), &locals.names, *span, diagnostics)
            {
                continue;
            }
            if *is_key {
                keys::warn_of_written(self, path, *span, diagnostics);
            }
            match self.reference(path, is_tested, *span, diagnostics) {
                Some(Reference::Nodes(more)) => merge(&mut references, more),
                Some(reference) if !references.contains(&reference) => references.push(reference),
                _ => {}
            }
        }
        self.check_item_paths(read, diagnostics);
        references
    }

    /// Reports members of list items that cannot exist, read through a filter or a computed index.
    fn check_item_paths(&self, read: &FieldReads, diagnostics: &mut Diagnostics<'_>) {
        let begins =
            |long: &Path, path: &Path| long.root() == path.root() && long.segments().starts_with(path.segments());
        let length = |path: &Path| path.segments().len();
        let mut checked: Vec<&Path> = Vec::new();
        for PathUse { path: long, span, is_tested, .. } in &read.item_paths {
            // A missing member of a shorter path has a diagnostic of its own.
            let shorter = checked.iter().copied().filter(|path| length(path) < length(long));
            let paths = read.paths.iter().map(|named| &named.path).chain(shorter);
            let known = paths.filter(|path| begins(long, path)).map(length).max();
            let root = long.root();
            let is_local = read.locals.names.iter().any(|local| &**local == root);
            if is_local || self.find_owner(root).is_some() {
                continue;
            }
            let named = (long, known.unwrap_or_default());
            match (root, long.segments().first()) {
                ("flow", _) => self.check_input(named, *is_tested, *span, diagnostics),
                ("nodes", Some(Segment::Key(id))) => self.check_output_of(id, named, 1, *span, diagnostics),
                (id, _) => self.check_output_of(id, named, 0, *span, diagnostics),
            }
            checked.push(long);
        }
    }

    /// Reports a name that neither the flow nor the node itself defines.
    fn report_unknown_local(&self, root: &str, locals: &[Arc<str>], span: Span, diagnostics: &mut Diagnostics<'_>) {
        let ids = self
            .shape
            .by_id
            .keys()
            .map(String::as_str)
            .chain(["flow", "nodes", "inbound", "inbounds"])
            .chain(FACT_NAMES);
        let near = || suggest::near(root, locals.iter().map(|name| &**name).chain(ids));
        let help = suggest::with_dash(self.shape, root).or_else(near);
        let help =
            help.unwrap_or_else(|| format!("add `{}` to `values`, or use `flow.input.…` or a node", for_message(root)));
        diagnostics.new_rule("unknown_name", span, format!("unknown name `{}`", for_message(root)), Some(help));
    }

    /// Reports an unknown name that is similar to one of the names that the node itself provides, such as `item`. Returns
    /// false, and reports nothing, if none is similar.
    fn report_near(&self, root: &str, locals: &[Arc<str>], span: Span, diagnostics: &mut Diagnostics<'_>) -> bool {
        // It may be the item of an owner with an unknown type, which already has an error.
        if locals.is_empty() || self.enclosing_owners().any(|owner| !self.owners[owner].is_known) {
            return false;
        }
        let near = did_you_mean(root, locals.iter().map(|name| &**name));
        if near.is_some() {
            diagnostics.error("unknown_name", span, format!("unknown name `{}`", for_message(root)), near.clone());
        }
        near.is_some()
    }

    /// Returns true for a known root name other than those that the node itself provides for the field.
    fn is_known_root(&self, root: &str) -> bool {
        let around =
            |owner: usize| self.flow.nodes[owner].id == root || self.owners[owner].alias.as_deref() == Some(root);
        matches!(root, "flow" | "nodes" | "inbound" | "inbounds" | RANDOM | FACTS)
            || self.shape.by_id.contains_key(root)
            || self.enclosing_owners().any(around)
    }

    /// Returns true if a root name stands for a fact about the run, because the flow gives the name to nothing else.
    fn is_fact(&self, root: &str) -> bool {
        FACT_NAMES.contains(&root) && !self.is_known_root(root)
    }

    fn reference(
        &self,
        path: &Path,
        is_tested: bool,
        span: Span,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Option<Reference> {
        let member = match path.segments().first() {
            Some(Segment::Key(key)) => Some(&**key),
            _ => None,
        };
        match path.root() {
            "flow" => {
                match member {
                    Some("input") | None => self.check_input((path, 0), is_tested, span, diagnostics),
                    Some(_) => self.check_fact(path, span, diagnostics),
                }
                Some(Reference::Flow)
            }
            "nodes" => Some(Reference::Nodes(match member {
                Some(id) => {
                    let source = self.node(id, false, span, diagnostics)?;
                    self.check_source(&source, (path, 1), is_tested, span, diagnostics);
                    vec![source]
                }
                None if reach::refuse_root(self, path.root(), span, diagnostics) => return None,
                None => self.all_nodes(),
            })),
            name @ ("inbound" | "inbounds") => {
                match self.inbound {
                    true if reach::refuse_root(self, name, span, diagnostics) => return None,
                    true => inbound::check(self, path, is_tested, span, diagnostics),
                    false => self.report_no_inbound(name, span, diagnostics),
                }
                Some(if name == "inbound" { Reference::Inbound } else { Reference::Inbounds })
            }
            RANDOM => Some(Reference::Random),
            FACTS => Some(Reference::Facts),
            root if self.is_fact(root) => self.fact(path, span, diagnostics),
            root => {
                let found = self.owner(root, member, span, diagnostics).or_else(|| {
                    let alone = path.segments().is_empty();
                    let source = self.node(root, alone, span, diagnostics)?;
                    self.check_source(&source, (path, 0), is_tested, span, diagnostics);
                    Some(Reference::Node(source))
                })?;
                self.check_undo(root, &found, span, diagnostics);
                Some(found)
            }
        }
    }

    /// Reports a member that cannot exist.
    fn report(
        &self,
        absent: Option<MissingMember>,
        (path, start): (&Path, usize),
        span: Span,
        diagnostics: &mut Diagnostics<'_>,
    ) {
        if let Some(absent) = absent {
            let (message, help) = absent.describe(path, start, self.written_reference(span));
            diagnostics.new_rule("unknown_member", span, message, Some(help));
        }
    }

    /// Returns the reference of the steps dialect from which the binding at this position was made.
    fn written_reference(&self, span: Span) -> Option<&str> {
        self.flow.references?.get(&span).map(String::as_str)
    }

    /// Reports a member of `flow.input` that cannot exist. Warns of a member without a default, unless an expression
    /// of the same field tests for it. The first `known` segments of the path were checked before.
    fn check_input(
        &self,
        (path, known): (&Path, usize),
        is_tested: bool,
        span: Span,
        diagnostics: &mut Diagnostics<'_>,
    ) {
        let Some(segments) = path.segments().get(1..).filter(|_| !self.flow.is_agentic) else { return };
        if !matches!(path.segments().first(), Some(Segment::Key(key)) if &**key == "input") {
            return;
        }
        let is_new = |absent: &MissingMember| absent.is_after(known, 1);
        match self.known_input {
            KnownInput::Unknown => {}
            KnownInput::Schema(schema) => {
                self.report(members::in_schema(schema, segments).filter(is_new), (path, 1), span, diagnostics);
            }
            KnownInput::Defaults(_) if is_tested => {}
            KnownInput::Defaults(defaults) => {
                if let Some(absent) = members::in_default(defaults, segments).filter(is_new) {
                    let (message, help) = absent.describe(path, 1, self.written_reference(span));
                    let message = format!("{message} by default");
                    let help = match help.starts_with("known members") {
                        true => format!("{help}; for an optional member write `{path} | default(…)`"),
                        false => help,
                    };
                    diagnostics.warning("unknown_member", span, message, Some(help));
                }
            }
        }
    }

    /// Reports a member of a named output that cannot exist. Warns of one that a strict flow cannot read in the first pass
    /// of a cycle. The first `start` segments of the path lead to the output.
    fn check_source(
        &self,
        source: &Source,
        (path, start): (&Path, usize),
        is_tested: bool,
        span: Span,
        diagnostics: &mut Diagnostics<'_>,
    ) {
        if let Some(vars) = first_node::vars_of_node(self.flow, source.node.0 as usize) {
            vars.note(path, start, span, diagnostics);
        }
        self.check_output(source.node, (path, 0), start, span, diagnostics);
        if self.flow.strict && path.segments().len() > start && !is_tested {
            passes::check_first_pass(source, path, span, diagnostics);
        }
    }

    /// Reports a member of a node's recorded output that cannot exist. The first `start` segments of the path lead to
    /// the output; the first `known` were checked before.
    fn check_output(
        &self,
        node: NodeIx,
        (path, known): (&Path, usize),
        start: usize,
        span: Span,
        diagnostics: &mut Diagnostics<'_>,
    ) {
        if let Some(kind) = &self.types[giver::of(self, node.0 as usize)] {
            let absent = members::in_output(kind, &path.segments()[start..]);
            self.report(absent.filter(|absent| absent.is_after(known, start)), (path, start), span, diagnostics);
        }
    }

    /// Reports a member that cannot exist in the output of the node with this id, if there is such a node.
    fn check_output_of(
        &self,
        id: &str,
        path: (&Path, usize),
        start: usize,
        span: Span,
        diagnostics: &mut Diagnostics<'_>,
    ) {
        if let Some(node) = self.shape.by_id.get(id) {
            self.check_output(NodeIx(*node as u32), path, start, span, diagnostics);
        }
    }

    /// Resolves an owner's variables, or the alias of its item.
    fn owner(
        &self,
        root: &str,
        member: Option<&str>,
        span: Span,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Option<Reference> {
        if let Some(owner) = self.find_owner(root).filter(|owner| reach::is_inside(self, *owner, span)) {
            self.owners[owner].check(root, member, span, diagnostics);
            return Some(Reference::Owner(NodeIx(owner as u32)));
        }
        let is_inside = |owner: usize| root == PARAMS || reach::is_inside(self, owner, span);
        let aliased = |owner: &usize| self.owners[*owner].alias.as_deref() == Some(root) && is_inside(*owner);
        let owner = self.enclosing_owners().find(aliased)?;
        Some(Reference::Alias(NodeIx(owner as u32), root.into()))
    }

    /// Returns the owner with this id, if the expression can use its variables.
    fn find_owner(&self, root: &str) -> Option<usize> {
        let is_meant = |owner: &usize| self.flow.nodes[*owner].id == root;
        self.own.filter(is_meant).or_else(|| self.enclosing_owners().find(is_meant))
    }

    fn enclosing_owners(&self) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.scope;
        iter::from_fn(move || {
            let owner = self.shape.scopes[at].owner?;
            at = self.shape.scope_of[owner];
            Some(owner)
        })
    }

    /// Returns true if an expression may name a node: the node ends before the expression is evaluated, or both are on
    /// one cycle.
    pub(crate) fn is_visible(&self, node: usize) -> bool {
        passes::source(self, node).is_some()
    }

    /// Returns all nodes that end before the expression is evaluated.
    fn all_nodes(&self) -> Vec<Source> {
        let scopes = iter::once(self.scope).chain(self.enclosing_owners().map(|owner| self.shape.scope_of[owner]));
        let nodes = scopes.flat_map(|scope| self.shape.scopes[scope].nodes.iter());
        let mut all: Vec<_> = nodes.filter_map(|node| passes::source(self, *node)).collect();
        all.retain(|source| !matches!(source.pass, PassRead::Previous(_)));
        all.sort_unstable();
        self.flow.vars.iter().for_each(Vars::note_all);
        all
    }

    /// Returns the node with an id. Reports an unknown id. If `alone` is true, no members follow the name, so it may be
    /// a text that lacks its quotes.
    fn node(&self, id: &str, alone: bool, span: Span, diagnostics: &mut Diagnostics<'_>) -> Option<Source> {
        let Some(node) = self.shape.by_id.get(id).copied() else {
            // It may be the item of an owner with an unknown type, which already has an error.
            if self.enclosing_owners().any(|owner| !self.owners[owner].is_known) {
                return None;
            }
            let own = match self.visible {
                Visible::Before(own) if self.owners[own].variables.is_empty() => Some(self.flow.nodes[own].id.as_str()),
                _ => None,
            };
            let nodes = self.shape.by_id.iter().filter(|(_, node)| reach::is_inside(self, **node, span));
            let ids = nodes.map(|(id, _)| id.as_str()).filter(|id| Some(*id) != own);
            let ids = ids.chain(["flow", "nodes", "inbound", "inbounds"]).chain(FACT_NAMES);
            let known_var =
                self.flow.vars.as_ref().filter(|vars| vars.has(id)).map(|_| match reach::is_in_vars(self) {
                    true => "a var reads `flow` and facts about the run, and no other var".to_owned(),
                    false => format!("did you mean `vars.{id}`?"),
                });
            let help = known_var.unwrap_or_else(|| suggest::unknown(self.known_input, self.shape, (id, alone), ids));
            diagnostics.error("unknown_name", span, format!("unknown name `{}`", for_message(id)), Some(help));
            return None;
        };
        if reach::refuse_node(self, node, span, diagnostics) {
            return None;
        }
        let source = passes::source(self, node);
        if source.is_none() {
            let hidden = facts::hidden_by(id);
            if matches!(self.visible, Visible::Before(own) if own == node) {
                let help = Some(hidden.unwrap_or_else(|| "use `inbound` or an earlier node".to_owned()));
                diagnostics.error(
                    "self_reference",
                    span,
                    format!("`{id}` uses its own output, which does not exist yet"),
                    help,
                );
                return None;
            }
            if let Some(undone) = self.shape.undos.of[node] {
                self.report_output_of_undo(id, undone, span, diagnostics);
                return None;
            }
            let back = passes::edge_back(self, node);
            let message = match &back {
                None => format!("`{id}` is not an ancestor: no path of edges leads from it to this node"),
                Some(_) => format!(
                    "`{id}` may not have run in the pass that leaves its cycle: the path to this node begins with another pass"
                ),
            };
            let help = if let Some(help) = hidden.or(back) {
                help
            } else if self.shape.scope_of[node] == self.scope {
                format!("add a path of edges from `{id}`; bindings do not create edges")
            } else {
                "values leave a body only through its owner; use the owner's output".into()
            };
            diagnostics.error("not_an_ancestor", span, message, Some(help));
        }
        source
    }
}

fn merge(references: &mut Vec<Reference>, more: Vec<Source>) {
    for reference in references.iter_mut() {
        if let Reference::Nodes(nodes) = reference {
            nodes.extend(more);
            nodes.sort_unstable();
            nodes.dedup();
            return;
        }
    }
    references.push(Reference::Nodes(more));
}
