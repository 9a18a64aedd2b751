//! Reads edges in all forms: maps, texts such as `fetch -> check -> pay` or `check -> refuse: error`, and the key
//! `after` of nodes.

use std::{borrow::Cow, ops::Range, slice};

use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::{check_keys_or, entries, flag, for_message, is_id, list, required, text, whole_number},
    graph::On,
    key_hints, limits,
    yaml::{Kind, Span, Tree, place},
};

/// An edge as its file defines it.
pub(crate) struct RawEdge<'t> {
    pub(crate) from: (String, Span),
    pub(crate) to: (String, Span),
    pub(crate) on: On,
    pub(crate) when: Option<Cow<'t, Tree>>,
    /// The text behind the colon of an edge in text. The module `ports` replaces it with `on` or `when`, and leaves one whose
    /// meaning is unknown.
    pub(crate) label: Option<(String, Span)>,
    /// True for an edge in text, and for one of the key `after`.
    pub(crate) is_short: bool,
    /// True for `inbound: false`: the edge orders its nodes, and its source is not in `inbound` and `inbounds`.
    pub(crate) orders_only: bool,
    /// Maximum number of passes of the cycle that the edge closes, and the place of this number.
    pub(crate) max_passes: Option<(u32, Span)>,
    pub(crate) span: Span,
}

const KEYS: [&str; 6] = ["from", "to", "on", "when", INBOUND_KEY, MAX_PASSES_KEY];
/// The key that takes an edge out of `inbound` and `inbounds`.
pub(crate) const INBOUND_KEY: &str = "inbound";
/// The key for the maximum number of passes of a cycle.
pub(crate) const MAX_PASSES_KEY: &str = "maxPasses";
/// Maximum number of passes of a cycle, if the flow sets none.
pub(crate) const DEFAULT_MAX_PASSES: u32 = 100;
const ARROW: &str = "->";
/// Maximum number of ids in a text that get a place of their own in diagnostics. To find a place takes time in proportion to
/// the text; longer chains have the place of the whole text.
const MAX_PLACED_IDS: usize = 32;
/// The names of [`On`].
pub(crate) const OUTCOMES: [&str; 3] = ["success", "error", "end"];

/// Reads the list `edges` of a flow or a body.
pub(crate) fn read<'t>(tree: &'t Tree, edges: &mut Vec<RawEdge<'t>>, diagnostics: &mut Diagnostics<'_>) {
    for item in list(tree, "edges", diagnostics) {
        read_item(item, edges, diagnostics);
    }
}

/// Reads one item of a list `edges`.
pub(crate) fn read_item<'t>(item: &'t Tree, edges: &mut Vec<RawEdge<'t>>, diagnostics: &mut Diagnostics<'_>) {
    match (&item.kind, item.text()) {
        (Kind::Map(_), _) => edges.extend(read_map(item, diagnostics)),
        (_, Some(text)) => read_text(item, text, edges, diagnostics),
        _ => {
            let message = format!("an edge must be a map or a text, not {}", item.type_name());
            let help = Some("write `{ from: …, to: … }`, or \"… -> …\"".into());
            diagnostics.error("wrong_type", item.span, message, help);
        }
    }
}

/// Reads the key `after` of a node: the id of a node, or a list of ids. Each gives an edge to the node.
pub(crate) fn read_after<'t>(
    node: &'t Tree,
    id: &(String, Span),
    edges: &mut Vec<RawEdge<'t>>,
    diagnostics: &mut Diagnostics<'_>,
) {
    let Some(after) = node.member("after") else { return };
    let items = if after.text().is_some() { slice::from_ref(after) } else { after.items() };
    if !matches!(after.kind, Kind::List(_)) && items.is_empty() {
        let message = format!("`after` must be the id of a node or a list of ids, not {}", after.type_name());
        diagnostics.error("wrong_type", after.span, message, Some("write `after: [a, b]`".into()));
    }
    for item in items {
        match item.text() {
            Some(before) if is_id(before) => {
                let from = (before.to_owned(), item.span);
                add(edges, short(from, id.clone(), item.span));
            }
            Some(other) => {
                let message = format!("`{}` is not the id of a node", for_message(other));
                let help = "`after` takes ids only; other edges belong in `edges`, such as \"a -> b: error\"";
                diagnostics.error("bad_edge", item.span, message, Some(help.into()));
            }
            None => {
                let message = format!("an id must be a text, not {}", item.type_name());
                diagnostics.error("wrong_type", item.span, message, Some("write `after: [a, b]`".into()));
            }
        }
    }
}

/// Returns the outcome with this name.
pub(crate) fn parse_on(name: &str) -> Option<On> {
    match name {
        "success" => Some(On::Success),
        "error" => Some(On::Error),
        "end" => Some(On::End),
        _ => None,
    }
}

fn read_map<'t>(tree: &'t Tree, diagnostics: &mut Diagnostics<'_>) -> Option<RawEdge<'t>> {
    let members = entries(tree, "an edge", diagnostics);
    if let Some(entry) = members.iter().find(|entry| entry.key.contains(ARROW)) {
        let label = entry.value.json();
        let label = label.as_str().map_or_else(|| label.to_text(), str::to_owned);
        let help = format!("put it in quotes: \"{}: {}\"", for_message(&entry.key), for_message(&label));
        let message = "YAML reads an edge with `:` as a map, unless it stands in quotes";
        diagnostics.error("bad_edge", entry.key_span, message, Some(help));
        return None;
    }
    check_keys_or(members, &KEYS, |entry| key_hints::renamed(entry, &key_hints::OF_EDGES), diagnostics);
    let from = required(tree, "from", "edge", diagnostics);
    let to = required(tree, "to", "edge", diagnostics);
    let on = text(tree, "on", diagnostics).and_then(|(on, span)| {
        let parsed = parse_on(&on);
        if parsed.is_none() {
            let help = did_you_mean(&on, OUTCOMES).or_else(|| Some("write `success`, `error` or `end`".into()));
            diagnostics.error("bad_value", span, format!("invalid `on`: `{}`", for_message(&on)), help);
        }
        parsed
    });
    let when = tree.member("when").map(Cow::Borrowed);
    let max_passes = read_max_passes(tree, diagnostics);
    Some(RawEdge {
        from,
        to,
        on: on.unwrap_or_default(),
        when,
        label: None,
        is_short: false,
        orders_only: flag(tree, INBOUND_KEY, diagnostics) == Some(false),
        max_passes,
        span: tree.span,
    })
}

/// Reads `maxPasses` of an edge or of a flow, with its place.
pub(crate) fn read_max_passes(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<(u32, Span)> {
    let number = whole_number(tree, MAX_PASSES_KEY, (1, limits::MAX_PASSES), diagnostics)?;
    Some((number as u32, tree.member(MAX_PASSES_KEY)?.span))
}

/// Reads an edge or a chain of edges: `a -> b -> c`, or `a -> b: label`.
fn read_text<'t>(tree: &'t Tree, text: &str, edges: &mut Vec<RawEdge<'t>>, diagnostics: &mut Diagnostics<'_>) {
    let (chain, label) = match text.find(':') {
        Some(colon) => (0..colon, Some(trimmed(text, colon + 1..text.len()))),
        None => (0..text.len(), None),
    };
    let ids = split(text, chain);
    if ids.len() < 2 {
        let message = format!("`{}` is not an edge, because it has no `->`", for_message(text));
        return diagnostics.error("bad_edge", tree.span, message, Some("write \"a -> b\"".into()));
    }
    let is_placed = ids.len() <= MAX_PLACED_IDS && !diagnostics.is_full();
    let at = |range: &Range<usize>| if is_placed { place(tree, "", Some(range.clone())) } else { tree.span };
    let mut is_right = true;
    if let Some(range) = ids.iter().find(|range| !is_id(&text[(*range).clone()])) {
        let message = match &text[range.clone()] {
            "" => "a node is missing beside `->`".to_owned(),
            other => format!("`{}` is not the id of a node", for_message(other)),
        };
        let help = "write one text for each edge or chain, such as \"a -> b -> c\", or `after: [a, b]` at a node";
        diagnostics.error("bad_edge", at(range), message, Some(help.into()));
        is_right = false;
    }
    if let Some(label) = label.as_ref() {
        is_right &= check_label(text, label, &ids, at(label), diagnostics);
    }
    if !is_right {
        return;
    }
    let label = label.map(|label| (text[label.clone()].to_owned(), at(&label)));
    for pair in ids.windows(2) {
        let end = |range: &Range<usize>| (text[range.clone()].to_owned(), at(range));
        let edge = short(end(&pair[0]), end(&pair[1]), at(&(pair[0].start..pair[1].end)));
        if !add(edges, RawEdge { label: label.clone(), ..edge }) {
            break;
        }
    }
}

/// Checks the label of an edge in text. Reports an error and returns false if it is empty, an expression, or behind
/// more than one edge.
fn check_label(
    text: &str,
    label: &Range<usize>,
    ids: &[Range<usize>],
    span: Span,
    diagnostics: &mut Diagnostics<'_>,
) -> bool {
    let written = &text[label.clone()];
    let (message, help) = match ids {
        _ if written.is_empty() => {
            let help = "write `error`, `end`, or a port of the node, such as `then`; or remove the colon";
            ("the label behind `:` is empty".to_owned(), help.to_owned())
        }
        _ if written.contains("{{") => {
            let help = "write `{ from: …, to: …, when: … }` for an edge with a condition";
            (format!("the label `{}` must be literal", for_message(written)), help.to_owned())
        }
        [_, .., from, to] if ids.len() > 2 => {
            let (from, to) = (for_message(&text[from.clone()]), for_message(&text[to.clone()]));
            let help = format!("write the edge on its own: \"{from} -> {to}: {}\"", for_message(written));
            (format!("the label `{}` stands behind several edges", for_message(written)), help)
        }
        _ => return true,
    };
    diagnostics.error("bad_edge", span, message, Some(help));
    false
}

/// Splits a part of a text at its arrows. Returns the parts without the spaces around them.
fn split(text: &str, within: Range<usize>) -> Vec<Range<usize>> {
    let mut start = within.start;
    let mut parts = Vec::new();
    for (at, _) in text[within.clone()].match_indices(ARROW) {
        parts.push(trimmed(text, start..within.start + at));
        start = within.start + at + ARROW.len();
    }
    parts.push(trimmed(text, start..within.end));
    parts
}

/// Shortens a range by the spaces at its ends.
fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + (part.len() - part.trim_start().len());
    start..start + part.trim().len()
}

fn short<'t>(from: (String, Span), to: (String, Span), span: Span) -> RawEdge<'t> {
    RawEdge {
        from,
        to,
        on: On::Success,
        when: None,
        label: None,
        is_short: true,
        orders_only: false,
        max_passes: None,
        span,
    }
}

/// Adds an edge and returns true. Returns false if the flow has more than [`limits::EDGES`] edges: it is refused, and
/// its other short edges need no memory.
fn add<'t>(edges: &mut Vec<RawEdge<'t>>, edge: RawEdge<'t>) -> bool {
    let has_room = edges.len() <= limits::EDGES;
    if has_room {
        edges.push(edge);
    }
    has_room
}
