//! Rewrites the edges of a flow's text in their short or their long form. All other text, comments among it, stays as it
//! is.

mod after;
mod same;
mod text;
mod writer;

use std::{
    collections::{HashMap, HashSet},
    iter,
    sync::Arc,
};

use flowcell_contract::NodeType;

pub use self::same::is_same;
use self::{
    after::{Change, move_edges},
    writer::Rewriter,
};
use crate::{
    CheckMode, Graph, Source,
    diagnostic::Diagnostics,
    edges::{self, RawEdge},
    graph::On,
    ports::PortMap,
    read::{self, FRAGMENTS_KEY, RawFlow},
    yaml::{Kind, Span, Tree},
};

/// The number of characters of a line up to which edges are joined to a chain.
const CHAIN_WIDTH: usize = 100;

/// A form of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeForm {
    /// Texts: `a -> b: error`.
    Short,
    /// Maps: `{ from: a, to: b, on: error }`.
    Long,
}

/// The result of [`rewrite_edges`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// The new text of the flow.
    pub text: String,
    /// The number of items of the lists `edges` that were rewritten, and of edges of the keys `after` that were moved.
    pub changed: usize,
    /// The items and the keys `after` that keep their form, because the other form cannot express them, or because a
    /// comment or a line break stands inside them.
    pub kept: Vec<Kept>,
}

/// The place of an edge that keeps its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The line in the given text, from 1.
    pub line: usize,
    /// The line in the new text.
    pub new_line: usize,
}

/// A part of the text in which edges are rewritten: the flow, or a fragment.
struct Part<'a> {
    ports: PortMap<'a>,
    doubles: HashSet<Key>,
}

/// A place in the text, and what happens to it.
enum Piece<'t> {
    /// An item of a list `edges` in a part with this index.
    Item(usize, &'t Tree),
    Change(Change),
    /// A key `after` that stays.
    Stays(Span),
}

impl Piece<'_> {
    fn start(&self) -> usize {
        match self {
            Piece::Item(_, item) => item.span.start,
            Piece::Change(change) => change.range.start,
            Piece::Stays(span) => span.start,
        }
    }
}

/// Rewrites all edges of a flow, of its fragments, and of the bodies in them. In the short form, an edge without a
/// condition that begins where the one before it ends is joined to it, up to 100 characters in a line, and the keys
/// `after` of nodes stay. In the long form, the edges of `after` move to the front of the list `edges`. `graph` is the
/// graph of the flow. The caller checks the new text, and that it gives the [same graph](is_same). A flow in another
/// dialect stays as it is.
pub fn rewrite_edges(source: &Source, form: EdgeForm, graph: &Graph) -> Rewritten {
    let mut rewritten = Rewritten { text: String::with_capacity(source.text.len()), ..Rewritten::default() };
    let Some(tree) = crate::tree(source).filter(|tree| tree.member("nodes").is_some()) else {
        return Rewritten { text: source.text.clone(), ..rewritten };
    };
    // The text has been checked before.
    let mut diagnostics = Diagnostics::new(&source.name, &source.text, CheckMode::Stored);
    let fragments = tree.member(FRAGMENTS_KEY).map(Tree::values).unwrap_or_default();
    let written: Vec<_> = iter::once(&tree).chain(fragments).collect();
    let flows: Vec<_> = written.iter().map(|part| read::read(part, &mut diagnostics)).collect();
    let kinds = Kinds::new(graph);
    let types: Vec<_> = flows.iter().enumerate().map(|(part, flow)| kinds.of_nodes(flow, part == 0)).collect();
    let mut parts: Vec<_> = flows.iter().zip(&types).map(|(flow, types)| Part::new(flow, types)).collect();
    let rewriter = Rewriter { text: &source.text, form, is_json: source.text.trim_start().starts_with('{') };
    let mut pieces = Vec::new();
    for (part, tree) in written.iter().enumerate() {
        let mut graphs = Vec::new();
        collect_graphs(tree, &mut graphs);
        // Of two lists that are added at the same place, that of the inner body stands first.
        for graph in graphs.into_iter().rev() {
            if form == EdgeForm::Long {
                let moved = move_edges(&rewriter, graph, &mut diagnostics);
                rewritten.changed += moved.edges;
                pieces.extend(moved.changes.into_iter().map(Piece::Change));
                pieces.extend(moved.kept.into_iter().map(Piece::Stays));
            }
            pieces.extend(items(graph).map(|item| Piece::Item(part, item)));
        }
    }
    // Edges that are added stand before the item at the same place.
    pieces.sort_by_key(Piece::start);
    let ends: Vec<_> = pieces.iter().skip(1).map(Piece::start).chain([source.text.len()]).collect();
    let mut copied = 0;
    let mut kept = Vec::new();
    // The last node of the item before, if another edge may be joined to it.
    let mut chain: Option<String> = None;
    for (piece, end) in pieces.into_iter().zip(ends) {
        let (part, item) = match piece {
            Piece::Item(part, item) => (&mut parts[part], item),
            Piece::Change(change) => {
                rewritten.text.push_str(&source.text[copied..change.range.start]);
                rewritten.text.push_str(&change.text);
                copied = change.range.end;
                continue;
            }
            Piece::Stays(span) => {
                kept.push((span, copied, rewritten.text.len()));
                continue;
            }
        };
        let is_rewritten = is_map(item) == (form == EdgeForm::Short);
        if !is_rewritten && form == EdgeForm::Long {
            continue;
        }
        let mut edges = Vec::new();
        edges::read_item(item, &mut edges, &mut diagnostics);
        part.ports.resolve(&mut edges, &mut diagnostics);
        let open = chain.take();
        let is_double = form == EdgeForm::Short && edges.iter().any(|edge| part.doubles.contains(&key(edge)));
        let Some(range) = rewriter.range(item, end).filter(|range| range.start >= copied && !is_double) else {
            kept.extend(is_rewritten.then_some((item.span, copied, rewritten.text.len())));
            continue;
        };
        let gap = &source.text[copied..range.start];
        if form == EdgeForm::Short && edges.iter().all(may_chain) {
            chain = edges.last().map(|edge| edge.to.0.clone());
            let follows = open.is_some_and(|open| edges.first().is_some_and(|edge| edge.from.0 == open));
            if follows && join(&mut rewritten.text, gap, &edges) {
                copied = range.end;
                rewritten.changed += 1;
                continue;
            }
        }
        let written = edges.iter().map(|edge| rewriter.write(edge, &mut part.ports)).collect::<Option<Vec<_>>>();
        match written.filter(|_| is_rewritten) {
            Some(written) => {
                rewritten.text.push_str(gap);
                rewritten.text.push_str(&written.join(&rewriter.separator(range.start)));
                rewritten.changed += 1;
            }
            None => {
                kept.extend(is_rewritten.then_some((item.span, copied, rewritten.text.len())));
                rewritten.text.push_str(gap);
                rewritten.text.push_str(&source.text[range.clone()]);
            }
        }
        copied = range.end;
    }
    rewritten.text.push_str(&source.text[copied..]);
    rewritten.kept = kept_lines(&kept, &rewritten.text);
    rewritten
}

/// Returns the lines of the places that keep their text. Each comes with a place before it in the given text, and the same
/// place in the new text.
fn kept_lines(kept: &[(Span, usize, usize)], text: &str) -> Vec<Kept> {
    let (mut line, mut counted) = (1, 0);
    let new_line = |(span, before, after): &(Span, usize, usize)| {
        let at = (after + span.start - before).min(text.len());
        line += text.as_bytes()[counted..at].iter().filter(|byte| **byte == b'\n').count();
        counted = at;
        Kept { line: span.line, new_line: line }
    };
    kept.iter().map(new_line).collect()
}

impl<'a> Part<'a> {
    fn new(flow: &'a RawFlow<'_>, types: &'a [Option<Arc<NodeType>>]) -> Part<'a> {
        Part { ports: PortMap::new(&flow.nodes, types), doubles: doubles(&flow.edges) }
    }
}

/// The types of the nodes of a graph.
struct Kinds<'g> {
    by_id: HashMap<&'g str, &'g Arc<NodeType>>,
    /// By the name of the type; `None` if the flow uses several versions of it.
    by_name: HashMap<&'g str, Option<&'g Arc<NodeType>>>,
}

impl<'g> Kinds<'g> {
    fn new(graph: &'g Graph) -> Kinds<'g> {
        let mut kinds = Kinds { by_id: HashMap::new(), by_name: HashMap::new() };
        for node in &graph.nodes {
            let kind = &node.node_type;
            kinds.by_id.insert(node.id.as_str(), kind);
            let known = kinds.by_name.entry(&kind.name).or_insert(Some(kind));
            *known = known.filter(|known| known.version == kind.version);
        }
        kinds
    }

    /// Returns the types of the nodes of the flow itself, or of a fragment, as far as they are known. A use of a fragment is
    /// a scope in the graph.
    fn of_nodes(&self, flow: &RawFlow<'_>, is_flow: bool) -> Vec<Option<Arc<NodeType>>> {
        let kind = |node: &read::RawNode<'_>| match is_flow {
            true => self.by_id.get(node.id.as_str()).copied(),
            false => self.by_name.get(node.type_name.split('@').next()?).copied().flatten(),
        };
        flow.nodes.iter().map(|node| kind(node).cloned()).collect()
    }
}

/// All that distinguishes an edge in a map from others: its ends, its outcome and its condition.
type Key = (String, String, u8, Option<String>);

fn key(edge: &RawEdge<'_>) -> Key {
    let when = edge.when.as_ref().map(|when| when.json().to_text());
    (edge.from.0.clone(), edge.to.0.clone(), edge.on as u8, when)
}

/// Returns the edges in maps that a flow has more than once. A text in place of one of them would be an error.
fn doubles(edges: &[RawEdge<'_>]) -> HashSet<Key> {
    let mut seen = HashSet::new();
    edges.iter().filter(|edge| !edge.is_short).map(key).filter(|key| !seen.insert(key.clone())).collect()
}

/// Returns true if an edge may be a part of a chain.
fn may_chain(edge: &RawEdge<'_>) -> bool {
    let is_plain = edge.when.is_none() && edge.label.is_none() && edge.on == On::Success;
    is_plain && edge.max_passes.is_none() && !edge.orders_only
}

/// Joins edges to the chain at the end of `text`, if nothing but the sign between two items stands between them, and if the
/// line does not become too wide. Returns true if it did.
fn join(text: &mut String, gap: &str, edges: &[RawEdge<'_>]) -> bool {
    let is_separator = gap.chars().all(|sign| sign.is_whitespace() || "-,".contains(sign));
    let more: String = edges.iter().map(|edge| [" -> ", &edge.to.0].concat()).collect();
    let width = last_line_width(text) + more.chars().count();
    if !is_separator || gap.matches('\n').count() > 1 || width > CHAIN_WIDTH {
        return false;
    }
    let quote = text.chars().next_back().filter(|sign| "\"'".contains(*sign));
    text.truncate(text.len() - quote.map_or(0, char::len_utf8));
    text.push_str(&more);
    text.extend(quote);
    true
}

/// Returns the number of characters of the last line of a text. Beyond [`CHAIN_WIDTH`], counts only one more, because a
/// line may have many items.
fn last_line_width(text: &str) -> usize {
    text.chars().rev().take_while(|sign| *sign != '\n').take(CHAIN_WIDTH + 1).count()
}

/// Collects a flow or a fragment, and the bodies in it.
fn collect_graphs<'t>(graph: &'t Tree, graphs: &mut Vec<&'t Tree>) {
    graphs.push(graph);
    for node in graph.member("nodes").map(Tree::items).unwrap_or_default() {
        if let Some(body) = node.member("body") {
            collect_graphs(body, graphs);
        }
    }
}

/// Returns the items of the list `edges` of a flow, a fragment or a body.
fn items(graph: &Tree) -> impl Iterator<Item = &Tree> {
    graph.member("edges").map(Tree::items).unwrap_or_default().iter()
}

fn is_map(item: &Tree) -> bool {
    matches!(item.kind, Kind::Map(_))
}

#[cfg(test)]
mod tests {
    use super::{
        CHAIN_WIDTH, EdgeForm, Rewriter, items, last_line_width,
        text::{has_comment, indented},
    };
    use crate::yaml;

    /// A line may have 50,000 edges, so no step may read or write the line for each of them.
    #[test]
    fn items_cost_what_they_are_long() {
        let line = "é".repeat(100_000);
        assert_eq!(last_line_width(&line), CHAIN_WIDTH + 1);
        assert_eq!(last_line_width("a\nbé"), 2);
        assert_eq!(indented("a -> b", 100_000), "a -> b");
        assert_eq!(indented("from: a\nto: b", 3), "  from: a\nto: b");
    }

    /// Quotes in plain texts that never close end at the next item, and their items have no certain end.
    #[test]
    fn open_quotes_end_at_the_next_item() {
        let text = "edges: [{ a: { b: { c: it 's } } }, { a: { b: it 's, c: 1 } }, a -> b, { d: 1 }]";
        let tree = yaml::parse(text).unwrap_or_else(|error| panic!("{}", error.message));
        let items: Vec<_> = items(&tree).collect();
        let rewriter = Rewriter { text, form: EdgeForm::Short, is_json: false };
        let starts: Vec<_> = items.iter().map(|item| item.span.start).chain([text.len()]).collect();
        let ranges = items.iter().zip(&starts[1..]).map(|(item, next)| Some(&text[rewriter.range(item, *next)?]));
        assert_eq!(ranges.collect::<Vec<_>>(), [None, None, Some("a -> b"), Some("{ d: 1 }")]);
    }

    #[test]
    fn a_quoted_text_has_no_comment() {
        for text in ["\"s -> d: # h\"", "'s -> d: # h'", "{ from: s, when: \"a # b\" }", "a#b"] {
            assert!(!has_comment(text), "{text}");
        }
        for text in ["\"s -> d\" # h", "{ from: s, # h\n to: d }", "it's # h"] {
            assert!(has_comment(text), "{text}");
        }
    }

    #[test]
    fn a_new_line_separates_edges_behind_a_dash_only() {
        for (text, expected) in [
            ("- a", "\n- "),
            ("x:\n  -   a", "\n  -   "),
            ("x:\r\n\t-\ta", "\n\t-\t"),
            ("x: [a", ", "),
            ("x: [b - a", ", "),
            ("b, a", ", "),
            ("a", ", "),
        ] {
            let rewriter = Rewriter { text, form: EdgeForm::Long, is_json: false };
            assert_eq!(rewriter.separator(text.len() - 1), expected, "{text:?}");
        }
    }
}
