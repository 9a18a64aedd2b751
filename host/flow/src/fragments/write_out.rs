//! Writes the uses of fragments out.

use std::collections::{HashMap, HashSet};

use flowcell_contract::{Catalog, Json};

use super::{
    PARAMS, USE_KEY,
    arguments::Arguments,
    definition::{Fragment, Fragments},
    nodes,
    size::Budget,
    text_of,
};
use crate::{
    copies::FragmentCopy,
    diagnostic::Diagnostics,
    fields::{ID_HELP, check_keys_or, entries, for_message, is_id},
    literal,
    read::FRAGMENTS_KEY,
    renaming::Renaming,
    yaml::{Entry, Kind, Span, Tree},
};

/// The keys of a use that the scope in its place keeps.
const KEPT_KEYS: [&str; 7] = ["id", "after", "when", "join", "cancelRest", "policy", "undo"];
/// The keys of a node that is a use of a fragment.
pub const USE_KEYS: [&str; 9] = ["id", "use", "with", "after", "when", "join", "cancelRest", "policy", "undo"];
/// The keys of a node in a fragment that have to be literal, so that parameters in them are replaced by the check.
const LITERAL_KEYS: [&str; 6] = ["type", "join", "cancelRest", "policy", "grants", "promptFile"];
/// The type of the node that a use becomes.
pub(crate) const SCOPE_TYPE: &str = "control.scope";

/// Writes the uses of a flow out.
pub(super) struct Writer<'a, 'd> {
    fragments: &'a Fragments<'a>,
    catalog: &'a Catalog,
    /// The size that arguments may still add to the flow.
    budget: Budget,
    diagnostics: &'a mut Diagnostics<'d>,
    /// All ids of the flow so far.
    ids: HashSet<String>,
}

/// A copy of a fragment that is being written.
#[derive(Clone, Copy)]
struct Frame<'a> {
    arguments: &'a Arguments<'a>,
    renaming: &'a Renaming<'a>,
}

impl<'a, 'd> Writer<'a, 'd> {
    pub(super) fn new(
        fragments: &'a Fragments<'a>,
        catalog: &'a Catalog,
        budget: Budget,
        diagnostics: &'a mut Diagnostics<'d>,
    ) -> Writer<'a, 'd> {
        Writer { fragments, catalog, budget, diagnostics, ids: HashSet::new() }
    }

    /// Returns a flow without fragments.
    pub(super) fn flow(&mut self, flow: &Tree) -> Tree {
        self.ids = nodes(flow).into_iter().map(|node| text_of(node, "id").to_owned()).collect();
        let mut written = self.graph(flow, None);
        if let Kind::Map(entries) = &mut written.kind {
            entries.retain(|entry| &*entry.key != FRAGMENTS_KEY);
        }
        written
    }

    /// Writes out the nodes and edges of a flow, a body or a fragment.
    fn graph(&mut self, graph: &Tree, frame: Option<Frame<'_>>) -> Tree {
        let mut written = graph.clone();
        let Kind::Map(entries) = &mut written.kind else { return written };
        for entry in entries {
            let Kind::List(items) = &mut entry.value.kind else { continue };
            for item in items {
                match (&*entry.key, frame) {
                    ("nodes", _) => *item = self.node(item, frame),
                    ("edges", Some(frame)) => *item = frame.renaming.edge(item),
                    _ => {}
                }
            }
        }
        written
    }

    fn node(&mut self, node: &Tree, frame: Option<Frame<'_>>) -> Tree {
        let mut written = node.clone();
        if let (Kind::Map(entries), Some(Frame { arguments, .. })) = (&mut written.kind, frame) {
            for entry in entries.iter_mut().filter(|entry| LITERAL_KEYS.contains(&&*entry.key)) {
                entry.value = arguments.substitute(&entry.value, &mut self.budget, self.diagnostics);
            }
        }
        if let Some(frame) = frame {
            written = frame.renaming.node(&written);
            self.check_item(&written, frame);
        }
        if written.member(USE_KEY).is_some() {
            return self.write_use(&written, frame).unwrap_or(written);
        }
        if let Some(body) = written.part_mut("/body").filter(|body| matches!(body.kind, Kind::Map(_))) {
            *body = self.graph(&body.clone(), frame);
        }
        written
    }

    /// Reports an owner in a fragment whose items have the name of the parameters, and so would hide them in its body.
    fn check_item(&mut self, node: &Tree, frame: Frame<'_>) {
        let Some((_, span)) = frame.renaming.item(node).filter(|(name, _)| name == PARAMS) else { return };
        let id = for_message(text_of(node, "id"));
        let message =
            format!("`{PARAMS}` stands for the parameters of the fragment, so it cannot be the item of `{id}`");
        let help = "choose another name of letters, digits and `_`";
        self.diagnostics.error("alias_taken", span, message, Some(help.into()));
    }

    /// Returns the scope that takes the place of a use; `None` if the use has an error.
    fn write_use(&mut self, node: &Tree, outer: Option<Frame<'_>>) -> Option<Tree> {
        let fragment = self.fragments.used_by(node)?;
        check_keys_or(entries(node, "a use", self.diagnostics), &USE_KEYS, help_for_key, self.diagnostics);
        let use_id = text_of(node, "id");
        if !is_id(use_id) {
            let span = node.member("id").map_or(node.span, |id| id.span);
            self.diagnostics.error("bad_id", span, "a use of a fragment needs a valid `id`", Some(ID_HELP.into()));
            return None;
        }
        let arguments = Arguments::read(node, fragment, outer.map(|frame| frame.arguments), self.diagnostics);
        let ids = self.new_ids(node, fragment);
        let old_ids = ids.iter().map(|(old, new)| (new.clone(), old.clone())).collect();
        let name = fragment.entry.key.to_string();
        let number = self.diagnostics.copies.add(FragmentCopy { use_id: use_id.to_owned(), fragment: name, old_ids });
        let copy = copied(&fragment.entry.value, number);
        let renaming = Renaming::new(&copy, &ids, self.catalog);
        let body = self.graph(&copy, Some(Frame { arguments: &arguments, renaming: &renaming }));
        let output = copy.member("output").map(|output| renaming.value(output, &[]));
        let [others, refused] = renaming.finish();
        for (path, span) in others.iter().filter(|(path, _)| path.root() == PARAMS) {
            arguments.check_path(path, *span, self.diagnostics);
        }
        for (path, span) in &refused {
            let message = format!("`{}` cannot be read in this form", for_message(&path.to_string()));
            let help = "write the id of the node, or `nodes[\"the-id\"]`, without parentheses around it";
            self.diagnostics.error("bad_expression", *span, message, Some(help.into()));
        }
        let span = node.member(USE_KEY)?.span;
        Some(scope(node, span, arguments.tree(span), (&body, output)))
    }

    /// Returns the ids of the nodes of a copy, by the ids in the fragment. Reports ids that are too long or taken.
    fn new_ids(&mut self, node: &Tree, fragment: &Fragment<'_>) -> HashMap<String, String> {
        let mut ids = HashMap::new();
        let of_use = text_of(node, "id");
        let span = node.member("id").map_or(node.span, |id| id.span);
        for old in nodes(&fragment.entry.value).into_iter().map(|node| text_of(node, "id")).filter(|id| is_id(id)) {
            let new = id_in_use(of_use, old);
            if ids.insert(old.to_owned(), new.clone()).is_some() {
                continue;
            }
            let (code, why) = if !is_id(&new) {
                ("bad_id", "has more than 64 characters")
            } else if !self.ids.insert(new.clone()) {
                ("duplicate_id", "is the id of another node")
            } else {
                continue;
            };
            let message =
                format!("the node `{old}` of the fragment `{}` gets the id `{new}`, which {why}", fragment.entry.key);
            self.diagnostics.error(code, span, message, Some("give the use another id".into()));
        }
        ids
    }
}

/// Returns a scope with the keys of a use.
fn scope(node: &Tree, span: Span, arguments: Tree, (body, output): (&Tree, Option<Tree>)) -> Tree {
    let entry = |key: &str, value: Tree| Entry { key: key.into(), key_span: span, value };
    let text = |text: &str| literal::text(text.to_owned(), span);
    let kept = match &node.kind {
        Kind::Map(entries) => entries.iter().filter(|entry| KEPT_KEYS.contains(&&*entry.key)).cloned().collect(),
        _ => Vec::new(),
    };
    let graph = match &body.kind {
        Kind::Map(entries) => {
            entries.iter().filter(|entry| matches!(&*entry.key, "nodes" | "edges")).cloned().collect()
        }
        _ => Vec::new(),
    };
    let input = literal::map(span, [("value", arguments), ("as", text(PARAMS))]);
    let own = [
        Some(entry("type", text(SCOPE_TYPE))),
        Some(entry("input", input)),
        Some(entry("body", Tree { span, kind: Kind::Map(graph) })),
        output.map(|output| entry("bodyOutput", output)),
    ];
    Tree { span: node.span, kind: Kind::Map(kept.into_iter().chain(own.into_iter().flatten()).collect()) }
}

/// Returns a copy of a tree whose places name a copy of a fragment.
fn copied(tree: &Tree, copy: u32) -> Tree {
    let kind = match &tree.kind {
        Kind::Scalar(json) => Kind::Scalar(Json::clone(json)),
        Kind::List(items) => Kind::List(items.iter().map(|item| copied(item, copy)).collect()),
        Kind::Map(entries) => {
            let entry = |entry: &Entry| Entry {
                key: entry.key.clone(),
                key_span: Span { copy, ..entry.key_span },
                value: copied(&entry.value, copy),
            };
            Kind::Map(entries.iter().map(entry).collect())
        }
    };
    Tree { span: Span { copy, ..tree.span }, kind }
}

fn help_for_key(entry: &Entry) -> Option<String> {
    let help = match &*entry.key {
        "type" => "a node has either `type` or `use`",
        "input" | "args" | "params" | "arguments" => "write the values of the parameters in `with`",
        "grants" | "config" | "promptFile" => "write it at a node of the fragment",
        "body" | "bodyOutput" => "the fragment is the body; its result is `output` in the fragment",
        _ => return None,
    };
    Some(help.to_owned())
}

/// Returns the id that a node of a fragment has in a use. An id without dashes can be the root of an expression, as the
/// variables of an owner need it.
pub fn id_in_use(of_use: &str, id: &str) -> String {
    format!("{}_{id}", of_use.replace('-', "_"))
}
