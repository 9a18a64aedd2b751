//! Whether a text is meant as a flow at all: one that is not gets one finding, not one for every key of it.

use crate::{
    diagnostic::Findings,
    fields::{is_flow_name, shown},
    yaml::{Entry, Kind, Span, Tree},
};

/// Keys under which others write what is `nodes` here.
const STEPS: [&str; 4] = ["steps", "tasks", "jobs", "stages"];

/// Whether a text is written as a flow, or nearly so. If not, that is a finding.
pub(crate) fn is_flow(tree: &Tree, findings: &mut Findings<'_>) -> bool {
    match &tree.kind {
        Kind::Map(top) if !top.is_empty() => match foreign(top) {
            Some(keys) => not_a_flow(top, &keys, findings),
            None => return true,
        },
        Kind::List(_) => not_a_map(tree, findings),
        Kind::Scalar(json) if !json.is_null() => not_a_map(tree, findings),
        _ => {
            let start = Span { line: 1, column: 1, len: 0, start: 0 };
            findings.error("empty_flow", start, "there is no flow in this file", Some(smallest(None)));
        }
    }
    false
}

fn not_a_map(tree: &Tree, findings: &mut Findings<'_>) {
    let message = format!("a flow is a map, this is {}", tree.type_name());
    findings.error("wrong_type", tree.span, message, Some(smallest(None)));
}

fn not_a_flow(top: &[Entry], keys: &[&Entry], findings: &mut Findings<'_>) {
    let named: Vec<_> = keys.iter().map(|entry| format!("`{}`", entry.key)).collect();
    let message = format!("a flow is written with `flow` and `nodes`, this has {}", named.join(", "));
    findings.error("not_a_flow", keys[0].key_span, message, Some(smallest(name_in(top))));
}

/// What stands in place of `flow` and `nodes`, if neither is there.
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

/// The name at the top of a text, if a flow can have it.
fn name_in(top: &[Entry]) -> Option<&str> {
    let name = top.iter().find(|entry| &*entry.key == "name")?;
    name.value.text().filter(|name| is_flow_name(name))
}

/// How the smallest flow is written.
fn smallest(name: Option<&str>) -> String {
    let name = name.unwrap_or("my-flow");
    format!("write `flow: {{ name: {name} }}`, and in a line below it `nodes: [{{ id: first, type: control.noop }}]`")
}

/// The keys of a flow's top that stand in place of `flow` or of `nodes`, of which one is there. Each is a finding, and
/// the missing key is none beside it.
pub(crate) struct StandIns<'t> {
    /// In place of `flow`.
    pub(crate) flow: Option<&'t Entry>,
    /// In place of `nodes`.
    pub(crate) nodes: Option<&'t Entry>,
}

impl<'t> StandIns<'t> {
    /// Finds what stands in place of missing keys.
    pub(crate) fn find(top: &'t [Entry]) -> StandIns<'t> {
        let lacks = |key: &str| top.iter().all(|entry| &*entry.key != key);
        let name = top.iter().find(|entry| &*entry.key == "name" && lacks("flow"));
        let steps = top.iter().find(|entry| is_steps(entry) && lacks("nodes"));
        StandIns { flow: name, nodes: steps }
    }

    /// Tells what to write in their place.
    pub(crate) fn tell(&self, findings: &mut Findings<'_>) {
        if let Some(entry) = self.flow {
            let name = entry.value.text().map_or("my-flow".into(), shown);
            let help = format!("write `flow: {{ name: {name} }}`");
            let message = "the key `flow` is missing, and `name` stands in it";
            findings.error("missing_key", entry.key_span, message, Some(help));
        }
        if let Some(entry) = self.nodes {
            let message = format!("the key `nodes` is missing, and `{}` is none of a flow's", entry.key);
            let help = "write `nodes:` and a list of `{ id, type }`".to_owned();
            findings.error("missing_key", entry.key_span, message, Some(help));
        }
    }

    /// The keys that are told already.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'t str> {
        [self.flow, self.nodes].into_iter().flatten().map(|entry| &*entry.key)
    }
}
