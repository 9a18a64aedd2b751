//! Finds the places of syntax errors and of uses of a name.

use std::{mem, ops::ControlFlow};

use boa_engine::{
    Source,
    ast::{
        Expression, Position, Spanned,
        declaration::LexicalDeclaration,
        expression::{
            Identifier,
            operator::{Unary, unary::UnaryOp},
        },
        function::{FormalParameterList, FunctionBody},
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

/// A line and a column.
pub(crate) type Place = (u32, u32);

/// Returns the place of the first use of an undeclared name at or after `from`. Leaves out the operands of `typeof`, which
/// may be missing, and functions that declare the name.
pub(crate) fn first_use(text: &str, name: &str, from: Place) -> Option<Place> {
    let (uses, interner) = Uses::find(text)?;
    let name = interner.get(name)?;
    let is_meant = |found: &&Name| found.name == name && found.place >= from && !uses.is_declared_around(found);
    uses.read.iter().find(is_meant).map(|found| found.place)
}

/// Returns the first variable at or after `from` that is used before the line of the same function that declares it, and
/// the place of the use.
pub(crate) fn first_early_use(text: &str, from: Place) -> Option<(String, Place)> {
    let (uses, interner) = Uses::find(text)?;
    let is_early = |read: &&Name| {
        let mut same =
            uses.declared.iter().filter(|other| (other.name, other.body) == (read.name, read.body)).peekable();
        read.place >= from && same.peek().is_some() && same.all(|declared| declared.place > read.place)
    };
    let found = uses.read.iter().filter(is_early).min_by_key(|read| read.place)?;
    Some((interner.resolve(found.name)?.to_string(), found.place))
}

/// A name at a place in a script.
struct Name {
    name: Sym,
    place: Place,
    /// The number of the innermost function around it; 0 outside of functions.
    body: usize,
}

/// The names of variables in a script, in the order of the text.
#[derive(Default)]
struct Uses {
    read: Vec<Name>,
    /// The variables of `const` and `let`, and parameters.
    declared: Vec<Name>,
    /// The functions around each function, by their numbers; the first is the script.
    outer: Vec<usize>,
    /// The number of the function that is visited.
    body: usize,
    is_declaring: bool,
}

impl Uses {
    fn find(text: &str) -> Option<(Uses, Interner)> {
        let (mut interner, mut uses) = (Interner::default(), Uses { outer: vec![0], ..Uses::default() });
        let module = Parser::new(Source::from_bytes(text)).parse_module(&Scope::new_global(), &mut interner).ok()?;
        let _ = module.visit_with(&mut uses);
        Some((uses, interner))
    }

    /// Returns true if a function around a name declares the name.
    fn is_declared_around(&self, found: &Name) -> bool {
        let mut body = found.body;
        while body != 0 {
            if self.declared.iter().any(|other| other.name == found.name && other.body == body) {
                return true;
            }
            body = self.outer[body];
        }
        false
    }
}

impl<'ast> Visitor<'ast> for Uses {
    type BreakTy = ();

    fn visit_identifier(&mut self, identifier: &'ast Identifier) -> ControlFlow<()> {
        let start = identifier.span().start();
        let place = (start.line_number(), start.column_number());
        let name = Name { name: identifier.sym(), place, body: self.body };
        if self.is_declaring { &mut self.declared } else { &mut self.read }.push(name);
        ControlFlow::Continue(())
    }

    fn visit_function_body(&mut self, body: &'ast FunctionBody) -> ControlFlow<()> {
        let outer = mem::replace(&mut self.body, self.outer.len());
        self.outer.push(outer);
        let visited = body.visit_with(self);
        self.body = outer;
        visited
    }

    /// The parameters precede the body, which gets the next number.
    fn visit_formal_parameter_list(&mut self, parameters: &'ast FormalParameterList) -> ControlFlow<()> {
        let outer = mem::replace(&mut self.body, self.outer.len());
        self.is_declaring = true;
        let visited = parameters.visit_with(self);
        (self.body, self.is_declaring) = (outer, false);
        visited
    }

    fn visit_lexical_declaration(&mut self, declaration: &'ast LexicalDeclaration) -> ControlFlow<()> {
        for variable in declaration.variable_list().as_ref() {
            self.is_declaring = true;
            let visited = variable.binding().visit_with(self);
            self.is_declaring = false;
            visited?;
            variable.init().map_or(ControlFlow::Continue(()), |init| self.visit_expression(init))?;
        }
        ControlFlow::Continue(())
    }

    fn visit_unary(&mut self, unary: &'ast Unary) -> ControlFlow<()> {
        let is_tested = unary.op() == UnaryOp::TypeOf && matches!(unary.target(), Expression::Identifier(_));
        if is_tested { ControlFlow::Continue(()) } else { unary.visit_with(self) }
    }
}
