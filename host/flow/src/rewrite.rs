//! Rewrites the edges of a flow's text in their short or their long form. All other text, comments among it, stays as it
//! is.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    iter,
    ops::Range,
};

use flowcell_contract::Json;

use crate::{
    CheckMode, Graph, Source,
    diagnostic::Diagnostics,
    edges::{self, INBOUND_KEY, MAX_PASSES_KEY, RawEdge},
    graph::On,
    ports::PortMap,
    read::{self, FRAGMENTS_KEY},
    yaml::{self, Kind, Tree},
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The new text of the flow.
    pub text: String,
    /// The number of items of the lists `edges` that were rewritten.
    pub changed: usize,
    /// The lines of the items that keep their form, because the other form cannot express them, or because a comment or
    /// a line break stands inside them, or because they belong to a fragment.
    pub kept: Vec<usize>,
}

/// Rewrites all edges in the lists `edges` of a flow and its bodies. In the short form, an edge without a condition
/// that begins where the one before it ends is joined to it, up to 100 characters in a line. The key `after` of nodes
/// and the edges of fragments stay. `graph` is the graph of the flow. The caller checks the new text, and that it gives
/// the [same graph](is_same). A flow in another dialect stays as it is.
pub fn rewrite_edges(source: &Source, form: EdgeForm, graph: &Graph) -> Rewritten {
    let mut rewritten = Rewritten { text: String::with_capacity(source.text.len()), changed: 0, kept: Vec::new() };
    let Some(tree) = crate::tree(source).filter(|tree| tree.member("nodes").is_some()) else {
        return Rewritten { text: source.text.clone(), ..rewritten };
    };
    // The text has been checked before.
    let mut diagnostics = Diagnostics::new(&source.name, &source.text, CheckMode::Stored);
    let flow = read::read(&tree, &mut diagnostics);
    // The graph has the nodes of the fragments, too, and a use is a scope in it.
    let by_id: HashMap<_, _> = graph.nodes.iter().map(|node| (node.id.as_str(), &node.node_type)).collect();
    let types: Vec<_> = flow.nodes.iter().map(|node| by_id.get(node.id.as_str()).map(|kind| (*kind).clone())).collect();
    let mut ports = PortMap::new(&flow.nodes, &types);
    let mut items = Vec::new();
    collect_items(&tree, &mut items);
    items.sort_by_key(|item| item.span.start);
    let doubles = doubles(&flow.edges);
    let rewriter = Rewriter { text: &source.text, form, is_json: source.text.trim_start().starts_with('{') };
    let ends: Vec<_> = items.iter().skip(1).map(|item| item.span.start).chain([source.text.len()]).collect();
    let mut copied = 0;
    // The last node of the item before, if another edge may be joined to it.
    let mut chain: Option<String> = None;
    for (item, end) in items.into_iter().zip(ends) {
        let is_rewritten = is_map(item) == (form == EdgeForm::Short);
        if !is_rewritten && form == EdgeForm::Long {
            continue;
        }
        let mut edges = Vec::new();
        edges::read_item(item, &mut edges, &mut diagnostics);
        ports.resolve(&mut edges, &mut diagnostics);
        let open = chain.take();
        let is_double = form == EdgeForm::Short && edges.iter().any(|edge| doubles.contains(&key(edge)));
        let Some(range) = rewriter.range(item, end).filter(|range| range.start >= copied && !is_double) else {
            rewritten.kept.extend(is_rewritten.then_some(item.span.line));
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
        let written = edges.iter().map(|edge| rewriter.write(edge, &mut ports)).collect::<Option<Vec<_>>>();
        rewritten.text.push_str(gap);
        match written.filter(|_| is_rewritten) {
            Some(written) => {
                rewritten.text.push_str(&written.join(&rewriter.separator(range.start)));
                rewritten.changed += 1;
            }
            None => {
                rewritten.text.push_str(&source.text[range.clone()]);
                rewritten.kept.extend(is_rewritten.then_some(item.span.line));
            }
        }
        copied = range.end;
    }
    rewritten.text.push_str(&source.text[copied..]);
    rewritten.kept.extend(lines_in_fragments(&tree, form));
    rewritten.kept.sort_unstable();
    rewritten
}

/// Returns the lines of the items in fragments that are not in a form.
fn lines_in_fragments(tree: &Tree, form: EdgeForm) -> Vec<usize> {
    let fragments = tree.member(FRAGMENTS_KEY).map(Tree::values).unwrap_or_default();
    let mut items = Vec::new();
    fragments.into_iter().for_each(|fragment| collect_items(fragment, &mut items));
    items.retain(|item| is_map(item) == (form == EdgeForm::Short));
    items.into_iter().map(|item| item.span.line).collect()
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

/// Returns true if two texts of a flow gave the same graph.
pub fn is_same(before: &Graph, after: &Graph) -> bool {
    format!("{before:?}") == format!("{after:?}")
}

/// Collects the items of the lists `edges` of a flow and of the bodies in it.
fn collect_items<'t>(graph: &'t Tree, items: &mut Vec<&'t Tree>) {
    items.extend(graph.member("edges").map(Tree::items).unwrap_or_default());
    for node in graph.member("nodes").map(Tree::items).unwrap_or_default() {
        if let Some(body) = node.member("body") {
            collect_items(body, items);
        }
    }
}

fn is_map(item: &Tree) -> bool {
    matches!(item.kind, Kind::Map(_))
}

struct Rewriter<'a> {
    text: &'a str,
    form: EdgeForm,
    /// True if the flow is written in JSON.
    is_json: bool,
}

impl Rewriter<'_> {
    /// Returns the bytes of an item in the text; `None` if they are not certain, or if a comment stands among them, or a tag
    /// such as `!!map` before them. The next item begins at `next`, so that a quote which ends nowhere is not sought in the
    /// whole text.
    fn range(&self, item: &Tree, next: usize) -> Option<Range<usize>> {
        let start = item.span.start;
        let end = end_of(self.text.get(..next)?, item)?;
        let written = self.text.get(start..end)?;
        let has_comment =
            outside_quotes(written).any(|(at, sign)| sign == '#' && written[..at].ends_with([' ', '\t', '\n']));
        let before = self.text[..start].trim_end().rsplit([' ', '\t', '\n', ',', '[', '{']).next();
        let has_tag = before.is_some_and(|before| before.starts_with('!'));
        let read = yaml::parse(&indented(written, item.span.column));
        let is_certain = !has_comment && !has_tag && read.is_ok_and(|read| read.json() == item.json());
        is_certain.then_some(start..end)
    }

    /// Returns the text between two edges that take the place of one item: a new line, if only a dash stands before the item.
    fn separator(&self, start: usize) -> String {
        let blank = [' ', '\t'];
        let dash = self.text[..start].trim_end_matches(blank).strip_suffix('-');
        match dash.map(|before| before.trim_end_matches(blank)) {
            Some(before) if before.is_empty() || before.ends_with('\n') => {
                format!("\n{}", &self.text[before.len()..start])
            }
            _ => ", ".to_owned(),
        }
    }

    /// Writes an edge; `None` if the form cannot express it.
    fn write(&self, edge: &RawEdge<'_>, ports: &mut PortMap<'_>) -> Option<String> {
        match self.form {
            EdgeForm::Long => Some(self.long(edge)),
            EdgeForm::Short => self.short(edge, ports),
        }
    }

    fn short(&self, edge: &RawEdge<'_>, ports: &mut PortMap<'_>) -> Option<String> {
        if edge.max_passes.is_some() || edge.orders_only {
            return None;
        }
        let label = match (&edge.when, edge.on) {
            (Some(when), On::Success) => Some(ports.label(&edge.from.0, &when.json())?),
            (Some(_), _) => return None,
            (None, On::Success) => None,
            (None, On::Error) => Some("error".to_owned()),
            (None, On::End) => Some("end".to_owned()),
        };
        let edge = format!("{} -> {}", edge.from.0, edge.to.0);
        Some(match label {
            Some(label) => Json::from(format!("{edge}: {label}")).to_text(),
            None if self.is_json => Json::from(edge).to_text(),
            None => edge,
        })
    }

    fn long(&self, edge: &RawEdge<'_>) -> String {
        let on = match edge.on {
            On::Success => None,
            On::Error => Some("error"),
            On::End => Some("end"),
        };
        let ends = [("from", edge.from.0.as_str().into()), ("to", edge.to.0.as_str().into())];
        let on = on.map(|on| ("on", on.into()));
        let when = edge.when.as_ref().map(|when| ("when", when.json()));
        let passes = edge.max_passes.map(|(number, _)| (MAX_PASSES_KEY, number.into()));
        let inbound = edge.orders_only.then(|| (INBOUND_KEY, Json::Bool(false)));
        let edge = Json::object(ends.into_iter().chain(on).chain(when).chain(inbound).chain(passes));
        if self.is_json { edge.to_text() } else { yaml_text(&edge) }
    }
}

/// Returns an item as a document of its own. The first of several lines is indented like the others.
fn indented(written: &str, column: usize) -> Cow<'_, str> {
    match written.contains('\n') {
        true => (" ".repeat(column.saturating_sub(1)) + written).into(),
        false => written.into(),
    }
}

/// Returns the position after a value; `None` if it cannot be told.
fn end_of(text: &str, tree: &Tree) -> Option<usize> {
    let start = tree.span.start;
    let rest = text.get(start..)?;
    match (&tree.kind, rest.chars().next()?) {
        (Kind::Map(_) | Kind::List(_), '{' | '[') => end_of_brackets(rest).map(|end| start + end),
        (Kind::Map(entries), _) => end_of(text, &entries.last()?.value),
        (Kind::List(items), _) => end_of(text, items.last()?),
        (Kind::Scalar(_), quote @ ('"' | '\'')) => end_of_quoted(rest, quote).map(|end| start + end),
        (Kind::Scalar(_), _) => {
            let length = rest.char_indices().nth(tree.span.len.checked_sub(1)?)?;
            Some(start + length.0 + length.1.len_utf8())
        }
    }
}

/// Returns the position after the bracket that closes the first one of a text.
fn end_of_brackets(text: &str) -> Option<usize> {
    let mut depth = 0;
    outside_quotes(text).find_map(|(at, sign)| {
        match sign {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        (depth == 0).then(|| at + sign.len_utf8())
    })
}

/// Returns the signs of a text that stand outside of quoted texts, with their positions. Ends at a quote that is not
/// closed. A quote inside a plain text begins nothing.
fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut at = 0;
    iter::from_fn(move || {
        loop {
            let sign = text[at..].chars().next()?;
            let begins = matches!(sign, '"' | '\'') && text[..at].ends_with([' ', ',', ':', '{', '[', '\n']);
            if !begins {
                at += sign.len_utf8();
                return Some((at - sign.len_utf8(), sign));
            }
            at += end_of_quoted(&text[at..], sign)?;
        }
    })
}

/// Returns the position after the quote that closes a quoted text. In single quotes, two of them are one sign.
fn end_of_quoted(text: &str, quote: char) -> Option<usize> {
    let mut signs = text.char_indices().skip(1).peekable();
    while let Some((at, sign)) = signs.next() {
        if sign == '\\' && quote == '"' {
            signs.next();
        } else if sign == quote {
            if quote == '\'' && signs.next_if(|(_, next)| *next == quote).is_some() {
                continue;
            }
            return Some(at + 1);
        }
    }
    None
}

/// Writes a value as YAML on one line.
fn yaml_text(value: &Json) -> String {
    match value {
        Json::Object(members) => {
            let members: Vec<_> = members.iter().map(|(key, member)| format!("{key}: {}", yaml_text(member))).collect();
            format!("{{ {} }}", members.join(", "))
        }
        Json::String(text) if is_plain(text) => text.to_string(),
        other => other.to_text(),
    }
}

/// Returns true if a text needs no quotes: YAML reads it as a text.
fn is_plain(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(is_word)
        && yaml::parse(text).is_ok_and(|read| read.text() == Some(text))
}

#[cfg(test)]
mod tests {
    use super::{CHAIN_WIDTH, EdgeForm, Rewriter, collect_items, indented, last_line_width};
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
        let mut items = Vec::new();
        collect_items(&tree, &mut items);
        let rewriter = Rewriter { text, form: EdgeForm::Short, is_json: false };
        let starts: Vec<_> = items.iter().map(|item| item.span.start).chain([text.len()]).collect();
        let ranges = items.iter().zip(&starts[1..]).map(|(item, next)| Some(&text[rewriter.range(item, *next)?]));
        assert_eq!(ranges.collect::<Vec<_>>(), [None, None, Some("a -> b"), Some("{ d: 1 }")]);
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
