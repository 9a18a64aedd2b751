//! Bounds the size that a flow has when the uses of its fragments are written out.

use std::collections::BTreeMap;

use super::{USE_KEY, definition::Fragments, nodes, text_of, uses};
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
}

impl Size {
    fn add(&mut self, inner: Size) {
        self.nodes = self.nodes.saturating_add(inner.nodes);
        self.values = self.values.saturating_add(inner.values);
        self.bytes = self.bytes.saturating_add(inner.bytes);
    }
}

/// Measures fragments, each once.
struct Sizes<'f, 't> {
    fragments: &'f Fragments<'t>,
    /// The size of each fragment with those that it uses.
    known: BTreeMap<&'f str, Size>,
    /// The fragments that are measured at the moment, the outermost first.
    open: Vec<&'f str>,
    is_within_limits: bool,
}

/// Returns true if the flow is within the limits after all uses are written out. Reports fragments that use themselves, and
/// a flow that is too large.
pub(super) fn is_within_limits(flow: &Tree, fragments: &Fragments<'_>, diagnostics: &mut Diagnostics<'_>) -> bool {
    let mut sizes = Sizes { fragments, known: BTreeMap::new(), open: Vec::new(), is_within_limits: true };
    for name in fragments.0.keys() {
        sizes.fragment(name, diagnostics);
    }
    if !sizes.is_within_limits {
        return false;
    }
    let mut whole = own_size(flow);
    if let Some(definitions) = flow.member(FRAGMENTS_KEY) {
        let (values, bytes) = values(definitions);
        (whole.values, whole.bytes) = (whole.values - values, whole.bytes - bytes);
    }
    let mut largest: Option<(&Tree, Size)> = None;
    for node in uses(flow) {
        let Some((name, _)) = fragments.0.get_key_value(text_of(node, USE_KEY)) else { continue };
        let size = sizes.fragment(name, diagnostics);
        whole.add(size);
        if largest.is_none_or(|(_, other)| (other.nodes, other.bytes) < (size.nodes, size.bytes)) {
            largest = Some((node, size));
        }
    }
    let (what, number, most) = match whole {
        Size { nodes, .. } if nodes > limits::NODES => ("nodes", nodes, limits::NODES),
        Size { values, .. } if values > limits::DOCUMENT_NODES => ("values", values, limits::DOCUMENT_NODES),
        Size { bytes, .. } if bytes > limits::DOCUMENT_BYTES => ("bytes", bytes, limits::DOCUMENT_BYTES),
        _ => return true,
    };
    let Some((node, size)) = largest else { return true };
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
    false
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
            self.is_within_limits = false;
            return Size::default();
        }
        self.open.push(name);
        let mut size = own_size(&fragment.entry.value);
        for node in uses(&fragment.entry.value) {
            if !self.is_within_limits {
                break;
            }
            let Some((name, _)) = self.fragments.0.get_key_value(text_of(node, USE_KEY)) else { continue };
            size.add(self.fragment(name, diagnostics));
        }
        self.open.pop();
        self.known.insert(name, size);
        size
    }
}

fn own_size(graph: &Tree) -> Size {
    let (values, bytes) = values(graph);
    Size { nodes: nodes(graph).len(), values, bytes }
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
