//! Compiled expressions.

use std::{ops::Range, slice, sync::Arc};

use minijinja::{Error, ErrorKind, Value, machinery::parse_expr};

use super::{
    bridge::{Scope, from_value, to_value},
    environment::ENVIRONMENT,
    printer::{Printer, Read},
    scan::check_size,
};
use crate::{error::ExprError, json::Json, path::Path, roots::Roots};

/// One compiled expression and its place in the text that holds it.
#[derive(Clone, Debug)]
pub(crate) struct Expression(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// A plain path needs no interpreter: this is how most values travel.
    Path(Read),
    Program(Arc<Program>),
}

/// An expression that MiniJinja evaluates.
#[derive(Debug)]
struct Program {
    place: Range<usize>,
    reads: Vec<Read>,
    roots: Vec<Arc<str>>,
    expression: minijinja::Expression<'static, 'static>,
}

impl Expression {
    /// Compiles an expression that starts at byte `at` of its text.
    pub(crate) fn compile(source: &str, at: usize) -> Result<Expression, Vec<ExprError>> {
        let place = at..at + source.len();
        let fail = |message: String| vec![ExprError::new(message).at(place.clone())];
        check_size(source).map_err(fail)?;
        let tree = parse_expr(source).map_err(|error| vec![syntax_error(source, &error).at(place.clone())])?;
        let mut printer = Printer::new(source, at);
        printer.expression(&tree);
        let Printer { printed, reads, errors, .. } = printer;
        if !errors.is_empty() {
            return Err(errors.into_iter().map(|error| error.at(place.clone())).collect());
        }
        if let [read] = reads.as_slice()
            && read.path.to_string() == printed
        {
            return Ok(Expression(Kind::Path(read.clone())));
        }
        let compiled = ENVIRONMENT.compile_expression_owned(printed);
        let expression = compiled.map_err(|error| vec![syntax_error(source, &error).at(place.clone())])?;
        let mut roots: Vec<Arc<str>> = Vec::new();
        for read in &reads {
            if !roots.iter().any(|root| **root == *read.path.root()) {
                roots.push(read.path.root().into());
            }
        }
        Ok(Expression(Kind::Program(Arc::new(Program { place, reads, roots, expression }))))
    }

    /// Evaluates; a missing value is `null`.
    pub(crate) fn evaluate(&self, roots: &dyn Roots) -> Result<Json, ExprError> {
        match &self.0 {
            Kind::Path(read) => Ok(read.path.resolve(roots).unwrap_or_default()),
            Kind::Program(program) => {
                let value = program.run(roots)?;
                from_value(&value).map_err(|message| ExprError::new(message).at(program.place.clone()))
            }
        }
    }

    /// Evaluates and tells whether the result counts as true.
    pub(crate) fn holds(&self, roots: &dyn Roots) -> Result<bool, ExprError> {
        match &self.0 {
            Kind::Path(read) => Ok(read.path.resolve(roots).is_some_and(|value| is_true(&value))),
            Kind::Program(program) => program.run(roots).map(|value| value.is_true()),
        }
    }

    /// The paths that it reads, in the order in which they stand there.
    pub(crate) fn reads(&self) -> &[Read] {
        match &self.0 {
            Kind::Path(read) => slice::from_ref(read),
            Kind::Program(program) => &program.reads,
        }
    }

    /// The path that the whole expression is, if it is nothing else.
    pub(crate) fn as_path(&self) -> Option<&Path> {
        match &self.0 {
            Kind::Path(read) => Some(&read.path),
            Kind::Program(_) => None,
        }
    }
}

impl Program {
    fn run(&self, roots: &dyn Roots) -> Result<Value, ExprError> {
        let named = self.roots.iter().filter_map(|name| Some((name.clone(), to_value(&roots.root(name)?))));
        let scope = Value::from_object(Scope(named.collect()));
        self.expression.eval(scope).map_err(|error| ExprError::new(sentence(&error)).at(self.place.clone()))
    }
}

/// What counts as true: everything but `false`, `null`, zero and what is empty.
fn is_true(value: &Json) -> bool {
    match value {
        Json::Null => false,
        Json::Bool(value) => *value,
        Json::Number(number) => number.as_f64() != Some(0.0),
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(members) => !members.is_empty(),
    }
}

fn sentence(error: &Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "the expression does too much work".to_owned(),
        (_, Some(detail)) => detail.to_owned(),
        (kind, None) => kind.to_string(),
    }
}

/// A syntax error, with the operator to write instead of one from another language.
fn syntax_error(source: &str, error: &Error) -> ExprError {
    let problem = ExprError::new(format!("the expression is not valid: {}", sentence(error)));
    let foreign = [("&&", "and"), ("||", "or"), ("===", "=="), ("?", "a if condition else b"), ("!", "not")];
    match foreign.into_iter().find(|(sign, _)| source.contains(sign)) {
        Some((sign, instead)) => problem.hint(format!("write `{instead}` instead of `{sign}`")),
        None => problem,
    }
}
