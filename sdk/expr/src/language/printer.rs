//! Checking a parsed expression, collecting the paths that it reads, and writing it in the canonical form.
//!
//! In the canonical form `+`, `*` and `~` are filters that keep the limits, comparison with `null` includes what is
//! missing, `required` knows what it is about, and there are no calls. Writing text instead of changing the tree keeps
//! this independent of how MiniJinja stores it.

use std::{fmt::Write as _, ops::Range};

use minijinja::{
    Value,
    machinery::ast::{BinOpKind, CallArg, CompareOpKind, Expr, Filter, Test, UnaryOpKind},
    value::ValueKind,
};

use super::{names, scan::too_deep};
use crate::{
    error::ExprError,
    json::Json,
    limits,
    path::{Path, Segment},
    suggest::did_you_mean,
};

/// A path that an expression reads, and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read {
    /// The longest part of it that is known before evaluation.
    pub(crate) path: Path,
    /// Its bytes in the text that holds the expression.
    pub(crate) place: Range<usize>,
}

/// Writes one expression.
pub(super) struct Printer<'s> {
    source: &'s str,
    at: usize,
    depth: usize,
    /// The canonical form.
    pub(super) printed: String,
    /// What the expression reads, in the order in which it stands there.
    pub(super) reads: Vec<Read>,
    /// What is wrong with it.
    pub(super) errors: Vec<ExprError>,
}

/// How tightly an expression holds together where it is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    /// Operators: needs parentheses under any other.
    Loose,
    /// Filters: needs parentheses before `.` and `[`.
    Filtered,
    /// Names, brackets, constants.
    Tight,
}

impl<'s> Printer<'s> {
    /// Prepares to write an expression that starts at `at` in its text.
    pub(super) fn new(source: &'s str, at: usize) -> Printer<'s> {
        let printed = String::with_capacity(source.len());
        Printer { source, at, depth: 0, printed, reads: Vec::new(), errors: Vec::new() }
    }

    /// Writes a whole expression.
    pub(super) fn expression(&mut self, expr: &Expr<'_>) {
        if let Some((path, place)) = static_path(expr) {
            let place = self.at + place.start..self.at + place.end;
            let _ = write!(self.printed, "{path}");
            self.reads.push(Read { path, place });
            return;
        }
        match expr {
            Expr::Var(_) => self.printed.push_str("none"),
            Expr::Const(constant) => self.constant(&constant.value),
            Expr::UnaryOp(unary) => {
                let sign = if matches!(unary.op, UnaryOpKind::Not) { "not " } else { "-" };
                self.printed.push_str(sign);
                self.operand(&unary.expr, Hold::Tight);
            }
            Expr::BinOp(binary) => self.binary(binary.op, &binary.left, &binary.right),
            Expr::Compare(chain) => {
                self.operand(&chain.expr, Hold::Filtered);
                for step in &chain.ops {
                    self.printed.push_str(comparison(step.op));
                    self.operand(&step.expr, Hold::Filtered);
                }
            }
            Expr::IfExpr(choice) => {
                self.operand(&choice.true_expr, Hold::Filtered);
                self.printed.push_str(" if ");
                self.operand(&choice.test_expr, Hold::Filtered);
                if let Some(otherwise) = &choice.false_expr {
                    self.printed.push_str(" else ");
                    self.operand(otherwise, Hold::Filtered);
                }
            }
            Expr::Filter(filter) => self.filter(filter),
            Expr::Test(test) => self.test(test),
            Expr::GetAttr(attribute) => {
                self.operand(&attribute.expr, Hold::Tight);
                let _ = write!(self.printed, ".{}", attribute.name);
            }
            Expr::GetItem(item) => {
                self.operand(&item.expr, Hold::Tight);
                self.enclosed('[', &item.subscript_expr, ']');
            }
            Expr::Slice(slice) => {
                self.operand(&slice.expr, Hold::Tight);
                self.slice([&slice.start, &slice.stop, &slice.step]);
            }
            Expr::List(list) => self.list(&list.items),
            Expr::Tuple(tuple) => self.list(&tuple.items),
            Expr::Map(map) => self.map(&map.keys, &map.values),
            Expr::Call(call) => {
                let place = self.place(expr);
                self.errors.push(not_callable(&call.expr).at(place));
            }
        }
    }

    /// Writes a part of an expression, in parentheses if it holds together less than it must.
    fn operand(&mut self, expr: &Expr<'_>, needed: Hold) {
        match hold(expr) < needed {
            true => self.enclosed('(', expr, ')'),
            false => self.expression(expr),
        }
    }

    fn enclosed(&mut self, open: char, expr: &Expr<'_>, close: char) {
        self.printed.push(open);
        self.deeper(|printer| printer.expression(expr));
        self.printed.push(close);
    }

    /// MiniJinja's parser recurses per bracket: their depth is bounded here, whatever the operators added.
    fn deeper(&mut self, write: impl FnOnce(&mut Self)) {
        self.depth += 1;
        match self.depth > 2 * limits::NESTING {
            true if self.errors.is_empty() => self.errors.push(ExprError::new(too_deep())),
            true => {}
            false => write(self),
        }
        self.depth -= 1;
    }

    fn binary(&mut self, op: BinOpKind, left: &Expr<'_>, right: &Expr<'_>) {
        let filter = match op {
            BinOpKind::Add => names::ADD,
            BinOpKind::Mul => names::MULTIPLY,
            BinOpKind::Concat => names::CONCAT,
            BinOpKind::Eq | BinOpKind::Ne if is_null(left) || is_null(right) => {
                let other = if is_null(left) { right } else { left };
                return self.null_comparison(matches!(op, BinOpKind::Ne), other);
            }
            _ => return self.operator(op, left, right),
        };
        self.operand(left, Hold::Filtered);
        let _ = write!(self.printed, "|{filter}");
        self.enclosed('(', right, ')');
    }

    fn null_comparison(&mut self, negated: bool, other: &Expr<'_>) {
        self.printed.push_str(if negated { "not " } else { "" });
        self.operand(other, Hold::Filtered);
        let _ = write!(self.printed, "|{}", names::IS_NULL);
    }

    /// Writes an operator as it is. A chain of one operator stays flat, since it groups from the left anyway.
    fn operator(&mut self, op: BinOpKind, left: &Expr<'_>, right: &Expr<'_>) {
        let sign = sign(op);
        let flat = !is_comparison(op) && matches!(left, Expr::BinOp(inner) if self::sign(inner.op) == sign);
        self.operand(left, if flat { Hold::Loose } else { Hold::Filtered });
        self.printed.push_str(sign);
        self.operand(right, Hold::Filtered);
    }

    fn constant(&mut self, value: &Value) {
        match value.as_str() {
            Some(text) => self.printed.push_str(&Json::from(text).to_text()),
            None if value.is_none() => self.printed.push_str("none"),
            None if value.kind() == ValueKind::Bool => {
                self.printed.push_str(if value.is_true() { "true" } else { "false" });
            }
            None => {
                let _ = match f64::try_from(value.clone()) {
                    Ok(float) if !value.is_integer() => write!(self.printed, "{float:?}"),
                    _ => write!(self.printed, "{value}"),
                };
            }
        }
    }

    fn filter(&mut self, filter: &Filter<'_>) {
        let Some(operand) = &filter.expr else { return };
        self.operand(operand, Hold::Filtered);
        self.check_name("filter", filter.name, operand, names::filters());
        let _ = write!(self.printed, "|{}", filter.name);
        if filter.name == "required" && filter.args.is_empty() {
            let place = self.place(operand);
            let subject = self.source.get(place.start - self.at..place.end - self.at).unwrap_or_default().trim();
            let _ = write!(self.printed, "({})", Json::from(subject).to_text());
            return;
        }
        self.arguments(&filter.args);
    }

    fn test(&mut self, test: &Test<'_>) {
        self.operand(&test.expr, Hold::Filtered);
        self.check_name("test", test.name, &test.expr, names::tests());
        let _ = write!(self.printed, " is {}", test.name);
        self.arguments(&test.args);
        if let ("matches", [CallArg::Pos(Expr::Const(pattern))]) = (test.name, test.args.as_slice()) {
            let checked = crate::pattern::Pattern::new(pattern.value.as_str().unwrap_or_default());
            if let Err(message) = checked {
                let place = self.place(&test.expr);
                self.errors.push(ExprError::new(message).at(place.start..self.at + self.source.len()));
            }
        }
    }

    fn check_name(
        &mut self,
        what: &str,
        name: &str,
        before: &Expr<'_>,
        known: impl Iterator<Item = &'static str> + Clone,
    ) {
        if known.clone().any(|known| known == name) {
            return;
        }
        // The tree does not say where the name stands: it is the first such word after the operand.
        let start = self.place(before).end - self.at;
        let found = self.source.get(start..).and_then(|rest| rest.find(name)).map(|found| start + found);
        let place = found.map_or(0..self.source.len(), |found| found..found + name.len());
        let mut error = ExprError::new(format!("there is no {what} `{name}`"));
        error.hint = did_you_mean(name, known);
        self.errors.push(error.at(self.at + place.start..self.at + place.end));
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) {
        if arguments.is_empty() {
            return;
        }
        self.printed.push('(');
        self.deeper(|printer| {
            for argument in arguments {
                printer.argument(argument);
                printer.printed.push(',');
            }
        });
        self.printed.push(')');
    }

    fn argument(&mut self, argument: &CallArg<'_>) {
        match argument {
            CallArg::Pos(value) => self.expression(value),
            CallArg::Kwarg(name, value) => {
                let _ = write!(self.printed, "{name}=");
                self.expression(value);
            }
            CallArg::PosSplat(value) | CallArg::KwargSplat(value) => {
                let place = self.place(value);
                self.errors.push(ExprError::new("arguments are written one by one, without `*`").at(place));
            }
        }
    }

    fn slice(&mut self, bounds: [&Option<Expr<'_>>; 3]) {
        self.printed.push('[');
        self.deeper(|printer| {
            for (at, bound) in bounds.into_iter().enumerate() {
                printer.printed.push_str(if at > 0 { ":" } else { "" });
                if let Some(bound) = bound {
                    printer.operand(bound, Hold::Filtered);
                }
            }
        });
        self.printed.push(']');
    }

    fn list(&mut self, items: &[Expr<'_>]) {
        self.printed.push('[');
        self.deeper(|printer| {
            for item in items {
                printer.expression(item);
                printer.printed.push(',');
            }
        });
        self.printed.push(']');
    }

    fn map(&mut self, keys: &[Expr<'_>], values: &[Expr<'_>]) {
        self.printed.push('{');
        self.deeper(|printer| {
            for (key, value) in keys.iter().zip(values) {
                printer.operand(key, Hold::Filtered);
                printer.printed.push(':');
                printer.expression(value);
                printer.printed.push(',');
            }
        });
        self.printed.push('}');
    }

    /// The bytes of an expression in its text, as far as the tree tells.
    fn place(&self, expr: &Expr<'_>) -> Range<usize> {
        let span = expr.span();
        let start = first_span(expr).min(span.start_offset as usize).min(self.source.len());
        let end = (span.end_offset as usize).clamp(start, self.source.len());
        self.at + start..self.at + end
    }
}

/// Where the leftmost part of an expression starts.
fn first_span(expr: &Expr<'_>) -> usize {
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

/// The path that an expression is, if it is nothing else, and its bytes in the expression.
fn static_path(expr: &Expr<'_>) -> Option<(Path, Range<usize>)> {
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

fn static_segment(subscript: &Expr<'_>) -> Option<Segment> {
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

fn is_null(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Var(name) => name.id == "null",
        Expr::Const(constant) => constant.value.is_none(),
        _ => false,
    }
}

fn hold(expr: &Expr<'_>) -> Hold {
    match expr {
        Expr::BinOp(binary) => match binary.op {
            BinOpKind::Add | BinOpKind::Mul | BinOpKind::Concat => Hold::Filtered,
            _ => Hold::Loose,
        },
        Expr::Filter(_) => Hold::Filtered,
        Expr::UnaryOp(_) | Expr::Compare(_) | Expr::IfExpr(_) | Expr::Test(_) => Hold::Loose,
        Expr::Const(constant) if constant.value.is_number() => Hold::Filtered,
        _ => Hold::Tight,
    }
}

fn not_callable(callee: &Expr<'_>) -> ExprError {
    let error = ExprError::new("expressions call nothing");
    match callee {
        Expr::Var(name) if names::filters().any(|filter| filter == name.id) => {
            error.hint(format!("`{0}` is a filter: write `value | {0}`", name.id))
        }
        Expr::GetAttr(attribute) if names::filters().any(|filter| filter == attribute.name) => {
            error.hint(format!("`{0}` is a filter: write `value | {0}`", attribute.name))
        }
        _ => error.hint("use a filter: `value | name`"),
    }
}

fn is_comparison(op: BinOpKind) -> bool {
    use BinOpKind::{Eq, Gt, Gte, In, Lt, Lte, Ne};
    matches!(op, Eq | Ne | Lt | Lte | Gt | Gte | In)
}

fn sign(op: BinOpKind) -> &'static str {
    match op {
        BinOpKind::Eq => " == ",
        BinOpKind::Ne => " != ",
        BinOpKind::Lt => " < ",
        BinOpKind::Lte => " <= ",
        BinOpKind::Gt => " > ",
        BinOpKind::Gte => " >= ",
        BinOpKind::ScAnd => " and ",
        BinOpKind::ScOr => " or ",
        BinOpKind::Add => " + ",
        BinOpKind::Sub => " - ",
        BinOpKind::Mul => " * ",
        BinOpKind::Div => " / ",
        BinOpKind::FloorDiv => " // ",
        BinOpKind::Rem => " % ",
        BinOpKind::Pow => " ** ",
        BinOpKind::Concat => " ~ ",
        BinOpKind::In => " in ",
    }
}

fn comparison(op: CompareOpKind) -> &'static str {
    match op {
        CompareOpKind::Eq => " == ",
        CompareOpKind::Ne => " != ",
        CompareOpKind::Lt => " < ",
        CompareOpKind::Lte => " <= ",
        CompareOpKind::Gt => " > ",
        CompareOpKind::Gte => " >= ",
        CompareOpKind::In => " in ",
        CompareOpKind::NotIn => " not in ",
    }
}
