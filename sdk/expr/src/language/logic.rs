//! Finds operands of `and` and `or` that are constants.

use std::ops::Range;

use minijinja::{
    machinery::{
        ast::{BinOpKind, Expr, UnaryOpKind},
        parse_expr,
    },
    value::ValueKind,
};

use super::tokens;

/// Returns the bytes of an operand of the `and` and `or` of a condition that is a text or a number, as in
/// `a == 'x' or 'y'`.
pub(crate) fn constant_operand_of(source: &str) -> Option<Range<usize>> {
    tokens::read(source).ok()?;
    let place = find(&parse_expr(source).ok()?, false)?;
    source.get(place.clone()).map(|_| place)
}

/// Searches an expression that counts as true or false. `is_operand` is true for an operand of `and` or `or`.
fn find(expr: &Expr<'_>, is_operand: bool) -> Option<Range<usize>> {
    match expr {
        Expr::BinOp(binary) if matches!(binary.op, BinOpKind::ScAnd | BinOpKind::ScOr) => {
            find(&binary.left, true).or_else(|| find(&binary.right, true))
        }
        Expr::UnaryOp(unary) if matches!(unary.op, UnaryOpKind::Not) => find(&unary.expr, is_operand),
        Expr::Const(constant) if is_operand => {
            let span = expr.span();
            let is_meant = matches!(constant.value.kind(), ValueKind::String | ValueKind::Number);
            is_meant.then_some(span.start_offset as usize..span.end_offset as usize)
        }
        _ => None,
    }
}
