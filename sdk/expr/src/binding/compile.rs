//! Compiles JSON to bindings.

use std::sync::Arc;

use super::{
    Binding,
    node::{Node, Part},
};
use crate::{
    error::{ExprError, with_token},
    json::Json,
    language::{Expression, Piece, pieces, whole},
    limits,
    path_use::Reads,
    place::Place,
    roots::{NoRoots, Strict},
};

/// Compiles a value and reports all errors at once.
pub(super) fn compile(value: &Json) -> Result<Binding, Vec<ExprError>> {
    let mut compiler = Compiler::default();
    let binding = compiler.value(value, &mut String::new(), 0);
    if compiler.errors.is_empty() { Ok(binding) } else { Err(compiler.errors) }
}

/// Returns the paths in a value, including those of parts that do not compile.
pub(super) fn reads(value: &Json) -> Reads {
    let mut compiler = Compiler::default();
    let binding = compiler.value(value, &mut String::new(), 0);
    let mut reads = compiler.invalid_reads;
    binding.collect(&mut String::new(), &mut reads);
    reads
}

/// Compiles a text as one expression, with or without `{{ }}` around it.
pub(super) fn expression(source: &str) -> Result<Binding, Vec<ExprError>> {
    let (inside, at) = match whole(source).map_err(|error| vec![error])? {
        Some(inside) => inside,
        None => (source.trim(), source.len() - source.trim_start().len()),
    };
    let compiled = Expression::compile(inside, at).map_err(|invalid| invalid.errors);
    compiled.map(|expression| Binding(fold_constant(expression)))
}

#[derive(Default)]
struct Compiler {
    errors: Vec<ExprError>,
    /// The paths in the expressions that do not compile.
    invalid_reads: Reads,
}

impl Compiler {
    fn value(&mut self, value: &Json, pointer: &mut String, depth: usize) -> Binding {
        if depth > limits::DEPTH {
            let error = ExprError::new(format!("the value is nested deeper than {}", limits::DEPTH));
            self.errors.push(error.under(pointer));
            return Binding(Node::Literal(Json::Null));
        }
        match value {
            Json::String(text) => self.text(text, pointer),
            Json::Array(items) => {
                let mut compiled = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    let compile = |pointer: &mut String| self.value(item, pointer, depth + 1);
                    compiled.push(with_token(pointer, &index.to_string(), compile));
                }
                Binding::array(compiled)
            }
            Json::Object(members) => {
                let mut compiled = Vec::with_capacity(members.len());
                for (key, member) in members.iter() {
                    let compile = |pointer: &mut String| self.value(member, pointer, depth + 1);
                    compiled.push((key.clone(), with_token(pointer, key, compile)));
                }
                Binding::object(compiled)
            }
            other => Binding(Node::Literal(other.clone())),
        }
    }

    fn text(&mut self, text: &Arc<str>, pointer: &str) -> Binding {
        let (pieces, errors) = pieces(text);
        self.errors.extend(errors.into_iter().map(|error| error.under(pointer)));
        if let [] | [Piece::Text(_)] = pieces.as_slice() {
            return Binding(Node::Literal(Json::String(text.clone())));
        }
        let single = matches!(pieces.as_slice(), [Piece::Expression(..)]);
        let parts: Vec<Part> = pieces.into_iter().filter_map(|piece| self.part(piece, pointer)).collect();
        match parts.as_slice() {
            [Part::Expression(expression)] if single => Binding(fold_constant(expression.clone())),
            _ => Binding(Node::Text(parts.into())),
        }
    }

    fn part(&mut self, piece: Piece<'_>, pointer: &str) -> Option<Part> {
        match piece {
            Piece::Text(text) => Some(Part::Text(text.into())),
            Piece::Expression(source, at) => match Expression::compile(source, at) {
                Ok(expression) => Some(Part::Expression(expression)),
                Err(invalid) => {
                    invalid.collect(pointer, &mut self.invalid_reads);
                    self.errors.extend(invalid.errors.into_iter().map(|error| error.under(pointer)));
                    None
                }
            },
        }
    }
}

/// Replaces an expression that reads no value with its result. An expression that fails is kept, so that it fails when
/// rendered. So is one with a large result: a flow has thousands of expressions.
fn fold_constant(expression: Expression) -> Node {
    if !expression.reads().is_empty() {
        return Node::Whole(expression);
    }
    match expression.evaluate(&Strict(NoRoots), Place::at("")) {
        Ok(value) if value.measure(limits::FOLDED_BYTES as u64).is_ok() => Binding::literal(value).0,
        _ => Node::Whole(expression),
    }
}
