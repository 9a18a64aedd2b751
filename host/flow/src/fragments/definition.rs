//! Reads the fragments of a flow.

use flowcell_schema::Schema;
use indexmap::IndexMap;

use super::{PARAMS, USE_KEY, nodes, text_of, uses};
use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::{ID_HELP, RESERVED, check_keys, entries, for_message, is_id, is_name, map},
    limits,
    read::{self, FRAGMENTS_KEY},
    schema_check::{check_schema, is_bound, misfits},
    yaml::{Entry, Kind, Tree},
};

const FRAGMENT_KEYS: [&str; 5] = ["description", "params", "nodes", "edges", "output"];

/// A fragment as its flow defines it.
pub(super) struct Fragment<'t> {
    pub(super) entry: &'t Entry,
    pub(super) params: IndexMap<&'t str, Param<'t>>,
}

/// A parameter of a fragment.
pub(super) struct Param<'t> {
    pub(super) entry: &'t Entry,
    /// The schema as the fragment has it.
    pub(super) written: serde_json::Value,
    /// `None` if the schema is not valid, which is reported.
    pub(super) schema: Option<Schema>,
    pub(super) default: Option<&'t Tree>,
}

/// The fragments of a flow, by name.
#[derive(Default)]
pub(super) struct Fragments<'t>(pub(super) IndexMap<&'t str, Fragment<'t>>);

impl<'t> Fragments<'t> {
    /// Reads all fragments of a flow. Reports mistakes in them, and uses of unknown fragments.
    pub(super) fn read(flow: &'t Tree, diagnostics: &mut Diagnostics<'_>) -> Fragments<'t> {
        let mut fragments = Fragments::default();
        let members = map(flow, FRAGMENTS_KEY, diagnostics).map(|tree| entries(tree, "`fragments`", diagnostics));
        let members = members.unwrap_or_default();
        if members.len() > limits::FRAGMENTS {
            let message = format!("the flow has {} fragments", members.len());
            let help = Some(format!("use at most {}; move parts into other flows, and call these", limits::FRAGMENTS));
            diagnostics.error("too_large", members[limits::FRAGMENTS].key_span, message, help);
            return fragments;
        }
        for entry in members {
            if !is_id(&entry.key) {
                let message = format!("`{}` is not a valid name of a fragment", for_message(&entry.key));
                diagnostics.error("bad_name", entry.key_span, message, Some(ID_HELP.into()));
            }
            fragments.0.insert(&entry.key, Fragment { entry, params: read_params(entry, diagnostics) });
            check_nodes(entry, diagnostics);
        }
        let graphs = fragments.0.values().map(|fragment| &fragment.entry.value).chain([flow]);
        for node in graphs.flat_map(uses) {
            fragments.check_use(node, diagnostics);
        }
        let names_params = |node: &&Tree| text_of(node, "id") == PARAMS;
        if let Some(id) = nodes(flow).into_iter().find(names_params).and_then(|node| node.member("id")) {
            report_params(id, diagnostics);
        }
        fragments
    }

    /// Returns the fragment that a node uses. All names are known after [`Fragments::read`].
    pub(super) fn used_by(&self, node: &Tree) -> Option<&Fragment<'t>> {
        self.0.get(text_of(node, USE_KEY))
    }

    /// Warns of fragments that no use outside of themselves needs.
    pub(super) fn warn_of_unused(&self, flow: &Tree, diagnostics: &mut Diagnostics<'_>) {
        let mut used = vec![false; self.0.len()];
        let mut open: Vec<_> = uses(flow);
        while let Some(node) = open.pop() {
            let Some(index) = self.0.get_index_of(text_of(node, USE_KEY)) else { continue };
            if !std::mem::replace(&mut used[index], true) {
                open.extend(uses(&self.0[index].entry.value));
            }
        }
        for (fragment, _) in self.0.values().zip(used).filter(|(_, used)| !used) {
            let message = format!("nothing uses the fragment `{}`", fragment.entry.key);
            let help = format!("write a node `{{ id: …, use: {} }}`, or remove the fragment", fragment.entry.key);
            diagnostics.warning("unused_fragment", fragment.entry.key_span, message, Some(help));
        }
    }

    fn check_use(&self, node: &Tree, diagnostics: &mut Diagnostics<'_>) {
        let Some(name) = node.member(USE_KEY) else { return };
        let Some(text) = name.text() else {
            let message = format!("`use` must be the name of a fragment, not {}", name.type_name());
            return diagnostics.error("wrong_type", name.span, message, Some("write `use: NAME`".into()));
        };
        if !self.0.contains_key(text) {
            let names = self.0.keys().copied();
            let help = did_you_mean(text, names.clone()).unwrap_or_else(|| match self.0.is_empty() {
                true => "add it under `fragments:` beside `nodes:`; a type of node is `type: …`".to_owned(),
                false => format!("the fragments are {}", names.map(for_message).collect::<Vec<_>>().join(", ")),
            });
            diagnostics.error(
                "unknown_fragment",
                name.span,
                format!("unknown fragment `{}`", for_message(text)),
                Some(help),
            );
        }
    }
}

fn read_params<'t>(fragment: &'t Entry, diagnostics: &mut Diagnostics<'_>) -> IndexMap<&'t str, Param<'t>> {
    let mut params = IndexMap::new();
    check_keys(entries(&fragment.value, "a fragment", diagnostics), &FRAGMENT_KEYS, diagnostics);
    let Some(tree) = map(&fragment.value, PARAMS, diagnostics) else { return params };
    let members = entries(tree, "`params`", diagnostics);
    if members.len() > limits::FRAGMENT_PARAMS {
        let message = format!("the fragment `{}` has {} parameters", for_message(&fragment.key), members.len());
        let help = Some(format!("use at most {}; put several into one object", limits::FRAGMENT_PARAMS));
        diagnostics.error("too_large", tree.span, message, help);
        return params;
    }
    for entry in members {
        if !is_name(&entry.key) {
            let message = format!("`{}` is not a valid name of a parameter", for_message(&entry.key));
            let help = format!("use letters, digits and `_`, and no word such as {}", RESERVED[..3].join(", "));
            diagnostics.error("bad_name", entry.key_span, message, Some(help));
        }
        let what = format!("the parameter `{}`", for_message(&entry.key));
        if !matches!(entry.value.kind, Kind::Map(_)) {
            entries(&entry.value, &what, diagnostics);
            continue;
        }
        let default = entry.value.member("default");
        let schema = check_schema(&entry.value, &format!("the schema of {what}"), diagnostics);
        if let Some(default) = default {
            check_default(default, schema.as_ref(), &what, diagnostics);
        }
        let written = entry.value.json().to_serde();
        params.insert(&*entry.key, Param { entry, written, schema, default });
    }
    params
}

fn check_default(default: &Tree, schema: Option<&Schema>, what: &str, diagnostics: &mut Diagnostics<'_>) {
    if is_bound(default) {
        let message = format!("the default of {what} must be literal");
        let help = "leave the default out, and give the value in `with`";
        return diagnostics.error("literal_needed", default.span, message, Some(help.into()));
    }
    for (span, cause) in misfits(default, schema, &format!("the schema of {what}"), diagnostics) {
        let message = format!("the default does not match the schema of {what}: {cause}");
        diagnostics.error("wrong_default", span, message, Some("change the default, or the schema".into()));
    }
}

/// Reports a fragment without nodes, and ids that have another meaning in expressions.
fn check_nodes(fragment: &Entry, diagnostics: &mut Diagnostics<'_>) {
    let nodes = nodes(&fragment.value);
    if nodes.is_empty() && matches!(fragment.value.kind, Kind::Map(_)) {
        let message = format!("the fragment `{}` has no nodes", for_message(&fragment.key));
        let help = Some("add `nodes:` and a list of `{ id, type }`".into());
        diagnostics.error("missing_key", fragment.key_span, message, help);
    }
    for id in nodes.iter().filter_map(|node| node.member("id")) {
        match id.text() {
            Some(PARAMS) => report_params(id, diagnostics),
            // The copies of a node get other ids, which are not reserved.
            Some(text) if is_id(text) => read::check_id(text, id.span, diagnostics),
            _ => {}
        }
    }
}

fn report_params(id: &Tree, diagnostics: &mut Diagnostics<'_>) {
    let message = "`params` stands for the parameters of a fragment, so no node of this flow can have this id";
    diagnostics.error("reserved_id", id.span, message, Some("choose another id, such as `params1`".into()));
}
