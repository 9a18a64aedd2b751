//! Queries about parsed expressions.

use std::ops::Range;

use minijinja::machinery::ast::{BinOpKind, CompareOpKind, Expr, UnaryOpKind};

use super::names;
use crate::path::{Path, Segment};

/// Precedence of an expression in the canonical form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Precedence {
    /// Logical operators, conditions and tests. They need parentheses under any other operator.
    Loose,
    /// Filters. They need parentheses before `.` and `[`.
    Filtered,
    /// Names, brackets and constants. They never need parentheses.
    Tight,
}

/// Returns the byte offset of the leftmost part of an expression.
pub(super) fn first_span(expr: &Expr<'_>) -> usize {
    let mut expr = expr;
    loop {
        expr = match expr {
            Expr::GetAttr(attribute) => &attribute.expr,
            Expr::GetItem(item) => &item.expr,
            Expr::Slice(slice) => &slice.expr,
            Expr::Call(call) => &call.expr,
            Expr::BinOp(binary) => &binary.left,
            Expr::Compare(chain) => &chain.expr,
            Expr::Test(test) => &test.expr,
            Expr::Filter(filter) => match &filter.expr {
                Some(expr) => expr,
                None => return filter.span().start_offset as usize,
            },
            other => return other.span().start_offset as usize,
        };
    }
}

/// Returns the path of an expression that is a plain path, and its byte range in the expression; `None` for any other
/// expression.
pub(super) fn static_path(expr: &Expr<'_>) -> Option<(Path, Range<usize>)> {
    let (mut segments, mut rest) = (Vec::new(), expr);
    let root = loop {
        rest = match rest {
            Expr::Var(root) if root.id == "null" => return None,
            Expr::Var(root) => break root,
            Expr::GetAttr(attribute) => {
                segments.push(Segment::Key(attribute.name.into()));
                &attribute.expr
            }
            Expr::GetItem(item) => {
                segments.push(static_segment(&item.subscript_expr)?);
                &item.expr
            }
            _ => return None,
        };
    };
    let place = root.span().start_offset as usize..expr.span().end_offset as usize;
    Some((Path::new(root.id, segments.into_iter().rev()), place))
}

/// Returns the path segment of a subscript; `None` if the subscript is computed.
pub(super) fn static_segment(subscript: &Expr<'_>) -> Option<Segment> {
    match subscript {
        Expr::Const(key) => match key.value.as_str() {
            Some(key) => Some(Segment::Key(key.into())),
            None if key.value.is_integer() => key.value.as_i64().map(Segment::Index),
            None => None,
        },
        Expr::UnaryOp(unary) if matches!(unary.op, UnaryOpKind::Neg) => match static_segment(&unary.expr)? {
            Segment::Index(index) => Some(Segment::Index(-index)),
            Segment::Key(_) => None,
        },
        _ => None,
    }
}

/// Returns true if an expression looks up a part of a value, or a root by its name.
pub(super) fn is_lookup(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Var(name) => name.id != "null",
        Expr::GetAttr(_) | Expr::GetItem(_) => true,
        Expr::Filter(filter) => names::LOOKUPS.contains(&filter.name),
        _ => false,
    }
}

/// Returns true if an expression may be a node's whole output: `node`, `nodes.node` or `nodes[x]`.
pub(super) fn is_output(expr: &Expr<'_>) -> bool {
    let is_nodes = |expr: &Expr<'_>| matches!(expr, Expr::Var(name) if name.id == "nodes");
    match expr {
        Expr::Var(_) => !is_nodes(expr),
        Expr::GetAttr(attribute) => is_nodes(&attribute.expr),
        Expr::GetItem(item) => is_nodes(&item.expr),
        _ => false,
    }
}

/// Returns true for the literals `null` and `none`.
pub(super) fn is_null(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Var(name) => name.id == "null",
        Expr::Const(constant) => constant.value.is_none(),
        _ => false,
    }
}

/// Returns the sign of a comparison in a chain.
pub(super) fn chain_sign(op: CompareOpKind) -> &'static str {
    match op {
        CompareOpKind::Eq => "==",
        CompareOpKind::Ne => "!=",
        CompareOpKind::Lt => "<",
        CompareOpKind::Lte => "<=",
        CompareOpKind::Gt => ">",
        CompareOpKind::Gte => ">=",
        CompareOpKind::In => "in",
        CompareOpKind::NotIn => "not in",
    }
}

/// Returns the precedence of an expression in the canonical form.
pub(super) fn precedence(expr: &Expr<'_>) -> Precedence {
    match expr {
        Expr::BinOp(binary) if matches!(binary.op, BinOpKind::ScAnd | BinOpKind::ScOr) => Precedence::Loose,
        Expr::UnaryOp(unary) if matches!(unary.op, UnaryOpKind::Not) => Precedence::Loose,
        Expr::IfExpr(_) | Expr::Test(_) => Precedence::Loose,
        Expr::BinOp(_) | Expr::Compare(_) | Expr::Filter(_) | Expr::Slice(_) => Precedence::Filtered,
        Expr::Call(_) | Expr::UnaryOp(_) => Precedence::Filtered,
        Expr::Const(constant) if constant.value.is_number() => Precedence::Filtered,
        _ => Precedence::Tight,
    }
}
