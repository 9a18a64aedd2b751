//! Paths: a root name, followed by segments that lead to a part of its value.

use std::{fmt, ops::Range, sync::Arc};

use crate::{
    error::ExprError,
    file::{self, Rank},
    json::{self, Json},
    limits,
    roots::Roots,
};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// A member of an object.
    Key(Arc<str>),
    /// An item of a list or a character of a text; a negative index counts from the end.
    Index(i64),
}

impl Segment {
    fn key(&self) -> Option<&str> {
        match self {
            Segment::Key(key) => Some(key),
            Segment::Index(_) => None,
        }
    }

    /// Returns the key or the index for a message.
    fn name(&self) -> String {
        match self {
            Segment::Key(key) => shorten(key),
            Segment::Index(index) => index.to_string(),
        }
    }
}

/// A root name and the path to a part of its value: `fetch.body["x-y"][0]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    root: Arc<str>,
    segments: Box<[Segment]>,
}

impl Path {
    /// Creates a path from its parts.
    pub fn new(root: impl Into<Arc<str>>, segments: impl IntoIterator<Item = Segment>) -> Path {
        Path { root: root.into(), segments: segments.into_iter().collect() }
    }

    /// Parses `root.key`, `root["any key"]`, `root[0]`, and combinations of them.
    pub fn parse(text: &str) -> Result<Path, ExprError> {
        if text.len() > limits::EXPRESSION_BYTES {
            return Err(ExprError::new(format!("a path is longer than {} bytes", limits::EXPRESSION_BYTES)));
        }
        Parser { text, at: text.len() - text.trim_start().len() }.path()
    }

    /// Returns the name that the path starts with.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns the segments after the root.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Looks up the value; `None` if the root or any part is missing.
    pub fn resolve(&self, roots: &dyn Roots) -> Option<Json> {
        let root = roots.root(&self.root)?;
        if self.segments.is_empty() {
            return Some(root);
        }
        let mut value = &root;
        for (at, segment) in self.segments.iter().enumerate() {
            value = match (value, segment) {
                (Json::Object(members), Segment::Key(key)) => members.get(key)?,
                (Json::Array(items), Segment::Index(index)) => items.get(index_to_position(*index, items.len())?)?,
                (Json::String(text), Segment::Index(index)) => {
                    let character = character(text, *index)?;
                    let rest = Path { root: self.root.clone(), segments: self.segments[at + 1..].into() };
                    return rest.resolve(&SingleRoot(character));
                }
                _ => return None,
            };
        }
        Some(value.clone())
    }

    /// Looks up the value for an evaluation. In a strict evaluation, the whole output of a skipped node counts as
    /// missing. A path into a file value is an error.
    pub(crate) fn read(&self, roots: &dyn Roots) -> Result<Option<Json>, ExprError> {
        let Some(value) = self.resolve(roots) else {
            return match self.find_file(roots) {
                Some(file) => {
                    let part = self.segments.get(file.segments.len());
                    Err(file::misuse_error(file::no_part_message(part.map(Segment::name).unwrap_or_default()), [&file]))
                }
                None => Ok(None),
            };
        };
        let is_missing = self.is_output() && is_skipped(&value) && roots.is_strict();
        Ok((!is_missing).then_some(value))
    }

    /// Returns the path of the file value that this path leads to, or that this path enters with a key that no file
    /// value has. Returns `None` if there is no such file value.
    pub(crate) fn find_file(&self, roots: &dyn Roots) -> Option<Path> {
        let mut rank = Rank::from_root(&self.root);
        for length in 0..=self.segments.len() {
            let start = Path { root: self.root.clone(), segments: self.segments[..length].into() };
            let value = start.resolve(roots)?;
            let key = self.segments.get(length).map(Segment::key);
            let is_found = match key {
                None => value.is_file(),
                Some(key) => value.as_object().is_some_and(|members| file::lacks(members, key, rank)),
            };
            if is_found {
                return Some(start);
            }
            rank = rank.part_rank();
        }
        None
    }

    /// Creates the error that this path has no value. If the path reads from a skipped node, the error names this node.
    pub(crate) fn missing(&self, roots: &dyn Roots) -> ExprError {
        let skipped = self.find_skipped_node(roots).map(|node| format!(": `{node}` was skipped"));
        ExprError::missing(format!("`{}` is missing{}", shorten(&self.to_string()), skipped.unwrap_or_default()))
    }

    /// Returns true if the path may be a node's whole output: `node`, or `nodes["node"]`.
    pub(crate) fn is_output(&self) -> bool {
        self.segments.len() == usize::from(&*self.root == "nodes")
    }

    /// Returns the path of the skipped node that this path reads from; `None` if the path reads from no skipped node.
    pub(crate) fn find_skipped_node(&self, roots: &dyn Roots) -> Option<Path> {
        let length = usize::from(&*self.root == "nodes");
        let node = Path { root: self.root.clone(), segments: self.segments.get(..length)?.into() };
        is_skipped(&node.resolve(roots)?).then_some(node)
    }

    /// Returns the path to a member of the value at this path.
    pub(crate) fn member(&self, key: &str) -> Path {
        Path::new(self.root.clone(), self.segments.iter().cloned().chain([Segment::Key(key.into())]))
    }

    /// Returns the longest beginning of this path that a captured field can include by itself; see
    /// [`limits::CAPTURED_INDEX`].
    pub(crate) fn capturable_prefix(&self) -> Path {
        let alone = |segment: &Segment| match segment {
            Segment::Key(_) => true,
            Segment::Index(index) => (0..=limits::CAPTURED_INDEX).contains(index),
        };
        let length = self.segments.iter().position(|segment| !alone(segment)).unwrap_or(self.segments.len());
        Path { root: self.root.clone(), segments: self.segments[..length].into() }
    }
}

/// Maximum number of characters of a path or an expression in a message.
const MAX_SHOWN_CHARS: usize = 120;

/// Shortens a text from the flow for a message.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn is_skipped(value: &Json) -> bool {
    value.as_object().is_some_and(json::is_skipped)
}

/// A source of roots that returns the same value for every root name.
struct SingleRoot(Json);

impl Roots for SingleRoot {
    fn root(&self, _name: &str) -> Option<Json> {
        Some(self.0.clone())
    }
}

/// Converts an index to a position; negative indices count from the end.
fn index_to_position(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

/// Returns the character at an index as a text, like `text[index]` in the expression language.
fn character(text: &str, index: i64) -> Option<Json> {
    let length = if index < 0 { text.chars().count() } else { 0 };
    let character = text.chars().nth(index_to_position(index, length)?)?;
    Some(Json::from(character.encode_utf8(&mut [0; 4]) as &str))
}

/// Returns true if a name can be a root or a key after a dot.
pub(crate) fn is_identifier(name: &str) -> bool {
    let start = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    start && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.root)?;
        for segment in &self.segments {
            match segment {
                Segment::Key(key) if is_identifier(key) => write!(formatter, ".{key}")?,
                Segment::Key(key) => write!(formatter, "[{}]", Json::String(key.clone()).to_text())?,
                Segment::Index(index) => write!(formatter, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Parses a path from left to right.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn path(mut self) -> Result<Path, ExprError> {
        let root = self.identifier("a path starts with a name")?;
        let mut segments = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            match rest.bytes().next() {
                Some(b'.') => {
                    self.at += 1;
                    segments.push(self.after_dot()?);
                }
                Some(b'[') => {
                    self.at += 1;
                    segments.push(self.in_brackets()?);
                }
                _ if rest.trim().is_empty() => return Ok(Path::new(root, segments)),
                _ => return Err(self.unexpected()),
            }
        }
    }

    fn identifier(&mut self, otherwise: &str) -> Result<Arc<str>, ExprError> {
        let rest = &self.text[self.at..];
        let length = rest.find(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        let word = &rest[..length.unwrap_or(rest.len())];
        if !is_identifier(word) {
            return Err(ExprError::new(otherwise).at(self.rest_range()));
        }
        self.at += word.len();
        Ok(word.into())
    }

    fn after_dot(&mut self) -> Result<Segment, ExprError> {
        let rest = &self.text[self.at..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return self.identifier("a dot must be followed by a name or a number").map(Segment::Key);
        }
        let index =
            rest[..digits].parse().map_err(|_| ExprError::new("this index is too large").at(self.rest_range()))?;
        self.at += digits;
        Ok(Segment::Index(index))
    }

    fn in_brackets(&mut self) -> Result<Segment, ExprError> {
        let rest = &self.text[self.at..];
        let quote = rest.chars().next().filter(|character| matches!(character, '"' | '\''));
        let (segment, length) = match quote {
            Some(quote) => self.quoted(&rest[1..], quote)?,
            None => {
                let length = rest.find(']').unwrap_or(rest.len());
                let index = rest[..length].trim().parse();
                let error = || ExprError::new("brackets must contain an index or a quoted key").at(self.rest_range());
                (Segment::Index(index.map_err(|_| error())?), length)
            }
        };
        self.at += length;
        if !self.text[self.at..].starts_with(']') {
            return Err(ExprError::new("the bracket is not closed").at(self.rest_range()));
        }
        self.at += 1;
        Ok(segment)
    }

    /// Parses a quoted key; `rest` starts after the quote. Returns the number of bytes, including both quotes.
    fn quoted(&self, rest: &str, quote: char) -> Result<(Segment, usize), ExprError> {
        let mut json = String::from('"');
        let mut characters = rest.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some((_, '\'')) => json.push('\''),
                    Some((_, escaped)) => json.extend(['\\', escaped]),
                    None => break,
                },
                end if end == quote => {
                    json.push('"');
                    let error = |_| ExprError::new("the key has an unknown escape").at(self.rest_range());
                    let key: String = serde_json::from_str(&json).map_err(error)?;
                    return Ok((Segment::Key(key.into()), at + 2));
                }
                '"' => json.push_str("\\\""),
                other => json.push(other),
            }
        }
        Err(ExprError::new("the quoted key is not closed").at(self.rest_range()))
    }

    fn unexpected(&self) -> ExprError {
        let error = ExprError::new("a path continues with `.name`, `[0]` or `[\"key\"]`").at(self.rest_range());
        match self.text[self.at..].starts_with('-') {
            true => error.hint("write `nodes[\"the-name\"]` for a name with a dash"),
            false => error,
        }
    }

    fn rest_range(&self) -> Range<usize> {
        self.at..self.text.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn reads_writes_and_resolves() {
        let roots = Json::parse(r#"{"a":{"b":[1,{"x-y":"é!"},[]],"c d":null,"q\"'":5}}"#).unwrap();
        let cases = [
            ("a.b[0]", "a.b[0]", "1"),
            (" a.b.0 ", "a.b[0]", "1"),
            ("a['b'][1]['x-y']", "a.b[1][\"x-y\"]", "\"é!\""),
            ("a.b[1][\"x-y\"][0]", "a.b[1][\"x-y\"][0]", "\"é\""),
            ("a.b[1][\"x-y\"][-1]", "a.b[1][\"x-y\"][-1]", "\"!\""),
            ("a.b[-1]", "a.b[-1]", "[]"),
            ("a.b[-4]", "a.b[-4]", "missing"),
            ("a[\"c d\"]", "a[\"c d\"]", "null"),
            (r#"a['q"\'']"#, r#"a["q\"'"]"#, "5"),
            ("a.b.c", "a.b.c", "missing"),
            ("z", "z", "missing"),
        ];
        for (text, canonical, expected) in cases {
            let path = Path::parse(text).unwrap();
            assert_eq!(path.to_string(), canonical);
            assert_eq!(Path::parse(canonical).unwrap(), path);
            let value = path.resolve(&roots).map_or("missing".into(), |value| value.to_text());
            assert_eq!(value, expected, "{text}");
        }
    }

    #[test]
    fn invalid_paths_are_errors() {
        for text in
            ["", ".a", "a.", "a..b", "a[", "a[x]", "a['x", "a-b", "a b", "1a", "a[\"\\q\"]", "a.99999999999999999999"]
        {
            let error = Path::parse(text).unwrap_err();
            assert!(error.offset.is_some(), "{text}: {error}");
        }
        assert!(Path::parse("a-b.c").unwrap_err().hint.unwrap().contains("nodes["));
    }
}
