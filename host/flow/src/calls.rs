//! Flows that call flows: every flow that is named must be there, and none may lead back to itself.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
};

use flowcell_contract::{Catalog, Lookup, MarkKind, TypeRef};

use crate::{
    Files,
    input::marked_text,
    limits,
    yaml::{self, Tree},
};

/// Why a flow cannot be called, with the chain of names that leads there.
pub(crate) enum Trouble {
    /// There is no such flow.
    Unknown,
    /// The chain comes back to a flow that it went through.
    Recursion(Vec<String>),
    /// The chain is longer than the runtime follows it.
    TooDeep(Vec<String>),
}

/// The flows that are called, each read once.
pub(crate) struct Calls<'a> {
    catalog: &'a Catalog,
    files: &'a dyn Files,
    /// This flow's own name.
    root: &'a str,
    /// The names that a flow calls; none if there is no such flow.
    called: RefCell<HashMap<String, Option<Vec<String>>>>,
}

impl<'a> Calls<'a> {
    pub(crate) fn new(root: &'a str, catalog: &'a Catalog, files: &'a dyn Files) -> Calls<'a> {
        Calls { catalog, files, root, called: RefCell::default() }
    }

    /// Tells what keeps this flow from calling another one.
    pub(crate) fn trouble(&self, name: &str) -> Option<Trouble> {
        if self.calls_of(name).is_none() {
            return Some(Trouble::Unknown);
        }
        let mut chain = vec![self.root.to_owned(), name.to_owned()];
        self.follow(&mut chain, &mut HashSet::new())
    }

    /// Follows the calls of the last flow of a chain; at most [`limits::FLOW_DEPTH`] of them inside each other.
    fn follow(&self, chain: &mut Vec<String>, sound: &mut HashSet<String>) -> Option<Trouble> {
        let (name, before) = chain.split_last()?;
        if before.contains(name) {
            return Some(Trouble::Recursion(chain.clone()));
        }
        if before.len() > limits::FLOW_DEPTH {
            return Some(Trouble::TooDeep(chain.clone()));
        }
        let name = name.clone();
        if sound.contains(&name) {
            return None;
        }
        for called in self.calls_of(&name).unwrap_or_default() {
            chain.push(called);
            let trouble = self.follow(chain, sound);
            if trouble.is_some() {
                return trouble;
            }
            chain.pop();
        }
        sound.insert(name);
        None
    }

    fn calls_of(&self, name: &str) -> Option<Vec<String>> {
        if let Some(known) = self.called.borrow().get(name) {
            return known.clone();
        }
        let source = self.files.flow(name)?;
        // A library of hostile flows costs no more than this; the runtime has its own limit on depth.
        if self.called.borrow().len() >= limits::CALLED_FLOWS {
            return Some(Vec::new());
        }
        let mut found = Vec::new();
        if let Ok(tree) = yaml::parse(&source.text) {
            self.collect(&tree, &mut found);
        }
        self.called.borrow_mut().insert(name.to_owned(), Some(found.clone()));
        Some(found)
    }

    /// The literal names in the fields that node types mark as the name of a flow.
    fn collect(&self, graph: &Tree, found: &mut Vec<String>) {
        for node in graph.member("nodes").map(Tree::items).unwrap_or_default() {
            if let Some(name) = self.called_by(node).filter(|name| !found.contains(name)) {
                found.push(name);
            }
            if let Some(body) = node.member("body") {
                self.collect(body, found);
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
