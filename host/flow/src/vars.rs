//! `flow.vars`: named values that the flow computes once. They become the first node of the flow.

use std::{cell::RefCell, collections::BTreeSet};

use flowcell_expr::{Path, Segment};

use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::{entries, for_message, is_name, map},
    limits,
    yaml::{Entry, Span, Tree},
};

/// The key of `flow`, and the id of the node that computes the vars.
pub(crate) const VARS: &str = "vars";

/// The vars of a flow.
pub(crate) struct Vars<'t> {
    tree: &'t Tree,
    /// The vars up to the limit.
    entries: &'t [Entry],
    /// True if the flow has more vars than the limit, which is reported.
    has_more: bool,
    /// The vars that expressions read.
    read: RefCell<BTreeSet<String>>,
}

impl<'t> Vars<'t> {
    /// Reads the vars of a flow; `None` if it has none. Reports names that are not valid.
    pub(crate) fn read(head: &'t Tree, diagnostics: &mut Diagnostics<'_>) -> Option<Vars<'t>> {
        let tree = map(head, VARS, diagnostics)?;
        let all = entries(tree, "`vars`", diagnostics);
        let entries = &all[..all.len().min(limits::VARS)];
        let has_more = entries.len() < all.len();
        if has_more {
            let message = format!("the flow has {} vars", all.len());
            let help = Some(format!("use at most {}; put several into one object", limits::VARS));
            diagnostics.error("too_large", tree.span, message, help);
        }
        for entry in entries.iter().filter(|entry| !is_name(&entry.key)) {
            let message = format!("`{}` is not a valid name of a var", for_message(&entry.key));
            let help = "use letters, digits and `_`, at most 64 characters, and no reserved word such as `flow`";
            diagnostics.error("bad_name", entry.key_span, message, Some(help.into()));
        }
        (!entries.is_empty()).then(|| Vars { tree, entries, has_more, read: RefCell::default() })
    }

    /// Returns the place of the first var, for the node that computes them.
    pub(crate) fn span(&self) -> Span {
        self.entries.first().map_or(self.tree.span, |entry| entry.key_span)
    }

    /// Returns the vars as a map.
    pub(crate) fn tree(&self) -> &'t Tree {
        self.tree
    }

    /// Notes that an expression reads the path `vars.…`, and reports a var that does not exist.
    pub(crate) fn note(&self, path: &Path, start: usize, span: Span, diagnostics: &mut Diagnostics<'_>) {
        let names = || self.entries.iter().map(|entry| &*entry.key);
        let Some(Segment::Key(name)) = path.segments().get(start) else {
            return self.note_all();
        };
        self.read.borrow_mut().insert(name.to_string());
        if !self.has_more && !names().any(|known| known == &**name) {
            let message = format!("unknown var `{}`", for_message(name));
            let help = did_you_mean(name, names())
                .unwrap_or_else(|| format!("the vars are {}", names().map(for_message).collect::<Vec<_>>().join(", ")));
            diagnostics.error("unknown_name", span, message, Some(help));
        }
    }

    /// Returns true if the flow has a var with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| &*entry.key == name)
    }

    /// Notes that an expression reads all vars.
    pub(crate) fn note_all(&self) {
        self.read.borrow_mut().extend(self.entries.iter().map(|entry| entry.key.to_string()));
    }

    /// Warns of vars that no expression reads.
    pub(crate) fn warn_of_unused(&self, diagnostics: &mut Diagnostics<'_>) {
        let read = self.read.borrow();
        for entry in self.entries.iter().filter(|entry| !read.contains(&*entry.key)) {
            let name = for_message(&entry.key);
            let message = format!("nothing reads the var `{name}`");
            let help = format!("write `{{{{ vars.{name} }}}}` where the flow needs it, or remove it");
            diagnostics.warning("unused_var", entry.key_span, message, Some(help));
        }
    }
}
