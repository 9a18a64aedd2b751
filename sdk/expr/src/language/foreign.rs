//! Signs of other languages: names the sign that was found and what to write here.

use std::ops::Range;

use minijinja::{
    Error,
    machinery::{Token, parse_expr},
};

use crate::{error::ExprError, quoted::end_of_quoted};

/// Tokens of a source behind which a whole expression may end that is followed by something else.
const MOST_PREFIXES: usize = 100;

/// One token and its bytes in the source.
pub(super) type Lexeme<'s> = (Token<'s>, Range<usize>);

/// Signs that are no tokens, and what to write instead. Where one sign begins another, the longer one stands first.
const SIGNS: [(&str, &str); 13] = [
    ("&&", "write `and` instead of `&&`"),
    ("&", "write `and` instead of `&`, or `~` to join texts"),
    ("!", "write `not` instead of `!`"),
    ("??", "write `a | default(b)` instead of `a ?? b`"),
    ("?.", "write `.` instead of `?.`: a part that is missing on the way gives null"),
    ("?", "write `a if condition else b` instead of `condition ? a : b`"),
    ("$", "paths begin with a plain name: `flow.input.name` for the flow's input, `node.field` for a node's output"),
    ("^", "write `a ** b` for a power"),
    (";", "an expression is one value: leave `;` out"),
    ("#", "write comments outside of the expression"),
    ("\\", "`\\` stands in quoted texts only"),
    ("@", "paths begin with a plain name: `flow.input.name` for the flow's input, `node.field` for a node's output"),
    ("`", "write a text as 'text', and join texts with `~`"),
];

/// Signs that are read as two tokens, and what to write instead.
const PAIRS: [(&str, &str); 10] = [
    ("++", "an expression changes no value: write `a + 1`"),
    ("--", "an expression changes no value: write `a - 1`"),
    ("+=", "an expression changes no value: write `a + b`"),
    ("-=", "an expression changes no value: write `a - b`"),
    ("||", "write `or` instead of `||`"),
    ("===", "write `==` instead of `===`"),
    ("!==", "write `!=` instead of `!==`"),
    ("<>", "write `!=` instead of `<>`"),
    ("=>", "there are no functions: filters such as `map`, `select` and `selectattr` work on lists"),
    ("=~", "write `x is matches('pattern')` instead of `=~`"),
];

/// Words that other languages write in capitals.
const WORDS: [&str; 6] = ["and", "or", "not", "in", "is", "if"];

/// Words that other languages write between or around values, and what to write instead.
const PHRASES: [(&[&str], &str); 15] = [
    (&["contains", "includes", "has"], "write `'part' in value`"),
    (&["matches", "match", "like", "regex"], "write `value is matches('pattern')`"),
    (&["startswith", "startingwith"], "write `value is startingwith('start')`"),
    (&["endswith", "endingwith"], "write `value is endingwith('end')`"),
    (&["exists", "exist", "defined"], "write `value is defined`"),
    (&["isnull", "null", "undefined"], "write `value is none`"),
    (&["equals", "eq"], "write `a == b`"),
    (&["ne", "neq"], "write `a != b`"),
    (&["gt"], "write `a > b`"),
    (&["gte", "ge"], "write `a >= b`"),
    (&["lt"], "write `a < b`"),
    (&["lte", "le"], "write `a <= b`"),
    (&["mod"], "write `a % b`"),
    (&["div"], "write `a // b`"),
    (&["then"], "write `a if condition else b`"),
];

/// The error about text behind the last token that is no token itself.
pub(super) fn unreadable(source: &str, tokens: &[Lexeme<'_>]) -> ExprError {
    let start = end(source, tokens);
    let rest = source.get(start..).unwrap_or_default();
    if let Some(quote @ (b'"' | b'\'')) = rest.bytes().next() {
        let end = end_of_quoted(rest.as_bytes(), 1, quote);
        let problem = if end.is_some() { "has an escape that is not valid" } else { "is not closed" };
        let length = end.map_or(rest.len(), |end| end + 1);
        return invalid(format!("the quoted text {problem}")).at(start..start + length);
    }
    if rest.starts_with(|sign: char| sign.is_ascii_digit()) {
        let length = rest.find(|sign: char| !sign.is_ascii_alphanumeric() && !"._".contains(sign));
        return not_kept(&rest[..length.unwrap_or(rest.len())], start);
    }
    if rest.starts_with('?') && tokens.is_empty() {
        let hint = "write `x | default('…')` for a value that may be missing";
        return unexpected(&rest[..1], start).hint(hint);
    }
    if let Some((sign, hint)) = SIGNS.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
        return unexpected(sign, start).hint(hint);
    }
    let Some(sign) = rest.chars().next() else { return invalid("it ends too early".to_owned()).at(0..source.len()) };
    let error = invalid(format!("unexpected `{}`", sign.escape_debug())).at(start..start + sign.len_utf8());
    match sign {
        '“' | '”' | '„' | '‘' | '’' | '‚' | '«' | '»' => error.hint("quote texts with ' or \""),
        sign if sign.is_whitespace() => error.hint("write a plain space"),
        sign if sign.is_alphabetic() => {
            error.hint("names have the letters a to z, digits and `_`: write `nodes[\"the name\"]` for others")
        }
        _ => error,
    }
}

/// Where the text begins that is no token, behind the tokens before it.
fn end(source: &str, tokens: &[Lexeme<'_>]) -> usize {
    let end = tokens.last().map_or(0, |(_, place)| place.end);
    let rest = source.get(end..).unwrap_or_default();
    // The lexer skips no other space.
    source.len() - rest.trim_start_matches(|sign: char| sign.is_ascii_whitespace()).len()
}

/// The error about a number that is too large.
pub(super) fn not_kept(number: &str, start: usize) -> ExprError {
    invalid(format!("`{number}` is not a number that can be kept")).at(start..start + number.len())
}

/// The error about tokens that the parser refuses.
pub(super) fn not_parsed(source: &str, tokens: &[Lexeme<'_>], error: &Error) -> ExprError {
    let pairs = tokens.windows(2).filter_map(|pair| match pair {
        [(_, first), (_, second)] if first.end == second.start => Some(first.start..second.end),
        _ => None,
    });
    let mut signs = pairs.filter_map(|place| {
        let written = source.get(place.clone())?;
        PAIRS.into_iter().find(|(sign, _)| *sign == written).map(|(sign, hint)| (sign, hint, place))
    });
    if let Some((sign, hint, place)) = signs.next() {
        return unexpected(sign, place.start).hint(hint);
    }
    if let Some(place) = assignment(tokens) {
        return unexpected("=", place.start).hint("write `==` to compare");
    }
    for (token, place) in tokens {
        let Token::Ident(word) = token else { continue };
        let known = WORDS.into_iter().find(|known| word.eq_ignore_ascii_case(known) && word != known);
        if let Some(known) = known {
            return unexpected(word, place.start).hint(format!("write `{known}` instead of `{word}`"));
        }
    }
    if let Some((word, place, hint)) = phrase(tokens) {
        return unexpected(word, place.start).hint(hint);
    }
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    // minijinja says so without a place (3.0.5, `src/compiler/parser.rs`); the table of bindings holds what it says.
    let is_behind = detail == "unexpected input after expression";
    let behind = is_behind.then(|| behind(source, tokens)).flatten();
    behind.unwrap_or_else(|| invalid(detail).at(0..source.len()))
}

/// The error about the token behind a whole expression, if the source begins with one.
fn behind(source: &str, tokens: &[Lexeme<'_>]) -> Option<ExprError> {
    // Each prefix is parsed anew, so only those of short sources are tried.
    let mut ends = tokens.iter().enumerate().take(MOST_PREFIXES).skip(1).rev();
    let (at, (token, place)) =
        ends.find(|(_, (_, place))| source.get(..place.start).is_some_and(|prefix| parse_expr(prefix).is_ok()))?;
    let first = source.get(tokens.first()?.1.clone())?;
    let hint = match (token, &tokens[at - 1].0) {
        (Token::Colon, _) if at >= 2 && matches!(tokens[at - 2].0, Token::Pipe) => {
            "a filter takes its arguments in brackets, as in `x | default('…')`"
        }
        (Token::Comma, _) => "an expression is one value: write a list as `[a, b]`",
        (_, Token::Ident("if")) if at == 1 => {
            "write `a if condition else b` for one of two values; a condition stands without `if`"
        }
        (Token::ParenOpen, _) => "there are no functions: a filter stands behind its value, as in `value | upper`",
        _ if first == "new" || first == "typeof" => {
            "there are no objects to make and no types to ask for: tests such as \
             `x is string` tell what a value is"
        }
        _ => "two values need a sign between them: `~` joins texts, and a text stands in quotes",
    };
    let found = source.get(place.clone())?;
    Some(unexpected(found, place.start).hint(hint))
}

/// A word of another language that stands beside a value without a sign between them.
fn phrase<'s>(tokens: &[Lexeme<'s>]) -> Option<(&'s str, Range<usize>, &'static str)> {
    let is_word = |token: &Token<'_>| matches!(token, Token::Ident(word) if !WORDS.contains(word));
    let ends = |token: &Token<'_>| {
        is_word(token) || matches!(token, Token::Str(_) | Token::Int(_) | Token::ParenClose | Token::BracketClose)
    };
    let begins =
        |token: &Token<'_>| is_word(token) || matches!(token, Token::Str(_) | Token::Int(_) | Token::ParenOpen);
    let mut found = tokens.iter().enumerate().filter_map(|(at, (token, place))| {
        let Token::Ident(word) = token else { return None };
        let is_beside = at.checked_sub(1).is_some_and(|before| ends(&tokens[before].0))
            || tokens.get(at + 1).is_some_and(|(after, _)| begins(after));
        let plain = word.replace('_', "").to_ascii_lowercase();
        let (_, hint) = PHRASES.into_iter().find(|(words, _)| is_beside && words.contains(&plain.as_str()))?;
        Some((*word, place.clone(), hint))
    });
    found.next()
}

/// Where a `=` stands that does not name an argument of a filter or test.
fn assignment(tokens: &[Lexeme<'_>]) -> Option<Range<usize>> {
    let names_argument = |at: usize| {
        let [.., (opening, _), (Token::Ident(_), _)] = &tokens[..at] else { return false };
        matches!(opening, Token::ParenOpen | Token::Comma)
    };
    let mut signs = tokens.iter().enumerate().filter(|(_, (token, _))| matches!(token, Token::Assign));
    signs.find(|(at, _)| !names_argument(*at)).map(|(_, (_, place))| place.clone())
}

fn unexpected(sign: &str, start: usize) -> ExprError {
    invalid(format!("unexpected `{sign}`")).at(start..start + sign.len())
}

fn invalid(problem: String) -> ExprError {
    ExprError::new(format!("the expression is not valid: {problem}"))
}
