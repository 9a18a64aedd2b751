//! The names that the owner of a body provides to the body.

use std::sync::Arc;

use flowcell_contract::{MarkKind, NodeType};

use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    input,
    read::RawNode,
    yaml::{Span, Tree},
};

/// The names that an owner provides to its body, as its node type defines them.
pub(crate) struct OwnerNames {
    /// False if the node's type is unknown, so that its names cannot be checked.
    pub(crate) is_known: bool,
    /// Names of the body's variables.
    pub(crate) variables: Vec<Arc<str>>,
    /// The alias, a second name for the item of the current pass, from the field `as`.
    pub(crate) alias: Option<Arc<str>>,
    last: Last,
}

/// The output of the pass before, which a body reads as `last`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Known,
    /// The body runs once.
    Single,
    /// Several passes run at the same time, so that none is the one before.
    Concurrent,
}

impl OwnerNames {
    pub(crate) fn new(node: &RawNode<'_>, kind: Option<&NodeType>) -> OwnerNames {
        let body = kind.and_then(|kind| kind.body.as_ref());
        let alias = kind.and_then(|kind| input::marked_text(node.input, kind, MarkKind::Alias));
        OwnerNames {
            is_known: kind.is_some(),
            variables: body.map(|body| body.variables.clone()).unwrap_or_default(),
            alias: alias.map(|(text, _)| text.into()),
            last: match kind {
                Some(kind) if !kind.has_last() => Last::Single,
                Some(kind) if kind.has_concurrent_passes() && !is_sequential(node.input) => Last::Concurrent,
                _ => Last::Known,
            },
        }
    }

    /// Reports a variable that the owner does not provide. `root` is the id of the owner.
    pub(super) fn check(&self, root: &str, member: Option<&str>, span: Span, diagnostics: &mut Diagnostics<'_>) {
        let names = self.variables.iter().map(|name| &**name).chain((self.last == Last::Known).then_some("last"));
        let is_unknown = |member: &&str| self.is_known && names.clone().all(|name| name != *member);
        let Some(member) = member.filter(is_unknown) else { return };
        if member == "last" && self.last == Last::Concurrent {
            let message = format!("`{root}.last` is null, because passes of `{root}` run at the same time");
            let help = "write `concurrency: 1`, so that each pass reads the output of the pass before";
            return diagnostics.new_rule("unknown_name", span, message, Some(help.into()));
        }
        let help = did_you_mean(member, names.clone()).unwrap_or_else(|| {
            format!("inside its body `{root}` has the variables {}", names.collect::<Vec<_>>().join(", "))
        });
        let message = format!("`{root}` has no variable `{}`", for_message(member));
        match member {
            "last" => diagnostics.new_rule("unknown_name", span, message, Some(help)),
            _ => diagnostics.error("unknown_name", span, message, Some(help)),
        }
    }
}

/// Returns true if an input has the field `concurrency` with the number 1.
fn is_sequential(input: Option<&Tree>) -> bool {
    input.and_then(|input| input.member("concurrency")).is_some_and(|number| number.json().as_u64() == Some(1))
}
