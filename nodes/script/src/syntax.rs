//! Finds the places of syntax errors and of uses of a name.

use std::ops::ControlFlow;

use boa_engine::{
    Source,
    ast::{
        Position, Spanned,
        expression::Identifier,
        scope::Scope,
        visitor::{VisitWith, Visitor},
    },
    interner::{Interner, Sym},
    parser::{Error, Parser, lexer},
};
use flowcell_sdk::Failure;
use serde_json::json;

use crate::input::Input;

/// Returns the failure of a script that the engine cannot parse, with the message and the place that a second parser
/// finds. If the second parser finds no error, the failure has the engine's `message`, and the end of the script as its
/// place.
pub(crate) fn explain(input: &Input, message: &str) -> Failure {
    let mut parser = Parser::new(Source::from_bytes(&input.text));
    let (message, place) = match parser.parse_module(&Scope::new_global(), &mut Interner::default()) {
        Ok(_) => (message.to_owned(), None),
        Err(error) => describe(&error),
    };
    let (line, column) = place.map_or_else(|| end(&input.text), |at| (at.line_number(), at.column_number()));
    let message = format!("{message} ({}:{line}:{column})", input.name);
    Failure::new("syntax_error", message).details(json!({ "line": line, "column": column }))
}

/// Returns the message and the place of a syntax error; the place `None` stands for the end of the text.
fn describe(error: &Error) -> (String, Option<Position>) {
    match error {
        Error::Expected { expected, found, context, span } => {
            let expected = expected.iter().map(|token| format!("`{token}`")).collect::<Vec<_>>().join(" or ");
            (format!("expected {expected} in {context}, not `{found}`"), Some(span.start()))
        }
        Error::Unexpected { message, found, span } => (format!("unexpected `{found}`: {message}"), Some(span.start())),
        Error::Lex { err: lexer::Error::Syntax(message, place) } => (message.to_string(), Some(*place)),
        Error::General { message, position } => (message.to_string(), Some(*position)),
        Error::AbruptEnd => ("the script ends too early".into(), None),
        other => (other.to_string(), None),
    }
}

/// Returns the place after the last character.
fn end(text: &str) -> (u32, u32) {
    let lines = text.lines().count().max(1);
    let column = text.lines().last().map_or(0, |line| line.chars().count()) + 1;
    (u32::try_from(lines).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}

/// Returns the line and column of the first use of a name at or after `from`, which is also a line and a column.
pub(crate) fn first_use(text: &str, name: &str, from: (u32, u32)) -> Option<(u32, u32)> {
    let mut interner = Interner::default();
    let module = Parser::new(Source::from_bytes(text)).parse_module(&Scope::new_global(), &mut interner).ok()?;
    let mut search = Search { name: interner.get(name)?, from };
    match module.visit_with(&mut search) {
        ControlFlow::Break(place) => Some(place),
        ControlFlow::Continue(()) => None,
    }
}

struct Search {
    name: Sym,
    from: (u32, u32),
}

impl<'ast> Visitor<'ast> for Search {
    type BreakTy = (u32, u32);

    fn visit_identifier(&mut self, identifier: &'ast Identifier) -> ControlFlow<(u32, u32)> {
        let start = identifier.span().start();
        let place = (start.line_number(), start.column_number());
        match *identifier == self.name && place >= self.from {
            true => ControlFlow::Break(place),
            false => ControlFlow::Continue(()),
        }
    }
}
