//! Moves the keys `after` of nodes to the list `edges` beside the nodes.

use std::ops::Range;

use flowcell_contract::Json;

use super::{
    text::{end_of, has_comment, indented, line_start, next_line},
    writer::Rewriter,
};
use crate::{
    diagnostic::Diagnostics,
    edges::{self, RawEdge},
    yaml::{self, Entry, Kind, Span, Tree},
};

/// A change of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// The bytes that are replaced.
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

/// The changes that move the keys `after` of one list of nodes.
#[derive(Default)]
pub(super) struct Moved {
    pub(super) changes: Vec<Change>,
    /// The number of edges that were moved.
    pub(super) edges: usize,
    /// The places of the keys that stay.
    pub(super) kept: Vec<Span>,
}

/// Moves the keys `after` of the nodes of a flow, a body or a fragment to the front of its list `edges`, in the order of
/// the nodes. So each body has its edges in the same order as before. A key stays if its bytes are not certain, or if a
/// comment stands inside it. The keys before such a key stay, too, because its edges would precede theirs.
pub(super) fn move_edges(rewriter: &Rewriter<'_>, graph: &Tree, diagnostics: &mut Diagnostics<'_>) -> Moved {
    let (mut keys, mut removals, mut moved) = (Vec::new(), Vec::new(), Vec::<Vec<RawEdge<'_>>>::new());
    for node in graph.member("nodes").map(Tree::items).unwrap_or_default() {
        let (Kind::Map(entries), Some(id)) = (&node.kind, node.member("id")) else { continue };
        let mut edges = Vec::new();
        edges::read_after(node, &(id.text().unwrap_or_default().to_owned(), id.span), &mut edges, diagnostics);
        let Some(at) = entries.iter().position(|entry| &*entry.key == "after").filter(|_| !edges.is_empty()) else {
            continue;
        };
        keys.push(entries[at].key_span);
        removals.push(removal(rewriter.text, node, entries, at));
        moved.push(edges);
    }
    let first = removals.iter().rposition(Option::is_none).map_or(0, |last| last + 1);
    let edges: Vec<_> = moved[first..].iter().flatten().map(|edge| rewriter.long(edge)).collect();
    if edges.is_empty() {
        return Moved { kept: keys, ..Moved::default() };
    }
    match insertion(rewriter, graph, &edges) {
        Some(insertion) => {
            let changes = removals.into_iter().skip(first).flatten().chain([insertion]).collect();
            keys.truncate(first);
            Moved { changes, edges: edges.len(), kept: keys }
        }
        None => Moved { kept: keys, ..Moved::default() },
    }
}

/// Returns the change that removes the key at an index of a node.
fn removal(text: &str, node: &Tree, entries: &[Entry], at: usize) -> Option<Change> {
    let entry = &entries[at];
    let start = entry.key_span.start;
    let end = end_of(text, &entry.value)?;
    let written = text.get(start..end)?;
    let is_flow = text.get(node.span.start..)?.starts_with('{');
    let document = match is_flow {
        true => format!("{{ {written} }}").into(),
        false => indented(written, entry.key_span.column),
    };
    let expected = Json::object([(entry.key.clone(), entry.value.json())]);
    if has_comment(written) || !yaml::parse(&document).is_ok_and(|read| read.json() == expected) {
        return None;
    }
    let next = entries.get(at + 1).map(|next| next.key_span.start);
    let range = match is_flow {
        true => in_braces(text, start..end, next)?,
        false => in_lines(text, start..end, next)?,
    };
    Some(Change { range, text: String::new() })
}

/// Returns the bytes of a key in braces, with the comma behind it; or before it, if it is the last one.
fn in_braces(text: &str, key: Range<usize>, next: Option<usize>) -> Option<Range<usize>> {
    if let Some(next) = next {
        return (text.get(key.end..next)?.trim() == ",").then_some(key.start..next);
    }
    let before = text[..key.start].trim_end().strip_suffix(',')?.trim_end();
    Some(before.len()..key.end)
}

/// Returns the bytes of a key on lines of its own. A comment behind it stays. A key behind the dash of its node is
/// removed up to the next key.
fn in_lines(text: &str, key: Range<usize>, next: Option<usize>) -> Option<Range<usize>> {
    let (first, after) = (line_start(text, key.start), next_line(text, key.end));
    let (before, behind) = (text[first..key.start].trim(), &text[key.end..after]);
    match (before, behind.trim()) {
        ("", "") if behind.ends_with('\n') => Some(first..after),
        // The last line of the file has no line break.
        ("", "") => Some(text[..first].trim_end_matches(['\r', '\n']).len()..after),
        ("", comment) if comment.starts_with('#') => Some(key.start..key.end + behind.find('#')?),
        ("-", "") => next.filter(|next| text[key.end..*next].trim().is_empty()).map(|next| key.start..next),
        _ => None,
    }
}

/// Returns the change that adds edges at the front of the list `edges` of a graph, or adds the list.
fn insertion(rewriter: &Rewriter<'_>, graph: &Tree, edges: &[String]) -> Option<Change> {
    let Kind::Map(entries) = &graph.kind else { return None };
    let entry = |key: &str| entries.iter().find(|entry| &*entry.key == key);
    let text = rewriter.text;
    let Some(list) = entry("edges") else {
        let nodes = entry("nodes")?;
        return match text.get(graph.span.start..)?.starts_with('{') {
            true => list_in_braces(rewriter, nodes, edges),
            false => list_in_lines(text, nodes, edges),
        };
    };
    let Kind::List(items) = &list.value.kind else { return None };
    match text.get(list.value.span.start..)?.starts_with('[') {
        true => Some(items_in_brackets(text, list.value.span.start + 1, items.first(), edges)),
        false => items_in_lines(text, list, items.first()?, edges),
    }
}

/// Adds items behind the opening bracket of a list.
fn items_in_brackets(text: &str, start: usize, first: Option<&Tree>, edges: &[String]) -> Change {
    let Some(first) = first.map(|first| first.span.start) else {
        return Change { range: start..start, text: edges.join(", ") };
    };
    let gap = &text[start..first];
    let (at, separator) = match gap.trim().is_empty() {
        true if gap.contains('\n') => (first, format!(",{gap}")),
        true => (first, ", ".to_owned()),
        false => (start, ", ".to_owned()),
    };
    Change { range: at..at, text: edges.join(&separator) + &separator }
}

/// Adds items above the first one of a list.
fn items_in_lines(text: &str, list: &Entry, first: &Tree, edges: &[String]) -> Option<Change> {
    let at = next_line(text, list.key_span.start);
    let line = text.get(line_start(text, first.span.start)..first.span.start)?;
    let indent = &line[..line.len() - line.trim_start().len()];
    let dash = if line.trim() == "-" { line.to_owned() } else { format!("{indent}- ") };
    let is_below = line.trim_start().starts_with('-') && at <= first.span.start;
    is_below.then(|| Change { range: at..at, text: lines(text, at, &dash, edges) })
}

/// Adds the list `edges` behind the nodes of a graph in braces.
fn list_in_braces(rewriter: &Rewriter<'_>, nodes: &Entry, edges: &[String]) -> Option<Change> {
    let end = end_of(rewriter.text, &nodes.value)?;
    let written = rewriter.text.get(nodes.value.span.start..end)?;
    let read = yaml::parse(&indented(written, nodes.value.span.column)).ok()?;
    let key = if rewriter.is_json { "\"edges\"" } else { "edges" };
    let list = format!(", {key}: [{}]", edges.join(", "));
    (read.json() == nodes.value.json()).then_some(Change { range: end..end, text: list })
}

/// Adds the list `edges` on lines of its own below the nodes.
fn list_in_lines(text: &str, nodes: &Entry, edges: &[String]) -> Option<Change> {
    let column = nodes.key_span.column.checked_sub(1)?;
    let last = end_of(text, &nodes.value).unwrap_or_else(|| last_start(&nodes.value));
    let mut at = next_line(text, last.min(text.len()));
    let mut open = at;
    while open < text.len() {
        let end = next_line(text, open);
        let line = text[open..end].trim_end();
        let indent = line.len() - line.trim_start_matches(' ').len();
        let is_item = indent == column && (line[indent..].starts_with("- ") || &line[indent..] == "-");
        if !line.is_empty() && indent <= column && !is_item {
            break;
        }
        open = end;
        if !line.is_empty() {
            at = end;
        }
    }
    let indent = " ".repeat(column);
    let dash = format!("{indent}  - ");
    let key = lines(text, at, &indent, &["edges:".to_owned()]);
    let items = lines(text, 0, &dash, edges);
    // Behind the last line of a file without a line break at its end, the new lines have none either.
    let list = match text[..at].ends_with('\n') {
        true => key + &items,
        false => key + line_break(text) + items.trim_end(),
    };
    Some(Change { range: at..at, text: list })
}

/// Returns the position at which the last value of a list or a map begins.
fn last_start(tree: &Tree) -> usize {
    match &tree.kind {
        Kind::List(items) => items.last().map_or(tree.span.start, last_start),
        Kind::Map(entries) => entries.last().map_or(tree.span.start, |entry| last_start(&entry.value)),
        Kind::Scalar(_) => tree.span.start,
    }
}

/// Writes lines that begin with a text, at a position of a text.
fn lines(text: &str, at: usize, begin: &str, written: &[String]) -> String {
    let line_break = line_break(text);
    let lines: String = written.iter().map(|line| [begin, line, line_break].concat()).collect();
    match at == 0 || text[..at].ends_with('\n') {
        true => lines,
        false => [line_break, lines.trim_end_matches(['\r', '\n'])].concat(),
    }
}

/// Returns the line break of a text.
fn line_break(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}
