//! Reads YAML and JSON tolerantly. A broken text still gives a tree: each line belongs to the innermost member above it
//! with less indentation.
//!
//! The reader knows what flows are written in: maps and lists in block and flow style, texts of all styles, and
//! comments. It does not know tags, anchors and documents. It reports no errors, because the check does.

#[cfg(test)]
mod tests;

use std::ops::Range;

/// Maximum nesting depth of a tree. Deeper values are left out.
const MAX_DEPTH: usize = 100;

/// A value with its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// The bytes of the value. Quotes and brackets belong to it.
    pub(crate) range: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// No value, as behind `key:`.
    Missing,
    Scalar(Style),
    List(Vec<Value>),
    Map(Vec<Member>),
}

/// The style of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Single,
    Double,
    /// A text of whole lines behind `|` or `>`.
    Block,
}

/// A member of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// The bytes of the key, without its quotes.
    pub(crate) key: Range<usize>,
    /// True if a colon follows the key.
    pub(crate) has_colon: bool,
    pub(crate) value: Value,
}

impl Value {
    fn missing(at: usize) -> Value {
        Value { range: at..at, kind: Kind::Missing }
    }

    pub(crate) fn members(&self) -> &[Member] {
        match &self.kind {
            Kind::Map(members) => members,
            _ => &[],
        }
    }

    pub(crate) fn items(&self) -> &[Value] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn member(&self, name: &str) -> Option<&Value> {
        self.members().iter().find(|member| member.name == name).map(|member| &member.value)
    }

    pub(crate) fn style(&self) -> Option<Style> {
        match self.kind {
            Kind::Scalar(style) => Some(style),
            _ => None,
        }
    }
}

/// A line of the text: the offsets of its start, of its first sign that is no space, and of its end.
struct Line {
    start: usize,
    content: usize,
    end: usize,
}

/// Reads a text.
pub(crate) fn read(text: &str) -> Value {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.trim_end_matches(['\n', '\r']).len();
        let content = start + (line.len() - line.trim_start_matches([' ', '\t']).len());
        lines.push(Line { start, content: content.min(end), end });
        start += line.len();
    }
    let mut reader = Reader { text, lines, at: 0, offset: 0 };
    let root = reader.block(-1, 0);
    Value { range: 0..text.len(), kind: root.kind }
}

struct Reader<'t> {
    text: &'t str,
    lines: Vec<Line>,
    /// The current line.
    at: usize,
    /// The first byte of the current line that was not read.
    offset: usize,
}

impl Reader<'_> {
    /// Returns the column and the offset of the next sign that is neither space nor comment.
    fn peek(&mut self) -> Option<(isize, usize)> {
        loop {
            let line = self.lines.get(self.at)?;
            let from = self.offset.max(line.content).min(line.end);
            let rest = &self.text[from..line.end];
            let offset = from + (rest.len() - rest.trim_start_matches([' ', '\t']).len());
            let is_break = offset == line.start && matches!(rest.trim_end(), "---" | "...");
            if offset < line.end && !self.text[offset..].starts_with('#') && !is_break {
                return Some(((offset - line.start) as isize, offset));
            }
            self.next_line();
        }
    }

    fn next_line(&mut self) {
        self.at += 1;
        self.offset = 0;
    }

    /// Goes on behind the byte `offset`, in the next line if only a rest that makes no sense follows.
    fn go_on_behind(&mut self, offset: usize) {
        while self.lines.get(self.at).is_some_and(|line| line.end < offset) {
            self.next_line();
        }
        self.next_line();
    }

    fn rest(&self, offset: usize) -> &str {
        self.lines.get(self.at).and_then(|line| self.text.get(offset..line.end)).unwrap_or_default()
    }

    /// Reads the value whose lines are indented more than `floor`.
    fn block(&mut self, floor: isize, depth: usize) -> Value {
        match self.peek() {
            Some((indent, offset)) if indent > floor => {
                let rest = self.rest(offset);
                if depth >= MAX_DEPTH {
                    self.next_line();
                    Value::missing(offset)
                } else if is_item(rest) {
                    self.list(indent, floor, depth)
                } else if find_key(rest).is_some() && !rest.starts_with(['{', '[']) {
                    self.map(floor, depth)
                } else {
                    self.inline(offset, floor, depth)
                }
            }
            found => Value::missing(found.map_or(self.text.len(), |(_, offset)| offset)),
        }
    }

    fn list(&mut self, indent: isize, floor: isize, depth: usize) -> Value {
        let mut items: Vec<Value> = Vec::new();
        let start = self.peek().map_or(0, |(_, offset)| offset);
        while let Some((column, offset)) = self.peek().filter(|(column, _)| *column > floor) {
            if is_item(self.rest(offset)) {
                self.offset = offset + 1;
                let line = self.at;
                let mut item = self.block(column, depth + 1);
                if item.kind == Kind::Missing {
                    // The value belongs behind the dash.
                    let end = self.lines.get(line).map_or(offset + 1, |line| line.end);
                    item = Value::missing((offset + 2).min(end));
                }
                items.push(item);
            } else if column <= indent {
                break;
            } else if let Some(Value { kind: Kind::Map(members), .. }) = items.last_mut() {
                let Value { kind: Kind::Map(more), .. } = self.map(indent, depth) else { continue };
                members.extend(more);
            } else {
                self.next_line();
            }
        }
        let end = items.last().map_or(start + 1, |item| item.range.end.max(start + 1));
        Value { range: start..end, kind: Kind::List(items) }
    }

    fn map(&mut self, floor: isize, depth: usize) -> Value {
        let mut members: Vec<Member> = Vec::new();
        let start = self.peek().map_or(0, |(_, offset)| offset);
        while let Some((column, offset)) = self.peek().filter(|(column, _)| *column > floor) {
            let rest = self.rest(offset);
            if is_item(rest) {
                let stray = self.list(column, floor, depth + 1);
                if let Some(last) = members.last_mut().filter(|last| last.value.kind == Kind::Missing) {
                    last.value = stray;
                }
                continue;
            }
            let Some(Key { name, range, colon }) = find_key(rest) else {
                let word = rest.split([':', '#']).next().unwrap_or_default().trim_end();
                let key = offset..offset + word.len();
                let name = word.to_owned();
                self.next_line();
                members.push(Member { name, value: Value::missing(key.end), key, has_colon: false });
                continue;
            };
            let after = offset + colon + 1;
            self.offset = after;
            let line = self.at;
            let value = match self.peek() {
                Some((_, at)) if self.at == line => self.inline(at, column, depth + 1),
                Some((below, at)) if below == column && is_item(self.rest(at)) => {
                    self.list(below, below - 1, depth + 1)
                }
                Some((below, _)) if below > column => self.block(column, depth + 1),
                _ => Value::missing(self.lines.get(line).map_or(after, |line| line.end.min(after + 1))),
            };
            members.push(Member { name, key: offset + range.start..offset + range.end, has_colon: true, value });
        }
        let end = members.last().map_or(start, |member| member.value.range.end.max(member.key.end));
        Value { range: start..end.max(start), kind: Kind::Map(members) }
    }

    /// Reads a value that begins in the current line, and goes on with the line behind it.
    fn inline(&mut self, offset: usize, floor: isize, depth: usize) -> Value {
        let rest = self.rest(offset);
        let value = match rest.bytes().next() {
            Some(b'{' | b'[') => self.flow(offset, floor, depth),
            Some(b'|' | b'>') => return self.block_text(floor),
            Some(b'"' | b'\'') => self.quoted(offset, floor),
            _ => return self.plain(offset, floor),
        };
        self.go_on_behind(value.range.end);
        value
    }

    /// Reads a plain text with the lines that continue it.
    fn plain(&mut self, offset: usize, floor: isize) -> Value {
        let rest = self.rest(offset);
        let mut end = offset + rest.find(" #").map_or(rest.len(), |comment| comment);
        end -= self.text[offset..end].len() - self.text[offset..end].trim_end().len();
        self.next_line();
        while let Some(line) = self.lines.get(self.at) {
            let more = self.text[line.content..line.end].trim_end();
            let is_deeper = (line.content - line.start) as isize > floor;
            if more.is_empty() || !is_deeper || more.starts_with('#') || is_item(more) || find_key(more).is_some() {
                break;
            }
            end = line.content + more.len();
            self.next_line();
        }
        Value { range: offset..end, kind: Kind::Scalar(Style::Plain) }
    }

    /// Reads the lines behind `|` or `>` that are indented more than `floor`.
    fn block_text(&mut self, floor: isize) -> Value {
        let head = self.lines.get(self.at).map_or(self.text.len(), |line| line.end);
        self.next_line();
        let mut range: Option<Range<usize>> = None;
        while let Some(line) = self.lines.get(self.at) {
            let is_blank = line.content >= line.end;
            if !is_blank && (line.content - line.start) as isize <= floor {
                break;
            }
            if !is_blank {
                range = Some(range.map_or(line.start, |range| range.start)..line.end);
            }
            self.next_line();
        }
        Value { range: range.unwrap_or(head..head), kind: Kind::Scalar(Style::Block) }
    }

    /// Reads a quoted text. If it is not closed before a line that belongs to something else, it ends with its line.
    fn quoted(&self, offset: usize, floor: isize) -> Value {
        let bytes = self.text.as_bytes();
        let quote = bytes[offset];
        let style = if quote == b'"' { Style::Double } else { Style::Single };
        let mut at = offset + 1;
        let mut first_line_end = None;
        while at < bytes.len() {
            match bytes[at] {
                b'\\' if quote == b'"' => at += 1,
                byte if byte == quote && quote == b'\'' && bytes.get(at + 1) == Some(&quote) => at += 1,
                byte if byte == quote => return Value { range: offset..at + 1, kind: Kind::Scalar(style) },
                b'\n' => {
                    first_line_end.get_or_insert(at);
                    if self.is_border(at + 1, floor) {
                        break;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        let end = first_line_end.unwrap_or(bytes.len());
        let end = offset + self.text[offset..end].trim_end_matches('\r').len();
        Value { range: offset..end, kind: Kind::Scalar(style) }
    }

    /// Returns true if the line that starts at a byte is not indented more than `floor`. An empty line is.
    fn is_border(&self, start: usize, floor: isize) -> bool {
        let rest = &self.text[start..];
        let line = rest.split('\n').next().unwrap_or_default();
        let content = line.trim_start_matches([' ', '\t']);
        !content.trim().is_empty() && (line.len() - content.len()) as isize <= floor && !content.starts_with(['}', ']'])
    }

    /// Returns the offset of the next sign in flow style that is neither space nor comment; `None` at the end of the
    /// text, and before a line that belongs to something else.
    fn skip(&self, mut at: usize, floor: isize) -> Option<usize> {
        let bytes = self.text.as_bytes();
        loop {
            match *bytes.get(at)? {
                b'\n' if self.is_border(at + 1, floor) => return None,
                b' ' | b'\t' | b'\r' | b'\n' => at += 1,
                b'#' if at == 0 || matches!(bytes[at - 1], b' ' | b'\t' | b'\n') => {
                    at += self.text[at..].find('\n').unwrap_or(self.text.len() - at);
                }
                _ => return Some(at),
            }
        }
    }

    /// Reads a value in flow style.
    fn flow(&self, at: usize, floor: isize, depth: usize) -> Value {
        match self.text.as_bytes()[at] {
            _ if depth >= MAX_DEPTH => Value::missing(at),
            b'{' => self.flow_map(at, floor, depth),
            b'[' => self.flow_list(at, floor, depth),
            b'"' | b'\'' => self.quoted(at, floor),
            _ => {
                let end = self.flow_plain_end(at);
                Value { range: at..end, kind: Kind::Scalar(Style::Plain) }
            }
        }
    }

    fn flow_list(&self, start: usize, floor: isize, depth: usize) -> Value {
        let mut items = Vec::new();
        let mut at = start + 1;
        let end = loop {
            let Some(next) = self.skip(at, floor) else { break at.min(self.text.len()) };
            match self.text.as_bytes()[next] {
                b']' => break next + 1,
                b'}' => break next,
                b',' => at = next + 1,
                _ => {
                    let value = self.flow(next, floor, depth + 1);
                    at = self.beyond(next, value.range.end);
                    items.push(value);
                }
            }
        };
        Value { range: start..end, kind: Kind::List(items) }
    }

    fn flow_map(&self, start: usize, floor: isize, depth: usize) -> Value {
        let mut members = Vec::new();
        let mut at = start + 1;
        let end = loop {
            let Some(next) = self.skip(at, floor) else { break at.min(self.text.len()) };
            match self.text.as_bytes()[next] {
                b'}' => break next + 1,
                b']' => break next,
                b',' => at = next + 1,
                byte => {
                    let (key, mut after) = match byte {
                        b'"' | b'\'' => {
                            let quoted = self.quoted(next, floor);
                            (inner(self.text, &quoted), quoted.range.end)
                        }
                        _ => {
                            let end = self.flow_plain_end(next);
                            (next..end, end)
                        }
                    };
                    let colon = self.skip(after, floor).filter(|colon| self.text.as_bytes()[*colon] == b':');
                    let mut value = Value::missing(after);
                    if let Some(colon) = colon {
                        after = colon + 1;
                        let space = usize::from(self.text[after..].starts_with(' '));
                        value = Value::missing(after + space);
                        let found = self.skip(after, floor);
                        if let Some(found) = found.filter(|at| !matches!(self.text.as_bytes()[*at], b',' | b'}' | b']'))
                        {
                            value = self.flow(found, floor, depth + 1);
                            after = self.beyond(found, value.range.end);
                        }
                    }
                    at = self.beyond(next, after);
                    let name = self.text[key.clone()].to_owned();
                    members.push(Member { name, key, has_colon: colon.is_some(), value });
                }
            }
        };
        Value { range: start..end, kind: Kind::Map(members) }
    }

    /// Returns `end`, or the next sign behind `at` if nothing was read.
    fn beyond(&self, at: usize, end: usize) -> usize {
        if end > at { end } else { self.text.ceil_char_boundary(at + 1) }
    }

    /// Returns the end of a plain text in flow style.
    fn flow_plain_end(&self, start: usize) -> usize {
        let rest = &self.text[start..];
        let bytes = rest.as_bytes();
        let is_end = |at: usize| match bytes[at] {
            b',' | b'[' | b']' | b'{' | b'}' | b'\n' => true,
            b':' => bytes.get(at + 1).is_none_or(|next| next.is_ascii_whitespace() || b",[]{}".contains(next)),
            b'#' => at > 0 && matches!(bytes[at - 1], b' ' | b'\t'),
            _ => false,
        };
        let end = (0..bytes.len()).find(|at| is_end(*at)).unwrap_or(bytes.len());
        start + rest[..end].trim_end().len()
    }
}

/// Returns the bytes of a text without its quotes.
pub(crate) fn inner(text: &str, value: &Value) -> Range<usize> {
    let range = value.range.clone();
    if !matches!(value.kind, Kind::Scalar(Style::Single | Style::Double)) {
        return range;
    }
    let quote = &text[range.start..range.start + 1];
    let closed = range.len() >= 2 && text[range.clone()].ends_with(quote);
    range.start + 1..range.end - usize::from(closed)
}

fn is_item(rest: &str) -> bool {
    rest == "-" || rest.starts_with("- ") || rest.starts_with("-\t")
}

/// A key at the beginning of a line: its name, its bytes without quotes, and the byte of its colon.
struct Key {
    name: String,
    range: Range<usize>,
    colon: usize,
}

/// Finds the key at the beginning of a line.
fn find_key(rest: &str) -> Option<Key> {
    let is_end = |after: &str| after.is_empty() || after.starts_with([' ', '\t']);
    if let Some(quote) = rest.chars().next().filter(|sign| matches!(sign, '"' | '\'')) {
        let end = 1 + rest[1..].find(quote)?;
        let after = rest[end + 1..].trim_start();
        let colon = rest.len() - after.len();
        return (after.starts_with(':') && is_end(&after[1..])).then(|| Key {
            name: rest[1..end].to_owned(),
            range: 1..end,
            colon,
        });
    }
    let comment = rest.find(" #").unwrap_or(rest.len());
    let colon = rest[..comment].match_indices(':').map(|(at, _)| at).find(|at| is_end(&rest[at + 1..]))?;
    let name = rest[..colon].trim_end();
    Some(Key { name: name.to_owned(), range: 0..name.len(), colon })
}
