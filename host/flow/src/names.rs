//! What the roots of expressions stand for, and whether they may be named where they are.

use std::sync::Arc;

use flowcell_expr::{Path, Segment};

use crate::{
    diagnostic::{Findings, did_you_mean},
    fields::shown,
    graph::{NodeIx, Reference},
    read::RawFlow,
    shape::Shape,
    yaml::Span,
};

/// What the checker knows of every node's type that matters to names.
pub(crate) struct OwnerNames {
    /// Whether its type is known; if not, nothing can be said of its names.
    pub(crate) is_known: bool,
    /// Names of the variables of the body.
    pub(crate) variables: Vec<Arc<str>>,
    /// The other name of the item.
    pub(crate) alias: Option<Arc<str>>,
}

/// Which nodes of its own scope an expression may name.
#[derive(Clone, Copy)]
pub(crate) enum Visible {
    /// Those that come before a node.
    Before(usize),
    /// A node and those that come before it.
    Through(usize),
    /// All.
    All,
}

/// From where names are looked up.
#[derive(Clone, Copy)]
pub(crate) struct Viewpoint<'a> {
    pub(crate) flow: &'a RawFlow<'a>,
    pub(crate) shape: &'a Shape,
    pub(crate) owners: &'a [OwnerNames],
    /// The scope of the expression.
    pub(crate) scope: usize,
    /// Nodes of that scope that may be named.
    pub(crate) visible: Visible,
    /// Whether `inbound` and `inbounds` mean something.
    pub(crate) inbound: bool,
    /// The node whose own variables may be named.
    pub(crate) own: Option<usize>,
}

impl Viewpoint<'_> {
    /// Resolves paths to references; what may not be named is a finding. `locals` are names that the node provides.
    pub(crate) fn resolve(
        &self,
        paths: &[(Path, Span)],
        locals: &[Arc<str>],
        findings: &mut Findings<'_>,
    ) -> Vec<Reference> {
        let mut references: Vec<Reference> = Vec::new();
        for (path, span) in paths {
            if locals.iter().any(|local| &**local == path.root()) {
                continue;
            }
            if locals.iter().any(|local| &**local == "*") && !self.knows(path.root()) {
                continue;
            }
            match self.reference(path, *span, findings) {
                Some(Reference::Nodes(more)) => merge(&mut references, more),
                Some(reference) if !references.contains(&reference) => references.push(reference),
                _ => {}
            }
        }
        references
    }

    /// Whether a root means something here without the node's own names.
    fn knows(&self, root: &str) -> bool {
        let around =
            |owner: usize| self.flow.nodes[owner].id == root || self.owners[owner].alias.as_deref() == Some(root);
        matches!(root, "flow" | "nodes" | "inbound" | "inbounds")
            || self.shape.by_id.contains_key(root)
            || self.owners_around().any(around)
    }

    fn reference(&self, path: &Path, span: Span, findings: &mut Findings<'_>) -> Option<Reference> {
        let member = match path.segments().first() {
            Some(Segment::Key(key)) => Some(&**key),
            _ => None,
        };
        match path.root() {
            "flow" => {
                if member.is_some_and(|member| member != "input") {
                    let message = format!("`{path}` does not exist: `flow` has only `input`");
                    findings.error("unknown_name", span, message, Some("write `flow.input.…`".into()));
                }
                Some(Reference::Flow)
            }
            "nodes" => Some(Reference::Nodes(match member {
                Some(id) => vec![self.node(id, span, findings)?],
                None => self.all_nodes(),
            })),
            name @ ("inbound" | "inbounds") => {
                if !self.inbound {
                    let message = format!("`{name}` means nothing here: no edge leads to an output");
                    findings.error("unknown_name", span, message, Some("name a node's id".into()));
                }
                Some(if name == "inbound" { Reference::Inbound } else { Reference::Inbounds })
            }
            root => self.owner(root, member, span, findings).or_else(|| {
                let node = self.node(root, span, findings)?;
                Some(Reference::Node(node))
            }),
        }
    }

    /// An owner's variables, or the item under its other name.
    fn owner(&self, root: &str, member: Option<&str>, span: Span, findings: &mut Findings<'_>) -> Option<Reference> {
        let own = self.own.filter(|own| self.flow.nodes[*own].id == root);
        let around = self.owners_around().find(|owner| self.flow.nodes[*owner].id == root);
        if let Some(owner) = own.or(around) {
            let variables = &self.owners[owner].variables;
            if let Some(member) = member.filter(|member| {
                self.owners[owner].is_known && *member != "last" && variables.iter().all(|name| &**name != *member)
            }) {
                let names = variables.iter().map(|name| &**name).chain(["last"]);
                let help = did_you_mean(member, names.clone()).unwrap_or_else(|| {
                    format!("inside its body `{root}` has: {}", names.collect::<Vec<_>>().join(", "))
                });
                findings.error(
                    "unknown_name",
                    span,
                    format!("`{root}` has no variable `{}`", shown(member)),
                    Some(help),
                );
            }
            return Some(Reference::Owner(NodeIx(owner as u32)));
        }
        let aliased = |owner: &usize| self.owners[*owner].alias.as_deref() == Some(root);
        let owner = self.owners_around().find(aliased)?;
        Some(Reference::Alias(NodeIx(owner as u32), root.into()))
    }

    fn owners_around(&self) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.scope;
        std::iter::from_fn(move || {
            let owner = self.shape.scopes[at].owner?;
            at = self.shape.scope_of[owner];
            Some(owner)
        })
    }

    /// Whether a node has ended whenever the expression is evaluated, as far as edges tell.
    pub(crate) fn sees(&self, node: usize) -> bool {
        let (shape, scope) = (self.shape, self.shape.scope_of[node]);
        let here = scope == self.scope
            && match self.visible {
                Visible::Before(later) => shape.ancestry.comes_before(node, later),
                Visible::Through(last) => node == last || shape.ancestry.comes_before(node, last),
                Visible::All => true,
            };
        here || self
            .owners_around()
            .any(|owner| shape.scope_of[owner] == scope && shape.ancestry.comes_before(node, owner))
    }

    /// Every node that may be named.
    fn all_nodes(&self) -> Vec<NodeIx> {
        let mut all: Vec<_> =
            self.shape.scopes[self.scope].nodes.iter().copied().filter(|node| self.sees(*node)).collect();
        for owner in self.owners_around() {
            let around = &self.shape.scopes[self.shape.scope_of[owner]].nodes;
            all.extend(around.iter().filter(|node| self.shape.ancestry.comes_before(**node, owner)));
        }
        all.sort_unstable();
        all.into_iter().map(|node| NodeIx(node as u32)).collect()
    }

    fn node(&self, id: &str, span: Span, findings: &mut Findings<'_>) -> Option<NodeIx> {
        let Some(node) = self.shape.by_id.get(id).copied() else {
            // It may be the item of an owner of an unknown type, which is a finding already.
            if self.owners_around().any(|owner| !self.owners[owner].is_known) {
                return None;
            }
            let ids = self.shape.by_id.keys().map(String::as_str).chain(["flow", "nodes", "inbound", "inbounds"]);
            let help =
                did_you_mean(id, ids).or_else(|| Some("name `flow.input.…`, or the id of an earlier node".into()));
            findings.error("unknown_name", span, format!("there is no `{}`", shown(id)), help);
            return None;
        };
        let visible = self.sees(node);
        if !visible {
            if matches!(self.visible, Visible::Before(own) if own == node) {
                let help = Some("name `inbound`, or a node that comes before".into());
                findings.error(
                    "self_reference",
                    span,
                    format!("`{id}` names its own output, which is not there yet"),
                    help,
                );
                return None;
            }
            let message = format!("`{id}` is not an ancestor: no path of edges leads from it to here");
            let help = if self.shape.scope_of[node] == self.scope {
                format!("add an edge on the way from `{id}`; bindings never imply one")
            } else {
                "what is in a body leaves it through its owner: name the owner's output".into()
            };
            findings.error("not_an_ancestor", span, message, Some(help));
            return None;
        }
        Some(NodeIx(node as u32))
    }
}

fn merge(references: &mut Vec<Reference>, more: Vec<NodeIx>) {
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
