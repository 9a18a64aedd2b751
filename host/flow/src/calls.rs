//! Checks calls between flows: every called flow must exist, and no chain of calls may be recursive.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
};

use flowcell_contract::{Catalog, Lookup, MarkKind, TypeRef};

use crate::{
    CheckContext,
    fragments::nodes,
    input::marked_text,
    limits,
    read::FRAGMENTS_KEY,
    yaml::{self, Tree},
};

/// The reason why a flow cannot be called. The texts of a variant are a chain of calls: the names of the flows from the
/// checked flow to the last called one.
pub(crate) enum CallError {
    /// No flow has the name.
    Unknown,
    /// The chain contains a flow twice.
    Recursion(Vec<String>),
    /// The chain is longer than the runtime's limit.
    TooDeep(Vec<String>),
}

/// The calls between flows that are known so far. Each flow is read only once.
pub(crate) struct Calls<'a> {
    catalog: &'a Catalog,
    context: &'a dyn CheckContext,
    /// Name of the checked flow.
    root: &'a str,
    /// The names that each flow calls; `None` for an unknown flow.
    called: RefCell<HashMap<String, Option<Vec<String>>>>,
    /// The number of texts that were read.
    flows: Cell<usize>,
    /// The size of these texts in bytes.
    bytes: Cell<usize>,
    /// The flows that were asked whether they can run.
    asked: RefCell<HashSet<String>>,
}

impl<'a> Calls<'a> {
    pub(crate) fn new(root: &'a str, catalog: &'a Catalog, context: &'a dyn CheckContext) -> Calls<'a> {
        let (called, asked) = (RefCell::default(), RefCell::default());
        Calls { catalog, context, root, called, flows: Cell::default(), bytes: Cell::default(), asked }
    }

    /// Returns the reason why the checked flow cannot call the flow `name`; `None` if it can.
    pub(crate) fn check(&self, name: &str) -> Option<CallError> {
        // The checked flow itself may not be stored yet.
        if name != self.root && self.calls_of(name).is_none() {
            return Some(CallError::Unknown);
        }
        let mut chain = vec![self.root.to_owned(), name.to_owned()];
        self.follow(&mut chain, &mut HashSet::new())
    }

    /// Returns the reason why the flow `name`, which exists, cannot run. Returns `None` if it can, or if the flow calls
    /// too many others.
    pub(crate) fn unusable(&self, name: &str) -> Option<String> {
        let mut asked = self.asked.borrow_mut();
        if asked.len() >= limits::CHECKED_FLOWS && !asked.contains(name) {
            return None;
        }
        asked.insert(name.to_owned());
        self.context.unusable_flow(name)
    }

    /// Follows the calls of the last flow in a chain, and the calls of those flows in turn, at most
    /// [`limits::FLOW_DEPTH`] levels deep. Returns the first error; `None` if there is none. `sound` has the flows
    /// whose calls are already known to be valid.
    fn follow(&self, chain: &mut Vec<String>, sound: &mut HashSet<String>) -> Option<CallError> {
        let (name, before) = chain.split_last()?;
        if before.contains(name) {
            return Some(CallError::Recursion(chain.clone()));
        }
        if before.len() > limits::FLOW_DEPTH {
            return Some(CallError::TooDeep(chain.clone()));
        }
        let name = name.clone();
        if sound.contains(&name) {
            return None;
        }
        for called in self.calls_of(&name).unwrap_or_default() {
            chain.push(called);
            let error = self.follow(chain, sound);
            if error.is_some() {
                return error;
            }
            chain.pop();
        }
        sound.insert(name);
        None
    }

    /// Returns the names that a flow calls; `None` if the flow does not exist. Asks the context once for each flow.
    fn calls_of(&self, name: &str) -> Option<Vec<String>> {
        if let Some(known) = self.called.borrow().get(name) {
            return known.clone();
        }
        let calls = self.look_up(name);
        self.called.borrow_mut().insert(name.to_owned(), calls.clone());
        calls
    }

    fn look_up(&self, name: &str) -> Option<Vec<String>> {
        // The check keeps the texts in memory, and takes time for each. Beyond the limits, a flow counts as one without
        // calls; the runtime has its own depth limit.
        if self.bytes.get() >= limits::CALLED_BYTES || self.flows.get() >= limits::CALLED_FLOWS {
            return self.context.has_flow(name).then(Vec::new);
        }
        let source = self.context.flow(name)?;
        self.bytes.set(self.bytes.get() + source.text.len());
        self.flows.set(self.flows.get() + 1);
        let mut found = Vec::new();
        if let Ok(tree) = yaml::parse(&source.text) {
            self.collect(&tree, &mut found);
            // A fragment that nothing uses counts, too.
            let fragments = tree.member(FRAGMENTS_KEY).map(Tree::values).unwrap_or_default();
            fragments.into_iter().for_each(|fragment| self.collect(fragment, &mut found));
        }
        Some(found)
    }

    /// Adds to `found` the literal names in those fields of nodes that the node types mark as names of flows.
    fn collect(&self, graph: &Tree, found: &mut Vec<String>) {
        for name in nodes(graph).into_iter().filter_map(|node| self.called_by(node)) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }

    fn called_by(&self, node: &Tree) -> Option<String> {
        let Lookup::Found(kind) = self.catalog.lookup(&TypeRef::parse(node.member("type")?.text()?)) else {
            return None;
        };
        let (name, _) = marked_text(node.member("input"), &kind, MarkKind::Flow)?;
        (!name.contains("{{")).then_some(name)
    }
}
