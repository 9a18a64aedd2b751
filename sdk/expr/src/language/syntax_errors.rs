//! Suggests corrections for operators and words of other languages.

use std::ops::Range;

use minijinja::{
    Error,
    machinery::{
        Token,
        ast::{CallArg, Expr},
        parse_expr,
    },
};

use super::{names, tree::static_path};
use crate::{error::ExprError, functions, path::shorten, quoted::end_of_quoted};

/// Maximum number of prefixes that are parsed to find the longest valid one.
const MAX_PARSED_PREFIXES: usize = 100;

/// A token and its bytes in the source.
pub(super) type Lexeme<'s> = (Token<'s>, Range<usize>);

/// Operators that are not tokens, with suggestions. Longer operators precede their prefixes.
const SIGNS: [(&str, &str); 13] = [
    ("&&", "write `and` instead of `&&`"),
    ("&", "write `and` instead of `&`, or `~` to join texts"),
    ("!", "write `not` instead of `!`"),
    ("??", "write `a | default(b)` instead of `a ?? b`"),
    ("?.", "write `.` instead of `?.`: a missing part gives null"),
    ("?", "write `a if condition else b` instead of `condition ? a : b`"),
    ("$", "paths start with a plain name: `flow.input.name` for the flow's input, `node.field` for a node's output"),
    ("^", "write `a ** b` for a power"),
    (";", "an expression is a single value: remove `;`"),
    ("#", "write comments outside the expression"),
    ("\\", "`\\` is allowed only in quoted texts"),
    ("@", "paths start with a plain name: `flow.input.name` for the flow's input, `node.field` for a node's output"),
    ("`", "write a text as 'text', and join texts with `~`"),
];

/// Operators that the lexer reads as two tokens, with suggestions.
const PAIRS: [(&str, &str); 11] = [
    ("->", "write `.` before a member: `node.field`"),
    ("++", "expressions cannot change values: write `a + 1`"),
    ("--", "expressions cannot change values: write `a - 1`"),
    ("+=", "expressions cannot change values: write `a + b`"),
    ("-=", "expressions cannot change values: write `a - b`"),
    ("||", "write `or` instead of `||`"),
    ("===", "write `==` instead of `===`"),
    ("!==", "write `!=` instead of `!==`"),
    ("<>", "write `!=` instead of `<>`"),
    ("=>", "expressions define no functions: use filters such as `map`, `select` and `selectattr` for lists"),
    ("=~", "write `x is matches('pattern')` instead of `=~`"),
];

/// Operators that other languages write in capitals.
const WORDS: [&str; 6] = ["and", "or", "not", "in", "is", "if"];

/// Words that other languages use as operators, with suggestions.
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

/// Creates the error about the text after the last token, which the lexer cannot read.
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
        return number_too_large(&rest[..length.unwrap_or(rest.len())], start);
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

/// Returns the start of the text after the last token.
fn end(source: &str, tokens: &[Lexeme<'_>]) -> usize {
    let end = tokens.last().map_or(0, |(_, place)| place.end);
    let rest = source.get(end..).unwrap_or_default();
    // The lexer skips only ASCII white space.
    source.len() - rest.trim_start_matches(|sign: char| sign.is_ascii_whitespace()).len()
}

/// Creates the error about a number that is too large.
pub(super) fn number_too_large(number: &str, start: usize) -> ExprError {
    invalid(format!("`{number}` is not a number that can be kept")).at(start..start + number.len())
}

/// Creates the error about tokens that the parser rejects.
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
    // minijinja reports this error without a position (3.0.5, `src/compiler/parser.rs`); the table of bindings tests
    // the message.
    let is_behind = detail == "unexpected input after expression";
    let after = is_behind.then(|| after_expression(source, tokens)).flatten();
    after.unwrap_or_else(|| {
        let last = tokens.last().and_then(|(_, place)| source.get(place.clone()));
        let hint = last.filter(|_| detail.starts_with("unexpected end of input"));
        let error = invalid(detail.clone()).at(0..source.len());
        match hint {
            Some(last) => error.hint(format!("write what is missing after `{}`", shorten(last))),
            None => error,
        }
    })
}

/// Creates the error about the token that follows a complete expression; `None` if the source starts with none.
fn after_expression(source: &str, tokens: &[Lexeme<'_>]) -> Option<ExprError> {
    // Each prefix is parsed again, so the search is limited to short sources.
    let mut ends = tokens.iter().enumerate().take(MAX_PARSED_PREFIXES).skip(1).rev();
    let (at, (token, place)) =
        ends.find(|(_, (_, place))| source.get(..place.start).is_some_and(|prefix| parse_expr(prefix).is_ok()))?;
    let first = source.get(tokens.first()?.1.clone())?;
    let hint = match (token, &tokens[at - 1].0) {
        (Token::Colon, _) if at >= 2 && matches!(tokens[at - 2].0, Token::Pipe) => {
            "a filter takes its arguments in parentheses, as in `x | default('…')`"
        }
        (Token::Comma, _) => "an expression is a single value: write a list as `[a, b]`",
        (_, Token::Ident("if")) if at == 1 => {
            "write `a if condition else b` to choose between two values; write a condition without `if`"
        }
        (Token::ParenOpen, _) => "write a filter after its value, as in `value | upper`",
        _ if first == "new" || first == "typeof" => {
            "expressions have no `new` and no `typeof`: use tests such as \
             `x is string` for the type of a value"
        }
        _ => "two values need an operator between them: `~` joins texts; write a text in quotes",
    };
    let found = source.get(place.clone())?;
    Some(unexpected(found, place.start).hint(hint))
}

/// Finds a word of another language next to a value without an operator between them.
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

/// Finds a `=` that does not name an argument of a filter or test.
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

/// Returns true for the name of an object of other languages that holds functions, such as `Math`.
fn is_foreign_object(value: &Expr<'_>) -> bool {
    let is_known = |name: &str| ["Math", "math", "JSON", "json", "Object", "Array", "String", "Number"].contains(&name);
    matches!(value, Expr::Var(name) if is_known(name.id))
}

/// Creates the error about a call of something that is not a function; `len(x)` and `x.toUpperCase()` must be filters.
pub(super) fn not_callable(callee: &Expr<'_>, arguments: &[CallArg<'_>]) -> ExprError {
    let (name, operand) = match (callee, arguments) {
        (Expr::Var(name), [CallArg::Pos(operand)]) => (name.id, Some(operand)),
        (Expr::Var(name), _) => (name.id, None),
        // `Math.round(x)` and `JSON.stringify(x)` take their operand as an argument.
        (Expr::GetAttr(attribute), [CallArg::Pos(operand), ..]) if is_foreign_object(&attribute.expr) => {
            (attribute.name, Some(operand))
        }
        (Expr::GetAttr(attribute), _) => (attribute.name, Some(&attribute.expr)),
        _ => ("", None),
    };
    let error = match callee {
        Expr::Var(name) => ExprError::new(format!("unknown function `{}`", name.id)),
        _ => ExprError::new("values have no methods"),
    };
    if matches!(callee, Expr::Var(_)) && names::RANDOM_CALLS.iter().any(|(function, ..)| *function == name) {
        let help = match name {
            "random" => "write `random()`, or `random(6)` for a whole number from 0 to 5",
            "shuffle" => "write `shuffle(list)`",
            _ => "write `uuid()`",
        };
        return ExprError::new(format!("`{name}` does not take these arguments")).hint(help);
    }
    if let (Expr::Var(_), Some((call, _))) = (callee, names::CALLS.iter().find(|(call, _)| *call == name)) {
        let found = functions::find(call).map_or("", |function| function.signature);
        return ExprError::new(format!("`{name}` lacks an argument")).hint(format!("write `{found}`"));
    }
    let Some(found) = functions::find(name) else {
        return error.hint(functions::without_call(name).unwrap_or(
            "use a filter: `value | name`; `flowcell functions` lists them, and `script.run` does other computations",
        ));
    };
    let path = operand.and_then(|operand| static_path(operand)).map(|(path, _)| shorten(&path.to_string()));
    error.hint(found.usage(&path.unwrap_or_else(|| "value".to_owned())))
}
