//! The words of expressions with their kinds, and short notes about values.

use std::{collections::HashSet, ops::Range};

use flowcell_contract::Catalog;

use crate::{
    dialect::Dialect,
    expression::{NameUse, TokenKind},
    flow::Flow,
    is_too_large,
    reading::{Kind, Value, read},
    spots::{self, Spot},
};

/// Maximum number of words that are returned of one text.
pub const MAX_WORDS: usize = 100_000;

/// The kind of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordKind {
    /// The root of a path.
    Variable,
    /// A step of a path.
    Property,
    /// A filter, a test or a function.
    Function,
    /// A word of the language, such as `and`.
    Keyword,
    /// A number.
    Number,
    /// A quoted text.
    Text,
    /// A sign, such as `==`.
    Operator,
    /// The name of an argument.
    Parameter,
}

impl WordKind {
    /// All kinds, in the order of their numbers in the protocol of language servers.
    pub const ALL: [(WordKind, &'static str); 8] = [
        (WordKind::Variable, "variable"),
        (WordKind::Property, "property"),
        (WordKind::Function, "function"),
        (WordKind::Keyword, "keyword"),
        (WordKind::Number, "number"),
        (WordKind::Text, "string"),
        (WordKind::Operator, "operator"),
        (WordKind::Parameter, "parameter"),
    ];
}

/// Returns the words of all expressions of a flow, in the order of the text. Each lies in one line.
pub fn words(text: &str, catalog: &Catalog) -> Vec<(Range<usize>, WordKind)> {
    let mut found = Vec::new();
    if is_too_large(text) {
        return found;
    }
    let root = read(text);
    if Dialect::of(&root) != Dialect::Graph {
        return found;
    }
    let mut add = |spot: Spot<'_>| {
        let expression = spot.expression();
        let steps: HashSet<_> =
            expression.paths().into_iter().flat_map(|path| path.steps).map(|step| step.range.start).collect();
        for (index, token) in expression.tokens.iter().enumerate() {
            let kind = match token.kind {
                TokenKind::Number => WordKind::Number,
                TokenKind::Text => WordKind::Text,
                TokenKind::Sign => WordKind::Operator,
                TokenKind::Name if steps.contains(&token.range.start) => WordKind::Property,
                TokenKind::Name => match expression.name_use(index) {
                    NameUse::Filter | NameUse::Test | NameUse::Call => WordKind::Function,
                    NameUse::Word => WordKind::Keyword,
                    NameUse::Argument => WordKind::Parameter,
                    NameUse::Member => WordKind::Property,
                    NameUse::Root => WordKind::Variable,
                },
            };
            let range = spot.scalar.range_to_file(&token.range);
            if found.len() < MAX_WORDS && !range.is_empty() && !text[range.clone()].contains('\n') {
                found.push((range, kind));
            }
        }
    };
    Flow::all(text, &root, catalog).for_each(|flow| spots::each(&flow, None, &mut add));
    found.sort_by_key(|(range, _)| range.start);
    // Words that overlap cannot be shown.
    let mut end = 0;
    found.retain(|(range, _)| {
        let is_free = range.start >= end;
        end = if is_free { range.end } else { end };
        is_free
    });
    found
}

/// Returns a note behind each end of a long edge that tells the type of its node: the byte after which it stands, and
/// its text.
pub fn hints(text: &str, catalog: &Catalog, range: Range<usize>) -> Vec<(usize, String)> {
    if is_too_large(text) {
        return Vec::new();
    }
    let root = read(text);
    let flow = Flow::new(text, &root, catalog);
    let mut found = Vec::new();
    collect_hints(&flow, &root, &mut found);
    found.retain(|(at, _)| range.contains(at));
    found
}

fn collect_hints(flow: &Flow<'_>, graph: &Value, found: &mut Vec<(usize, String)>) {
    for item in graph.member("edges").map(Value::items).unwrap_or_default() {
        for end in ["from", "to"].iter().filter_map(|name| item.member(name)) {
            let node = flow.text(Some(end)).and_then(|(id, _)| flow.find(&id)).map(|node| &flow.nodes[node]);
            let kind = node.and_then(|node| node.kind.as_ref());
            found.extend(kind.map(|kind| (end.range.end, kind.name.to_string())));
        }
    }
    for node in graph.member("nodes").map(Value::items).unwrap_or_default() {
        if let Some(body) = node.member("body").filter(|body| matches!(body.kind, Kind::Map(_))) {
            collect_hints(flow, body, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::CATALOG;

    #[test]
    fn words_of_expressions_have_their_kinds_and_places() {
        let text = "nodes:\n  - id: a\n    type: control.if\n    input: { condition: \"flow.input.x is defined and 2 > range(n=1) | length\" }\nedges: [{ from: a, to: a }]\n";
        let found: Vec<_> = words(text, &CATALOG).into_iter().map(|(range, kind)| (&text[range], kind)).collect();
        let of = |word: &str| found.iter().find(|(text, _)| *text == word).map(|(_, kind)| *kind);
        assert_eq!(of("flow"), Some(WordKind::Variable));
        assert_eq!((of("input"), of("x")), (Some(WordKind::Property), Some(WordKind::Property)));
        assert_eq!(
            (of("defined"), of("range"), of("length")),
            (Some(WordKind::Function), Some(WordKind::Function), Some(WordKind::Function))
        );
        assert_eq!(
            (of("and"), of("n"), of("2")),
            (Some(WordKind::Keyword), Some(WordKind::Parameter), Some(WordKind::Number))
        );
        let hints = hints(text, &CATALOG, 0..text.len());
        assert_eq!(hints.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["control.if", "control.if"]);
        assert!(text[..hints[0].0].ends_with("from: a"));
    }
}
