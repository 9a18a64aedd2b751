//! Bounds the size that a flow has when the uses of its fragments are written out.

use std::collections::BTreeMap;

use flowcell_contract::Json;

use super::{USE_KEY, definition::Fragments, nodes_with_levels, text_of};
use crate::{
    diagnostic::Diagnostics,
    fields::for_message,
    limits,
    read::FRAGMENTS_KEY,
    yaml::{Kind, Tree},
};

/// The size of a graph.
#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    /// Number of values in the text of a flow.
    values: usize,
    /// Bytes of the texts among them.
    bytes: usize,
    /// Number of bodies inside each other, without those that list ids. The check of the graph counts these, too.
    depth: usize,
}

impl Size {
    /// Adds the fragment that a node uses. `level` is the number of bodies around the node.
    fn add(&mut self, level: usize, inner: Size) {
        self.nodes = self.nodes.saturating_add(inner.nodes);
        self.values = self.values.saturating_add(inner.values);
        self.bytes = self.bytes.saturating_add(inner.bytes);
        self.depth = self.depth.max(level + 1 + inner.depth);
    }
}

/// Measures fragments, each once.
struct Sizes<'f, 't> {
    fragments: &'f Fragments<'t>,
    /// The size of each fragment with those that it uses.
    known: BTreeMap<&'f str, Size>,
    /// The fragments that are measured at the moment, the outermost first.
    open: Vec<&'f str>,
    has_cycle: bool,
}

/// The size that arguments may add to a flow when they take the places of parameters.
pub(super) struct Budget {
    values: usize,
    bytes: usize,
    is_used_up: bool,
}

impl Budget {
    /// Subtracts the size of a value that takes the place of a parameter. Returns `None` for the first value that does
    /// not fit, which it reports at the use of the fragment, and for all later ones.
    pub(super) fn spend(&mut self, value: &Json, using: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<()> {
        if self.is_used_up {
            return None;
        }
        let (values, bytes) = values_of_json(value);
        let (what, most) = match (self.values.checked_sub(values), self.bytes.checked_sub(bytes)) {
            (Some(values), Some(bytes)) => {
                (self.values, self.bytes) = (values, bytes);
                return Some(());
            }
            (None, _) => ("values", limits::DOCUMENT_NODES),
            (_, None) => ("bytes", limits::DOCUMENT_BYTES),
        };
        self.is_used_up = true;
        let (id, fragment) = (for_message(text_of(using, "id")), for_message(text_of(using, USE_KEY)));
        let message = format!(
            "the flow has more than {most} {what} when the arguments of the use `{id}` of `{fragment}` take the places \
             of parameters"
        );
        let help = "pass smaller values, or read them in fewer parts that must be literal";
        diagnostics.error("too_large", using.span, message, Some(help.into()));
        None
    }
}

/// Checks that a flow is within the limits after all uses are written out, and returns what is left of them. Reports
/// fragments that use themselves, and a flow that is too large or too deep, and returns `None` for them.
pub(super) fn check_size(flow: &Tree, fragments: &Fragments<'_>, diagnostics: &mut Diagnostics<'_>) -> Option<Budget> {
    let mut sizes = Sizes { fragments, known: BTreeMap::new(), open: Vec::new(), has_cycle: false };
    for name in fragments.0.keys() {
        sizes.fragment(name, diagnostics);
    }
    if sizes.has_cycle {
        return None;
    }
    let mut whole = own_size(flow);
    if let Some(definitions) = flow.member(FRAGMENTS_KEY) {
        let (values, bytes) = values(definitions);
        (whole.values, whole.bytes) = (whole.values - values, whole.bytes - bytes);
    }
    let mut largest: Option<(&Tree, Size)> = None;
    for (level, node) in nodes_with_levels(flow, 0) {
        let Some((name, _)) = fragments.0.get_key_value(text_of(node, USE_KEY)) else { continue };
        let size = sizes.fragment(name, diagnostics);
        whole.add(level, size);
        let depth = level + 1 + size.depth;
        if depth > limits::BODY_DEPTH {
            report_depth(node, depth, diagnostics);
            return None;
        }
        if largest.is_none_or(|(_, other)| (other.nodes, other.bytes) < (size.nodes, size.bytes)) {
            largest = Some((node, size));
        }
    }
    let (what, number, most) = match whole {
        Size { nodes, .. } if nodes > limits::NODES => ("nodes", nodes, limits::NODES),
        Size { values, .. } if values > limits::DOCUMENT_NODES => ("values", values, limits::DOCUMENT_NODES),
        Size { bytes, .. } if bytes > limits::DOCUMENT_BYTES => ("bytes", bytes, limits::DOCUMENT_BYTES),
        Size { values, bytes, .. } => {
            let (values, bytes) = (limits::DOCUMENT_NODES - values, limits::DOCUMENT_BYTES - bytes);
            return Some(Budget { values, bytes, is_used_up: false });
        }
    };
    let (node, size) = largest?;
    let added = match what {
        "nodes" => size.nodes,
        "values" => size.values,
        _ => size.bytes,
    };
    let (id, fragment) = (for_message(text_of(node, "id")), for_message(text_of(node, USE_KEY)));
    let message = format!(
        "the flow has {number} {what} when its fragments are written out; the use `{id}` of `{fragment}` adds {added}"
    );
    let help = format!("use at most {most}; put a part into a flow of its own, and call it with `control.subflow`");
    diagnostics.error("too_large", node.span, message, Some(help));
    None
}

fn report_depth(node: &Tree, depth: usize, diagnostics: &mut Diagnostics<'_>) {
    let (id, fragment) = (for_message(text_of(node, "id")), for_message(text_of(node, USE_KEY)));
    let message = format!("bodies are nested {depth} levels deep when the use `{id}` of `{fragment}` is written out");
    let most = limits::BODY_DEPTH;
    let help = format!("use at most {most}; put a part into a flow of its own, and call it with `control.subflow`");
    diagnostics.error("too_deep", node.span, message, Some(help));
}

impl<'f> Sizes<'f, '_> {
    fn fragment(&mut self, name: &'f str, diagnostics: &mut Diagnostics<'_>) -> Size {
        let Some(fragment) = self.fragments.0.get(name) else { return Size::default() };
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        if let Some(at) = self.open.iter().position(|open| *open == name) {
            let chain: Vec<_> = self.open[at..].iter().chain([&name]).map(|name| for_message(name)).collect();
            let message = format!("the fragment `{}` uses itself: {}", for_message(name), chain.join(" -> "));
            let help = "repeat nodes with `control.loop`, or with a cycle of edges";
            diagnostics.error("fragment_cycle", fragment.entry.key_span, message, Some(help.into()));
            self.has_cycle = true;
            return Size::default();
        }
        self.open.push(name);
        let mut size = own_size(&fragment.entry.value);
        for (level, node) in nodes_with_levels(&fragment.entry.value, 0) {
            if self.has_cycle {
                break;
            }
            let Some((name, _)) = self.fragments.0.get_key_value(text_of(node, USE_KEY)) else { continue };
            size.add(level, self.fragment(name, diagnostics));
        }
        self.open.pop();
        self.known.insert(name, size);
        size
    }
}

/// Returns the size of a graph without the fragments that it uses.
fn own_size(graph: &Tree) -> Size {
    let (values, bytes) = values(graph);
    let nodes = nodes_with_levels(graph, 0);
    Size { nodes: nodes.len(), values, bytes, depth: nodes.iter().map(|(level, _)| *level).max().unwrap_or_default() }
}

/// Returns the number of values in a tree, and the bytes of its texts.
fn values(tree: &Tree) -> (usize, usize) {
    let add = |(values, bytes): (usize, usize), part: &Tree| {
        let (more, longer) = self::values(part);
        (values + more, bytes + longer)
    };
    match &tree.kind {
        Kind::Scalar(json) => (1, json.as_str().map_or(0, str::len)),
        Kind::List(items) => items.iter().fold((1, 0), add),
        Kind::Map(entries) => entries.iter().map(|entry| &entry.value).fold((1, 0), add),
    }
}

/// Returns the number of values in a value, and the bytes of its texts and keys: a value that takes the place of a
/// parameter has copies of both.
fn values_of_json(value: &Json) -> (usize, usize) {
    let add = |(values, bytes): (usize, usize), part: &Json| {
        let (more, longer) = values_of_json(part);
        (values + more, bytes + longer)
    };
    match value {
        Json::String(text) => (1, text.len()),
        Json::Array(items) => items.iter().fold((1, 0), add),
        Json::Object(members) => {
            members.iter().fold((1, 0), |(values, bytes), (key, part)| add((values, bytes + key.len()), part))
        }
        _ => (1, 0),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{CheckMode, yaml};

    /// The budget may be used up completely. Only the first value beyond it is reported, and none fits after it.
    #[test]
    fn a_budget_ends_with_the_first_value_that_does_not_fit() {
        let using = yaml::parse("{ id: u, use: f }").ok().unwrap();
        for (beyond, message) in [(r#""a""#, "4194304 bytes"), ("[7, 7]", "500000 values")] {
            let mut diagnostics = Diagnostics::new("flow.yaml", "", CheckMode::New);
            let mut budget = Budget { values: 4, bytes: 4, is_used_up: false };
            for (value, fits) in [(r#""abcd""#, true), ("7", true), (beyond, false), ("7", false)] {
                let value = Json::parse(value).unwrap();
                assert_eq!(budget.spend(&value, &using, &mut diagnostics).is_some(), fits, "{value}");
            }
            let [found] = &diagnostics.finish()[..] else { panic!("there is one diagnostic") };
            let start = format!("the flow has more than {message} when the arguments of the use `u` of `f`");
            assert!(found.code == "too_large" && found.message.starts_with(&start), "{found}");
        }
    }

    #[test]
    fn values_and_bytes_of_json_count_keys() {
        for (text, expected) in [
            ("7", (1, 0)),
            (r#""é""#, (1, 2)),
            (r#"[1, "ab", []]"#, (4, 2)),
            (r#"{ "key": { "k": "v" }, "l": null }"#, (4, 6)),
        ] {
            assert_eq!(values_of_json(&Json::parse(text).unwrap()), expected, "{text}");
        }
    }
}
