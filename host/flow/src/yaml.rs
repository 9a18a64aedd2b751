//! Parses YAML to a tree with positions. JSON is parsed as YAML.

use std::{fmt, sync::Arc};

use flowcell_contract::Json;
use flowcell_expr::json::{
    Number,
    digits::{TOO_LONG, whole_number},
};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{DuplicateKeyPolicy, Location, MergeKeyPolicy, Options, Spanned};

use crate::limits;

/// A position in a text. Lines and columns start at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// Length in characters; 0 if the value spans several lines.
    pub(crate) len: usize,
    /// Byte offset in the whole text.
    pub(crate) start: usize,
    /// The copy of a fragment that the value stands in, counted from 1; 0 outside of fragments.
    pub(crate) copy: u32,
}

impl From<Location> for Span {
    fn from(location: Location) -> Span {
        Span {
            line: location.line() as usize,
            column: location.column() as usize,
            len: location.span().len() as usize,
            start: location.span().byte_offset().unwrap_or_default() as usize,
            copy: 0,
        }
    }
}

/// A value with its position.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Scalar(Json),
    List(Vec<Tree>),
    Map(Vec<Entry>),
}

/// A member of a map.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Arc<str>,
    pub(crate) key_span: Span,
    pub(crate) value: Tree,
}

impl Tree {
    /// Returns the value without its positions.
    pub(crate) fn json(&self) -> Json {
        match &self.kind {
            Kind::Scalar(json) => json.clone(),
            Kind::List(items) => Json::array(items.iter().map(Tree::json)),
            Kind::Map(entries) => Json::object(entries.iter().map(|entry| (entry.key.clone(), entry.value.json()))),
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(json) => json.as_str(),
            _ => None,
        }
    }

    /// Returns the items of a list; no items for any other value.
    pub(crate) fn items(&self) -> &[Tree] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the values of a map; no values for any other value.
    pub(crate) fn values(&self) -> Vec<&Tree> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().map(|entry| &entry.value).collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn member(&self, key: &str) -> Option<&Tree> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|entry| &*entry.key == key).map(|entry| &entry.value),
            _ => None,
        }
    }

    /// Follows a JSON Pointer as far as it leads to existing values, and returns the last of them.
    pub(crate) fn nearest(&self, pointer: &str) -> &Tree {
        let mut at = self;
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            let next = match &at.kind {
                Kind::Map(_) => at.member(&token),
                Kind::List(items) => token.parse::<usize>().ok().and_then(|index| items.get(index)),
                Kind::Scalar(_) => None,
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        at
    }

    /// Returns the value at a JSON Pointer, to change it.
    pub(crate) fn part_mut(&mut self, pointer: &str) -> Option<&mut Tree> {
        pointer.split('/').skip(1).try_fold(self, |at, token| {
            let token = token.replace("~1", "/").replace("~0", "~");
            match &mut at.kind {
                Kind::Map(entries) => {
                    entries.iter_mut().find(|entry| *entry.key == *token).map(|entry| &mut entry.value)
                }
                Kind::List(items) => items.get_mut(token.parse::<usize>().ok()?),
                Kind::Scalar(_) => None,
            }
        })
    }

    /// Returns the position of the key that a JSON Pointer ends with; `None` if there is no such key.
    pub(crate) fn key_span(&self, pointer: &str) -> Option<Span> {
        let (parent, key) = pointer.rsplit_once('/')?;
        let key = key.replace("~1", "/").replace("~0", "~");
        match &self.nearest(parent).kind {
            Kind::Map(entries) => entries.iter().find(|entry| *entry.key == *key).map(|entry| entry.key_span),
            _ => None,
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match &self.kind {
            Kind::Scalar(json) => json.type_name(),
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }
}

/// A syntax error with its position.
pub(crate) struct SyntaxError {
    pub(crate) span: Span,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// Parses a document.
pub(crate) fn parse(text: &str) -> Result<Tree, SyntaxError> {
    if text.len() > limits::DOCUMENT_BYTES {
        let message = format!("the document has {} bytes; the limit is {}", text.len(), limits::DOCUMENT_BYTES);
        return Err(SyntaxError { span: Span { line: 1, column: 1, ..Span::default() }, message, help: None });
    }
    serde_yaml::from_str_with_options(text, options()).map_err(|error| {
        let span = error.location().map_or(Span { line: 1, column: 1, ..Span::default() }, Span::from);
        match is_bare_binding(text, span) {
            true => SyntaxError {
                span,
                message: "YAML reads `{{` without quotes as a map inside a map".into(),
                help: Some("put the binding in quotes: \"{{ … }}\"".into()),
            },
            false => SyntaxError { span, message: first_line(&error.to_string()), help: None },
        }
    })
}

/// Reads a document to a value, with the limits of flows.
///
/// # Errors
///
/// The text is no YAML, is too large, has anchors or a key twice, or has a number that would lose digits. The error
/// names the line.
pub fn read_value(text: &str) -> Result<Json, String> {
    let tree = parse(text).map_err(|error| format!("line {}: {}", error.span.line, error.message))?;
    let mut long = Vec::new();
    long_numbers(&tree, text, &mut long);
    match long.first() {
        Some((span, _)) => Err(format!("line {}: a whole number {TOO_LONG}", span.line)),
        None => Ok(tree.json()),
    }
}

/// Returns true if an error is about an unquoted `{{` at the position of the error or just before it.
fn is_bare_binding(text: &str, span: Span) -> bool {
    let line = text.lines().nth(span.line.saturating_sub(1)).unwrap_or_default();
    let column = span.column.saturating_sub(1);
    let from = column.saturating_sub(1);
    let around: String = line.chars().skip(from).take(3).collect();
    let before = line.chars().take(from).filter(|c| *c == '"').count();
    around.contains("{{") && before % 2 == 0
}

/// Returns the text of a scalar that YAML read as a number, as the document has it.
fn written_number<'t>(tree: &Tree, text: &'t str) -> &'t str {
    let written = text.get(tree.span.start..).unwrap_or_default();
    let length = written.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '+' | '-' | '.'));
    &written[..length.unwrap_or(written.len())]
}

/// Collects the whole numbers that have more digits than a number can store exactly, with their text in the document.
pub(crate) fn long_numbers<'t>(tree: &Tree, text: &'t str, found: &mut Vec<(Span, &'t str)>) {
    match &tree.kind {
        Kind::Scalar(Json::Number(number)) if number.is_f64() => {
            let written = written_number(tree, text);
            let digits = written.strip_prefix('+').unwrap_or(written);
            let is_whole = digits.strip_prefix('-').unwrap_or(digits).bytes().all(|byte| byte.is_ascii_digit());
            if is_whole && !digits.is_empty() && whole_number(digits).is_none() {
                found.push((tree.span, written));
            }
        }
        Kind::Scalar(_) => {}
        Kind::List(items) => items.iter().for_each(|item| long_numbers(item, text, found)),
        Kind::Map(entries) => entries.iter().for_each(|entry| long_numbers(&entry.value, text, found)),
    }
}

/// Collects the numbers that other YAML parsers may read as another value. Each comes with its text in the document,
/// and the value that this parser read.
pub(crate) fn ambiguous_numbers<'t>(tree: &'t Tree, text: &'t str, found: &mut Vec<(Span, &'t str, String)>) {
    match &tree.kind {
        Kind::Scalar(Json::Number(number)) => {
            let written = written_number(tree, text);
            let digits = written.trim_start_matches(['+', '-']).as_bytes();
            let leading_zero = digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit();
            if leading_zero || written.contains('_') {
                found.push((tree.span, written, number.to_string()));
            }
        }
        Kind::Scalar(_) => {}
        Kind::List(items) => items.iter().for_each(|item| ambiguous_numbers(item, text, found)),
        Kind::Map(entries) => entries.iter().for_each(|entry| ambiguous_numbers(&entry.value, text, found)),
    }
}

fn options() -> Options {
    serde_yaml::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        emit_comments: false,
        budget: serde_yaml::budget! {
            max_depth: limits::DOCUMENT_DEPTH,
            flow_nesting_limit: limits::DOCUMENT_DEPTH,
            max_nodes: limits::DOCUMENT_NODES,
            max_events: limits::DOCUMENT_NODES * 2,
            max_aliases: 0,
            max_anchors: 0,
            max_documents: 1,
        },
    }
}

fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or(message);
    // The position is shown separately, and users cannot set the parser's options.
    let line = line.split(" at line ").next().unwrap_or(line).trim_start_matches("error: ");
    let begins = |begins: &[&str]| begins.iter().any(|begin| line.starts_with(begin));
    match line.split_once(", set ") {
        Some((cause, _)) => cause.to_owned(),
        None if begins(&["budget breached: Anchors"]) => "anchors and aliases are not allowed in a flow".into(),
        None if begins(&["budget breached: Documents"]) => {
            "the file has more than one document; remove the line `---`".into()
        }
        None if begins(&["budget breached: Depth", "recursion limit"]) => {
            format!("lists and maps are nested deeper than {}", limits::DOCUMENT_DEPTH)
        }
        None if begins(&["budget breached: Nodes", "budget breached: Events"]) => {
            format!("the document has more than {} values", limits::DOCUMENT_NODES)
        }
        None => match line.strip_prefix("non-finite float `").and_then(|rest| rest.split_once('`')) {
            Some((written, _)) => format!("`{written}` is not a finite number; put a text in quotes"),
            None => line.to_owned(),
        },
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        let spanned = Spanned::<Kind>::deserialize(deserializer)?;
        Ok(Tree { span: Span::from(spanned.referenced), kind: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Scalar(Json::Null))
    }

    fn visit_none<E>(self) -> Result<Kind, E> {
        Ok(Kind::Scalar(Json::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        Kind::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Scalar(Json::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Scalar(Json::Number(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Scalar(Json::Number(value.into())))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Kind, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(Kind::Scalar(Json::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Scalar(Json::from(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Kind, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Kind::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let value = map.next_value()?;
            entries.push(Entry { key: key.value.as_str().into(), key_span: Span::from(key.referenced), value });
        }
        Ok(Kind::Map(entries))
    }
}

/// Maximum size in bytes of a text for which positions of its parts are computed. The time grows with the size of the
/// text and with the number of positions.
const MAX_POSITION_BYTES: usize = 16 * 1024;

/// Returns the position of the bytes `offset` in the text at a JSON Pointer. Returns the position of the whole text if
/// the text is long, escaped, folded, in another file, or in a fragment, whose texts are rewritten.
pub(crate) fn place(tree: &Tree, pointer: &str, offset: Option<std::ops::Range<usize>>) -> Span {
    let at = tree.nearest(pointer);
    let text = at.text().filter(|text| text.len() <= MAX_POSITION_BYTES && at.span.copy == 0);
    let (Some(text), Some(offset)) = (text, offset) else { return at.span };
    let Some(quotes) = at.span.len.checked_sub(text.chars().count()) else { return at.span };
    let simple = !text.contains('\n') && (quotes == 0 || quotes == 2);
    match (simple, text.get(..offset.start), text.get(offset)) {
        (true, Some(before), Some(meant)) => Span {
            line: at.span.line,
            column: at.span.column + quotes / 2 + before.chars().count(),
            len: meant.chars().count(),
            start: at.span.start + quotes / 2 + before.len(),
            copy: 0,
        },
        _ => at.span,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn limits_are_described_with_their_numbers() {
        let deep = (0..80).map(|depth| " ".repeat(depth) + "k:\n").collect::<String>();
        let flow_style = format!("a: {}{}", "[".repeat(300), "]".repeat(300));
        let many = format!("a: [{}1]", "1,".repeat(limits::DOCUMENT_NODES));
        for (text, expected) in [
            (deep.as_str(), "lists and maps are nested deeper than 64"),
            (flow_style.as_str(), "lists and maps are nested deeper than 64"),
            (many.as_str(), "the document has more than 500000 values"),
            ("a: 1\n---\nb: 2\n", "the file has more than one document; remove the line `---`"),
            ("a: -.inf", "`-.inf` is not a finite number; put a text in quotes"),
        ] {
            assert_eq!(parse(text).unwrap_err().message, expected);
        }
    }
}
