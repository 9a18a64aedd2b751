//! Reads the steps dialect from a YAML tree. Reports unknown keys and wrong types.

use std::collections::{HashMap, HashSet};

use super::reference::is_word;
use crate::{
    diagnostic::Diagnostics,
    fields::{
        ID_HELP, check_keys, check_keys_or, entries, flow_name, for_message, is_flow_name, is_id, list, map, required,
        text,
    },
    key_hints,
    yaml::{Kind, Span, Tree},
};

/// A flow as its file defines it.
pub(super) struct RawSteps<'t> {
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// Names of the required inputs.
    pub(super) inputs: Vec<String>,
    pub(super) steps: Vec<RawStep<'t>>,
    pub(super) output: Option<&'t Tree>,
    pub(super) head: Span,
}

/// A step as its file defines it.
pub(super) struct RawStep<'t> {
    pub(super) id: String,
    pub(super) id_span: Span,
    pub(super) tool: (String, Span),
    pub(super) params: Option<&'t Tree>,
    pub(super) grants: Option<&'t Tree>,
    pub(super) save_as: Option<(String, Span)>,
}

impl RawSteps<'_> {
    /// Returns true if every step has a distinct id.
    pub(super) fn has_ids(&self) -> bool {
        let mut ids = HashSet::new();
        self.steps.iter().all(|step| !step.id.is_empty() && ids.insert(step.id.as_str()))
    }
}

impl RawStep<'_> {
    /// Returns the name under which later steps find the result.
    pub(super) fn saved_as(&self) -> &str {
        self.save_as.as_ref().map_or(&self.id, |(name, _)| name)
    }
}

const TOP_LEVEL_KEYS: [&str; 5] = ["name", "description", "inputs", "steps", "output"];
const STEP_KEYS: [&str; 5] = ["id", "tool", "params", "save_as", "grants"];
/// Keys that distinguish a step of this dialect from those of others.
const DISTINCTIVE_STEP_KEYS: [&str; 3] = ["tool", "params", "save_as"];
/// Keys of other workflow formats, and the Flowcell keys that replace them.
const RENAMED: [(&str, &str); 8] = [
    ("type", "tool"),
    ("name", "id"),
    ("input", "params"),
    ("inputs", "params"),
    ("args", "params"),
    ("with", "params"),
    ("saveAs", "save_as"),
    ("output", "save_as"),
];

/// Returns true if the text is a flow of this dialect: top-level `steps` with tools, and neither `flow` nor `nodes`.
/// `steps` may have a wrong type.
pub(crate) fn is_steps(tree: &Tree) -> bool {
    let Some(steps) = tree.member("steps") else { return false };
    let is_own = |step: &Tree| DISTINCTIVE_STEP_KEYS.iter().any(|key| step.member(key).is_some());
    let own = match &steps.kind {
        Kind::List(items) => items.is_empty() || items.iter().any(is_own),
        Kind::Map(entries) => is_own(steps) || entries.iter().any(|entry| is_own(&entry.value)),
        _ => false,
    };
    own && ["flow", "nodes"].iter().all(|key| tree.member(key).is_none())
}

/// Reads a flow.
pub(super) fn read<'t>(tree: &'t Tree, diagnostics: &mut Diagnostics<'_>) -> RawSteps<'t> {
    check_keys(entries(tree, "a flow", diagnostics), &TOP_LEVEL_KEYS, diagnostics);
    let name = flow_name(tree, diagnostics);
    let written = list(tree, "steps", diagnostics);
    if let Some(steps) =
        tree.member("steps").filter(|steps| matches!(&steps.kind, Kind::List(items) if items.is_empty()))
    {
        let help = "write `steps:` and a list of `{ id, tool, params }`";
        diagnostics.error("no_steps", steps.span, "the flow has no steps", Some(help.into()));
    }
    let steps: Vec<_> = written.iter().filter_map(|step| read_step(step, diagnostics)).collect();
    check_names(&steps, diagnostics);
    RawSteps {
        name,
        description: text_or_null(tree, "description", diagnostics).map(|(text, _)| text),
        inputs: read_inputs(tree, diagnostics),
        steps,
        output: tree.member("output").filter(|output| !is_null(output)),
        head: tree.span,
    }
}

fn read_inputs(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Vec<String> {
    let mut inputs: Vec<String> = Vec::new();
    for item in list(tree, "inputs", diagnostics) {
        let Some(name) = item.text() else {
            let message = format!("`inputs` must be a list of names, but an item is {}", item.type_name());
            diagnostics.error("wrong_type", item.span, message, Some("write `inputs: [start_date, end_date]`".into()));
            continue;
        };
        if !is_word(name) {
            let help = Some("use letters, digits, `_` and `-`, so that `$inputs.…` can refer to it".into());
            diagnostics.error(
                "bad_name",
                item.span,
                format!("`{}` is not a valid input name", for_message(name)),
                help,
            );
        } else if inputs.iter().any(|known| known == name) {
            let help = Some("remove one of them".into());
            diagnostics.error("duplicate_input", item.span, format!("the input `{name}` is listed twice"), help);
        } else {
            inputs.push(name.to_owned());
        }
    }
    inputs
}

fn read_step<'t>(tree: &'t Tree, diagnostics: &mut Diagnostics<'_>) -> Option<RawStep<'t>> {
    if !matches!(tree.kind, Kind::Map(_)) {
        let message = format!("a step must be a map, not {}", tree.type_name());
        diagnostics.error("wrong_type", tree.span, message, Some("write `{ id: …, tool: … }`".into()));
        return None;
    }
    check_keys_or(
        entries(tree, "a step", diagnostics),
        &STEP_KEYS,
        |entry| key_hints::renamed(entry, &RENAMED),
        diagnostics,
    );
    let (id, id_span) = required(tree, "id", "step", diagnostics);
    if !id.is_empty() && !is_id(&id) {
        let message = format!("`{}` is not a valid step id", for_message(&id));
        diagnostics.error("bad_id", id_span, message, Some(ID_HELP.into()));
    }
    let save_as = text_or_null(tree, "save_as", diagnostics);
    if let Some((name, span)) = save_as.as_ref().filter(|(name, _)| !is_flow_name(name)) {
        let help = Some("use letters, digits, `_` and `-`, at most 64 characters".into());
        diagnostics.error(
            "bad_name",
            *span,
            format!("`{}` is not a valid name for `save_as`", for_message(name)),
            help,
        );
    }
    let given = |key: &str| tree.member(key).filter(|member| !is_null(member)).map(|_| key.to_owned());
    let mut map_of = |key: &str| given(key).and_then(|key| map(tree, &key, diagnostics));
    let (params, grants) = (map_of("params"), map_of("grants"));
    let tool = required(tree, "tool", "step", diagnostics);
    Some(RawStep { id, id_span, tool, params, grants, save_as })
}

/// Reports duplicate ids. Warns of a name that is saved again, because the earlier result becomes unavailable.
fn check_names(steps: &[RawStep<'_>], diagnostics: &mut Diagnostics<'_>) {
    let (mut ids, mut saved) = (HashSet::new(), HashMap::new());
    for step in steps.iter().filter(|step| !step.id.is_empty()) {
        if !ids.insert(step.id.as_str()) {
            let help = Some("change one of the ids".into());
            diagnostics.error(
                "duplicate_id",
                step.id_span,
                format!("two steps have the id `{}`", for_message(&step.id)),
                help,
            );
        } else if let Some(before) = saved.insert(step.saved_as(), &step.id) {
            let name = for_message(step.saved_as());
            let span = step.save_as.as_ref().map_or(step.id_span, |(_, span)| *span);
            let message = format!("`{}` already saves `$ctx.{name}`; from here on it is this step's result", before);
            diagnostics.warning("saved_again", span, message, Some("use another name to keep both results".into()));
        }
    }
}

/// Returns a text member; null counts as missing.
fn text_or_null(tree: &Tree, key: &str, diagnostics: &mut Diagnostics<'_>) -> Option<(String, Span)> {
    tree.member(key).filter(|member| !is_null(member))?;
    text(tree, key, diagnostics)
}

fn is_null(tree: &Tree) -> bool {
    matches!(&tree.kind, Kind::Scalar(json) if json.is_null())
}
