//! Parses and compiles queries.

use flowcell_sdk::{Failure, Result};
use jaq_core::{
    Compiler, Filter,
    compile::Undefined,
    load::{
        self, Arena, Error, File, Lexer, Loader, Parser,
        lex::{StrPart, Tok, Token},
        parse::{Def, Term},
    },
};
use serde_json::json;

use crate::{
    absent,
    functions::{self, Data, TO_TEXT},
    value::truncated,
};

/// Maximum size of a query in bytes.
pub(crate) const MAX_QUERY_BYTES: usize = 64 << 10;
/// Maximum number of brackets, and of texts with `\(…)`, that are open at the same place of a query. Each takes stack of
/// the parser.
pub(crate) const MAX_QUERY_NESTING: usize = 100;
/// The name of the function that has a query with `\(…)` as its body.
const BODY: &str = "query_with_texts";

/// Compiles a query. `vars` are the names of its variables, with `$`.
pub(crate) fn compile(query: &str, vars: &[String]) -> Result<Filter<Data>> {
    if query.len() > MAX_QUERY_BYTES {
        let message = format!("the query has {} bytes; the limit is {MAX_QUERY_BYTES}", query.len());
        return Err(Failure::new("invalid_query", message));
    }
    if let Some(place) = too_nested(query) {
        let message = format!("brackets are nested more than {MAX_QUERY_NESTING} deep");
        return Err(failure(query, &query[place..], &message));
    }
    let arena = Arena::default();
    let mut definitions: Vec<Def<&str>> = functions::definitions().collect::<Vec<_>>();
    let body = query_with_texts(query).map(|body| Def { name: BODY, args: Vec::new(), body });
    let code = if body.is_some() { BODY } else { query };
    definitions.extend(body);
    let modules = Loader::new(definitions).load(&arena, File { code, path: () });
    let modules = modules.map_err(|errors| first(errors, |error| unreadable(query, error)))?;
    load::import(&modules, |_| Err(String::new())).map_err(|errors| first(errors, |error| unreadable(query, error)))?;
    let compiler =
        Compiler::default().with_funs(functions::natives()).with_global_vars(vars.iter().map(String::as_str));
    compiler.compile(modules).map_err(|errors| first(errors, |undefined| unknown(query, undefined)))
}

/// Parses a query in which [`TO_TEXT`] writes the values of texts with `\(…)`, and not the interpreter. Returns `None` for
/// queries without such texts, and for those with mistakes.
fn query_with_texts(query: &str) -> Option<Term<&str>> {
    if !query.contains("\\(") {
        return None;
    }
    let tokens = with_formats(Lexer::new(query).lex().ok()?);
    Parser::new(&tokens).parse(Parser::term).ok()
}

/// Puts the name of a format before each text with `\(…)` that has none.
fn with_formats(tokens: Vec<Token<&str>>) -> Vec<Token<&str>> {
    let mut done = Vec::with_capacity(tokens.len());
    for Token(text, kind) in tokens {
        let kind = match kind {
            Tok::Block(inner) => Tok::Block(with_formats(inner)),
            Tok::Str(parts) => {
                let has_terms = parts.iter().any(|part| matches!(part, StrPart::Term(_)));
                if has_terms && !matches!(done.last(), Some(Token(_, Tok::Fmt))) {
                    done.push(Token(TO_TEXT, Tok::Fmt));
                }
                let parts = parts.into_iter().map(|part| match part {
                    StrPart::Term(Token(text, Tok::Block(inner))) => {
                        StrPart::Term(Token(text, Tok::Block(with_formats(inner))))
                    }
                    other => other,
                });
                Tok::Str(parts.collect())
            }
            other => other,
        };
        done.push(Token(text, kind));
    }
    done
}

/// Returns the failure for the first error of the query. Errors of the library, which has none, have no place in it.
fn first<E>(errors: Vec<(File<&str, ()>, E)>, explain: impl Fn(E) -> Option<Failure>) -> Failure {
    let explained = errors.into_iter().next().and_then(|(_, error)| explain(error));
    explained.unwrap_or_else(|| Failure::new("invalid_query", "the query cannot be compiled"))
}

fn unreadable(query: &str, error: Error<&str>) -> Option<Failure> {
    Some(match error {
        Error::Io(modules) => {
            let (module, _) = modules.first()?;
            failure(query, module, &format!("there is no module `{}`: {}", short(module), absent::MODULES))
        }
        Error::Lex(errors) => {
            let (expected, found) = errors.first()?;
            failure(query, found, &format!("expected a {}, found {}", expected.as_str(), found_text(found)))
        }
        Error::Parse(errors) => {
            let (expected, found) = errors.first()?;
            failure(query, found, &format!("expected {}, found {}", quoted(expected.as_str()), found_text(found)))
        }
    })
}

fn unknown(query: &str, undefined: Vec<(&str, Undefined)>) -> Option<Failure> {
    let (name, kind) = undefined.into_iter().next()?;
    let what = match kind {
        Undefined::Filter(arity) => format!("there is no function `{}/{arity}`", short(name)),
        Undefined::Mod => format!("there is no module `{}`", short(name)),
        Undefined::Label => format!("there is no label `{}`", short(name)),
        _ => format!("there is no variable `{}`", short(name)),
    };
    let reason = absent::reason(name).map_or_else(String::new, |reason| format!(": {reason}"));
    Some(failure(query, name, &format!("{what}{reason}")))
}

/// Returns the failure for an error at `part`, which is a part of the query.
fn failure(query: &str, part: &str, message: &str) -> Failure {
    let before = &query[..load::span(query, part).start];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let message = format!("line {line}, column {column} of the query: {message}");
    Failure::new("invalid_query", message).details(json!({ "line": line, "column": column }))
}

/// Puts symbols in quotes, and leaves descriptions such as `closing parenthesis` as they are.
fn quoted(expected: &str) -> String {
    match expected {
        "" | "nothing" => "the end of the query".to_owned(),
        "term" | "variable" | "pattern" | "key" | "identifier" | "argument" | "string" => format!("a {expected}"),
        expected if expected.contains(' ') => expected.to_owned(),
        expected => format!("`{expected}`"),
    }
}

fn found_text(found: &str) -> String {
    if found.is_empty() { "the end of the query".to_owned() } else { format!("`{}`", short(found)) }
}

/// Returns the beginning of a part of the query, for messages.
fn short(part: &str) -> String {
    truncated(part.lines().next().unwrap_or_default(), 30)
}

/// Returns the place of the first bracket or text that is nested too deep.
fn too_nested(query: &str) -> Option<usize> {
    let (mut open, mut bytes) = (Vec::new(), query.bytes().enumerate());
    while let Some((place, byte)) = bytes.next() {
        let is_in_text = open.last() == Some(&b'"');
        match byte {
            b'\\' if is_in_text => open.extend(bytes.next().map(|(_, next)| next).filter(|next| *next == b'(')),
            b'"' if is_in_text => drop(open.pop()),
            _ if is_in_text => {}
            b'"' | b'(' | b'[' | b'{' => open.push(byte),
            b')' | b']' | b'}' => drop(open.pop()),
            b'#' => drop(bytes.find(|(_, byte)| *byte == b'\n')),
            _ => {}
        }
        if open.len() > MAX_QUERY_NESTING {
            return Some(place);
        }
    }
    None
}
