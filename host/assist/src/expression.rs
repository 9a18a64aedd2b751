//! Reads expressions tolerantly: their signs, the paths in them, and the kind of name that is typed.

use std::ops::Range;

use flowcell_expr::limits::EXPRESSION_BYTES;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Name,
    Text,
    Number,
    Sign,
}

/// One word or sign of an expression, with its bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) range: Range<usize>,
}

/// Words of the language that are no names of values.
pub(crate) const WORDS: [&str; 13] =
    ["and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "null", "True", "False"];

/// Splits a part of a text into tokens.
pub(crate) fn tokens(text: &str, part: Range<usize>) -> Vec<Token> {
    let bytes = &text.as_bytes()[..part.end];
    let mut found = Vec::new();
    let mut at = part.start;
    let run = |start: usize, is_part: &dyn Fn(u8) -> bool| {
        start + bytes[start..].iter().take_while(|byte| is_part(**byte)).count()
    };
    while at < bytes.len() {
        let (kind, end) = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                (TokenKind::Name, run(at, &|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
            }
            byte if byte.is_ascii_digit() => {
                (TokenKind::Number, run(at, &|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
            }
            quote @ (b'"' | b'\'') => {
                let mut end = at + 1;
                while end < bytes.len() && bytes[end] != quote {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                (TokenKind::Text, (end + 1).min(bytes.len()))
            }
            _ => {
                let pair = text.get(at..at + 2).filter(|pair| ["==", "!=", "<=", ">=", "//", "**"].contains(pair));
                let length = text[at..].chars().next().map_or(1, char::len_utf8);
                (TokenKind::Sign, at + pair.map_or(length, str::len))
            }
        };
        let end = text.ceil_char_boundary(end).min(part.end.max(at + 1));
        found.push(Token { kind, range: at..end });
        at = end;
    }
    found
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// The key or the index as text.
    pub(crate) name: String,
    /// True for `[0]`.
    pub(crate) is_index: bool,
    /// The bytes of the name, without quotes.
    pub(crate) range: Range<usize>,
}

/// A path in an expression: a root and steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PathAt {
    pub(crate) root: String,
    pub(crate) root_range: Range<usize>,
    pub(crate) steps: Vec<Step>,
}

impl PathAt {
    /// Returns the byte behind the path.
    pub(crate) fn end(&self) -> usize {
        self.steps.last().map_or(self.root_range.end, |step| step.range.end)
    }

    /// Writes the path up to a number of steps.
    pub(crate) fn shown(&self, steps: usize) -> String {
        let part = |step: &Step| match () {
            () if step.is_index => format!("[{}]", step.name),
            () if is_plain_name(&step.name) => format!(".{}", step.name),
            () => format!("[\"{}\"]", step.name),
        };
        self.root.clone() + &self.steps.iter().take(steps).map(part).collect::<String>()
    }
}

/// Returns true if a name can stand in an expression without brackets.
pub fn is_plain_name(name: &str) -> bool {
    let is_start = |sign: u8| sign.is_ascii_alphabetic() || sign == b'_';
    name.bytes().next().is_some_and(is_start) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The use of a name in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameUse {
    /// Behind `|`.
    Filter,
    /// Behind `is` or `is not`.
    Test,
    /// The name of an argument: `name=…`.
    Argument,
    /// Behind a dot, but not of a path that begins with a name.
    Member,
    /// A function that is called.
    Call,
    /// A word of the language.
    Word,
    /// The root of a path.
    Root,
}

/// The tokens of an expression with their text.
pub(crate) struct Expression<'t> {
    pub(crate) text: &'t str,
    pub(crate) tokens: Vec<Token>,
}

impl<'t> Expression<'t> {
    /// Reads an expression. Of one that is larger than the check accepts, only the beginning is read.
    pub(crate) fn new(text: &'t str, part: Range<usize>) -> Expression<'t> {
        let end = part.end.min(text.floor_char_boundary(part.start + EXPRESSION_BYTES));
        Expression { text, tokens: tokens(text, part.start..end) }
    }

    pub(crate) fn word(&self, index: usize) -> &'t str {
        self.tokens.get(index).map_or("", |token| &self.text[token.range.clone()])
    }

    fn before(&self, index: usize, back: usize) -> &'t str {
        index.checked_sub(back).map_or("", |index| self.word(index))
    }

    /// Returns the use of the name at a token.
    pub(crate) fn name_use(&self, index: usize) -> NameUse {
        let (word, last, next) = (self.word(index), self.before(index, 1), self.word(index + 1));
        match last {
            "." => return NameUse::Member,
            "|" => return NameUse::Filter,
            "is" => return if word == "not" { NameUse::Word } else { NameUse::Test },
            "not" if self.before(index, 2) == "is" => return NameUse::Test,
            _ => {}
        }
        match next {
            _ if WORDS.contains(&word) => NameUse::Word,
            "=" if matches!(last, "(" | ",") => NameUse::Argument,
            "(" => NameUse::Call,
            _ => NameUse::Root,
        }
    }

    /// Returns the path whose root is the token at an index.
    pub(crate) fn path_at(&self, root: usize) -> PathAt {
        let mut steps = Vec::new();
        let mut at = root + 1;
        loop {
            match (self.word(at), self.tokens.get(at + 1)) {
                (".", Some(token)) if matches!(token.kind, TokenKind::Name | TokenKind::Number) => {
                    let is_index = token.kind == TokenKind::Number;
                    steps.push(Step { name: self.word(at + 1).to_owned(), is_index, range: token.range.clone() });
                    at += 2;
                }
                ("[", Some(token)) if self.word(at + 2) == "]" && token.kind != TokenKind::Name => {
                    let is_index = token.kind == TokenKind::Number;
                    let quotes = usize::from(token.kind == TokenKind::Text);
                    if token.kind == TokenKind::Sign || token.range.len() < 2 * quotes {
                        break;
                    }
                    let range = token.range.start + quotes..token.range.end - quotes;
                    steps.push(Step { name: self.text[range.clone()].to_owned(), is_index, range });
                    at += 3;
                }
                _ => break,
            }
        }
        PathAt { root: self.word(root).to_owned(), root_range: self.tokens[root].range.clone(), steps }
    }

    /// Returns all paths that begin with a name.
    pub(crate) fn paths(&self) -> Vec<PathAt> {
        let is_root =
            |index: &usize| self.tokens[*index].kind == TokenKind::Name && self.name_use(*index) == NameUse::Root;
        (0..self.tokens.len()).filter(is_root).map(|index| self.path_at(index)).collect()
    }
}

/// Returns the parts of a text between `{{` and `}}`. One that is not closed ends with the text.
pub(crate) fn braces(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    // For `"` and `'`: true if the rest of the text closes none. It is not searched again for each of them.
    let mut unclosed = [false; 2];
    while let Some(open) = text[at..].find("{{").map(|open| at + open + 2) {
        let (mut end, mut depth) = (open, 0usize);
        let close = loop {
            match bytes.get(end) {
                None => break bytes.len(),
                Some(quote @ (b'"' | b'\'')) if !unclosed[usize::from(*quote == b'"')] => {
                    let mut close = end + 1;
                    while close < bytes.len() && bytes[close] != *quote {
                        close += if bytes[close] == b'\\' { 2 } else { 1 };
                    }
                    // An unclosed quote is part of the word at the cursor.
                    if close < bytes.len() {
                        end = close;
                    } else {
                        unclosed[usize::from(*quote == b'"')] = true;
                    }
                }
                Some(b'{') => depth += 1,
                Some(b'}') if depth > 0 => depth -= 1,
                Some(b'}') if bytes.get(end + 1) == Some(&b'}') => break end,
                _ => {}
            }
            end += 1;
        };
        found.push(open..close);
        at = (close + 2).min(text.len());
        at = text.ceil_char_boundary(at);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let expression = Expression::new(text, 0..text.len());
        expression.paths().iter().map(|path| path.shown(path.steps.len())).collect()
    }

    /// Each quote would be searched to the end of the text: 400 billion steps.
    #[test]
    fn unclosed_quotes_are_searched_once() {
        let text = format!("{{{{ {}", "\\'\\\"".repeat(200_000));
        assert_eq!(braces(&text).iter().map(|part| part.end).collect::<Vec<_>>(), [text.len()]);
        assert_eq!(braces("{{ 'a }} {{ b }}"), [2..6, 11..14]);
        assert_eq!(braces("{{ 'a}}' }} {{ b"), [2..9, 14..16]);
    }

    #[test]
    fn paths_are_found_and_other_names_are_not() {
        let cases: &[(&str, &[&str])] = &[
            ("a.b[0]['c-d'] | default(e.f, true)", &["a.b[0][\"c-d\"]", "e.f"]),
            ("x is defined and y is not none or not z", &["x", "y", "z"]),
            ("list | map(attribute='q') | join(sep)", &["list", "sep"]),
            ("range(n) | sort(reverse=flag)", &["n", "flag"]),
            ("'a.b' ~ c // d ** 2.5", &["c", "d"]),
            ("{'k': v}[w].u", &["v", "w"]),
            ("a. | b", &["a"]),
            ("é a", &["a"]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(paths(text), *expected, "{text}");
        }
    }

    #[test]
    fn braces_are_found_also_if_they_are_open() {
        let parts = |text: &'static str| braces(text).into_iter().map(|part| &text[part]).collect::<Vec<_>>();
        assert_eq!(parts("x {{ a }} {{ '}}' }}"), [" a ", " '}}' "]);
        assert_eq!(parts("{{ {'a': {}}.b }} {{ c"), [" {'a': {}}.b ", " c"]);
        assert_eq!(parts("{{ it's }} {{"), [" it's ", ""]);
        assert_eq!(parts("{{{é"), ["{é"]);
    }

    #[test]
    fn any_text_is_split() {
        let mut numbers = crate::kit::Numbers(5);
        for _ in 0..20_000 {
            let text = numbers.text(
                &[
                    "{{", "}}", "{", "}", "a", "é", "😀", ".", "[", "]", "'", "\"", "\\", " ", "|", "is", "not ", "1",
                    "=", "(",
                ],
                30,
            );
            for part in braces(&text) {
                Expression::new(&text, part).paths();
            }
            Expression::new(&text, 0..text.len()).paths();
        }
    }
}
