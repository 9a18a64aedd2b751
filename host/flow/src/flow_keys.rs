//! Detects texts that are not flows. Such a text gets one diagnostic for the whole text, not one for each of its keys.

use crate::{
    diagnostic::Diagnostics,
    fields::{for_message, is_flow_name},
    yaml::{Entry, Kind, Span, Tree},
};

/// Keys of other tools that correspond to `nodes`.
const STEPS: [&str; 4] = ["steps", "tasks", "jobs", "stages"];

/// Returns true if a text is a flow or similar to one. Otherwise reports an error and returns false.
pub(crate) fn is_flow(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> bool {
    match &tree.kind {
        Kind::Map(top) if !top.is_empty() => match foreign(top) {
            Some(keys) => report_not_a_flow(top, &keys, diagnostics),
            None => return true,
        },
        Kind::List(_) => report_not_a_map(tree, diagnostics),
        Kind::Scalar(json) if !json.is_null() => report_not_a_map(tree, diagnostics),
        _ => {
            let start = Span { line: 1, column: 1, ..Span::default() };
            diagnostics.error("empty_flow", start, "this file contains no flow", Some(minimal_flow_help(None)));
        }
    }
    false
}

fn report_not_a_map(tree: &Tree, diagnostics: &mut Diagnostics<'_>) {
    let message = format!("a flow must be a map, not {}", tree.type_name());
    diagnostics.error("wrong_type", tree.span, message, Some(minimal_flow_help(None)));
}

fn report_not_a_flow(top: &[Entry], keys: &[&Entry], diagnostics: &mut Diagnostics<'_>) {
    let named: Vec<_> = keys.iter().map(|entry| format!("`{}`", entry.key)).collect();
    let message = format!("a flow needs `flow` and `nodes`, but this file has {}", named.join(", "));
    diagnostics.error("not_a_flow", keys[0].key_span, message, Some(minimal_flow_help(name_in(top))));
}

/// Returns the top-level keys that other tools use in place of `flow` and `nodes`: `name` and those in [`STEPS`].
/// Returns `None` if the text has `flow` or `nodes`, or none of these keys.
fn foreign(top: &[Entry]) -> Option<Vec<&Entry>> {
    if top.iter().any(|entry| matches!(&*entry.key, "flow" | "nodes")) {
        return None;
    }
    let foreign: Vec<_> = top.iter().filter(|entry| &*entry.key == "name" || is_steps(entry)).collect();
    (!foreign.is_empty()).then_some(foreign)
}

fn is_steps(entry: &Entry) -> bool {
    STEPS.contains(&&*entry.key)
}

/// Returns the top-level name if it is a valid flow name.
fn name_in(top: &[Entry]) -> Option<&str> {
    let name = top.iter().find(|entry| &*entry.key == "name")?;
    name.value.text().filter(|name| is_flow_name(name))
}

/// Returns a help text with a minimal flow.
fn minimal_flow_help(name: Option<&str>) -> String {
    let name = name.unwrap_or("my-flow");
    format!("write `flow: {{ name: {name} }}`, and on the next line `nodes: [{{ id: first, type: control.noop }}]`")
}

/// The top-level keys that stand in place of a missing `flow` (`name`) or `nodes` (those in [`STEPS`]). Each of them
/// gets one error, which also reports the missing key.
pub(crate) struct MisplacedKeys<'t> {
    /// The key `name`, if `flow` is missing.
    pub(crate) flow: Option<&'t Entry>,
    /// A key of [`STEPS`], if `nodes` is missing.
    pub(crate) nodes: Option<&'t Entry>,
}

impl<'t> MisplacedKeys<'t> {
    /// Finds the keys that stand in place of a missing `flow` or `nodes`.
    pub(crate) fn find(top: &'t [Entry]) -> MisplacedKeys<'t> {
        let lacks = |key: &str| top.iter().all(|entry| &*entry.key != key);
        let name = top.iter().find(|entry| &*entry.key == "name" && lacks("flow"));
        let steps = top.iter().find(|entry| is_steps(entry) && lacks("nodes"));
        MisplacedKeys { flow: name, nodes: steps }
    }

    /// Reports each key with the correct one as help.
    pub(crate) fn report(&self, diagnostics: &mut Diagnostics<'_>) {
        if let Some(entry) = self.flow {
            let name = entry.value.text().map_or("my-flow".into(), for_message);
            let help = format!("write `flow: {{ name: {name} }}`");
            let message = "the key `flow` is missing; `name` belongs in it";
            diagnostics.error("missing_key", entry.key_span, message, Some(help));
        }
        if let Some(entry) = self.nodes {
            let message = format!("the key `nodes` is missing; a flow has no key `{}`", entry.key);
            let help = "write `nodes:` and a list of `{ id, type }`".to_owned();
            diagnostics.error("missing_key", entry.key_span, message, Some(help));
        }
    }

    /// Returns the reported keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'t str> {
        [self.flow, self.nodes].into_iter().flatten().map(|entry| &*entry.key)
    }
}
