//! Checks a parsed expression, collects the paths that it reads, and prints it in the canonical form.
//!
//! In the canonical form, operators and calls are filters that enforce the limits and rules of this language. A guard follows each lookup: the filter `_read`, which fails in a strict flow if the value is missing. The
//! canonical form is text, so this module does not depend on how MiniJinja stores expressions.

mod calls;

use std::{fmt::Write as _, ops::Range};

use minijinja::{
    Value,
    machinery::ast::{BinOpKind, CallArg, Expr, Filter, Test, UnaryOpKind},
    value::ValueKind,
};

use super::{
    items, names,
    tokens::too_deep,
    tree::{
        Precedence, chain_sign, first_span, is_lookup, is_null, is_output, precedence, static_path, static_segment,
    },
};
use crate::{
    error::ExprError,
    functions,
    json::Json,
    limits,
    path::{Path, shorten},
    path_use::PathUse,
    suggest::did_you_mean,
};

/// A path that an expression reads, with its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read {
    /// The longest part of the path that is known before evaluation.
    pub(crate) path: Path,
    /// The path's bytes in the text that contains the expression.
    pub(crate) place: Range<usize>,
    /// True if the value may be missing because the expression only tests whether it exists.
    pub(crate) is_tested: bool,
    /// True if the value may be the key of `hmac`.
    pub(crate) is_key: bool,
}

impl Read {
    /// Returns the path and its position in the text at a JSON Pointer.
    pub(crate) fn at(&self, pointer: &str) -> PathUse {
        let (path, bytes) = (self.path.clone(), Some(self.place.clone()));
        PathUse { path, pointer: pointer.to_owned(), bytes, is_tested: self.is_tested, is_key: self.is_key }
    }
}

/// A lookup whose value must exist in a strict flow, because the expression does not test for it.
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    /// The path that is looked up, or the source text of a lookup that is not a plain path.
    pub(super) what: Result<Path, Box<str>>,
    /// The lookup's bytes in the text that contains the expression.
    pub(super) place: Range<usize>,
}

/// Prints one expression.
pub(super) struct Printer<'s> {
    source: &'s str,
    at: usize,
    depth: usize,
    /// The canonical form.
    pub(super) printed: String,
    /// The paths that the expression reads, in their order.
    pub(super) reads: Vec<Read>,
    /// The paths that lead into the items of lists; see `items.rs`.
    pub(super) item_paths: Vec<Read>,
    /// The lookups whose value must exist. The guards in the canonical form refer to them by index.
    pub(super) lookups: Vec<Lookup>,
    pub(super) errors: Vec<ExprError>,
}

/// The way in which an expression uses the value of a part of itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The value is needed, so in a strict flow it must exist.
    Needed,
    /// The expression only tests whether the value exists, so the value may be missing.
    Tested,
    /// A part of the value is looked up. If the value is missing, so is the part.
    Entered,
}

impl<'s> Printer<'s> {
    /// Creates a printer for an expression that starts at byte `at` of its text.
    pub(super) fn new(source: &'s str, at: usize) -> Printer<'s> {
        let printed = String::with_capacity(source.len());
        let (reads, item_paths, lookups, errors) = Default::default();
        Printer { source, at, depth: 0, printed, reads, item_paths, lookups, errors }
    }

    /// Prints a whole expression.
    pub(super) fn expression(&mut self, expr: &Expr<'_>) {
        self.print_as(expr, Use::Needed);
    }

    /// Prints an expression. Prints the guard `_read` after a lookup if the use of its value (`usage`) needs one.
    fn print_as(&mut self, expr: &Expr<'_>, usage: Use) {
        let path = self.path(expr, usage == Use::Tested);
        if path.is_none() {
            self.print_computed(expr, usage);
        }
        if !is_lookup(expr) || usage == Use::Entered {
            return;
        }
        if path.is_none()
            && let Some(path) = items::path_of(expr)
        {
            let (place, is_tested) = (self.place(expr), usage == Use::Tested);
            self.item_paths.push(Read { path, place, is_tested, is_key: false });
        }
        let is_output = is_output(expr);
        let number = match usage {
            Use::Needed => self.add_lookup(expr, path).to_string(),
            _ if is_output => "none".to_owned(),
            _ => return,
        };
        let _ = write!(self.printed, "|{}({number},{is_output})", names::READ);
    }

    /// Prints an expression that is a plain path and returns the path; otherwise prints nothing and returns `None`.
    fn path(&mut self, expr: &Expr<'_>, is_tested: bool) -> Option<Path> {
        let (path, place) = static_path(expr)?;
        let place = self.at + place.start..self.at + place.end;
        let _ = write!(self.printed, "{path}");
        self.reads.push(Read { path: path.clone(), place, is_tested, is_key: false });
        Some(path)
    }

    /// Records a lookup whose value must exist in a strict flow. Returns its index.
    fn add_lookup(&mut self, expr: &Expr<'_>, path: Option<Path>) -> usize {
        let place = self.place(expr);
        let source = self.source.get(place.start - self.at..place.end - self.at).unwrap_or_default();
        let what = path.ok_or_else(|| shorten(source.trim()).into());
        self.lookups.push(Lookup { what, place });
        self.lookups.len() - 1
    }

    fn print_computed(&mut self, expr: &Expr<'_>, usage: Use) {
        match expr {
            Expr::Var(_) => self.printed.push_str("none"),
            Expr::Const(constant) => self.constant(&constant.value),
            Expr::UnaryOp(unary) => match unary.op {
                UnaryOpKind::Not => {
                    self.printed.push_str("not ");
                    self.operand(&unary.expr, Precedence::Tight);
                }
                UnaryOpKind::Neg => {
                    self.operand(&unary.expr, Precedence::Filtered);
                    let _ = write!(self.printed, "|{}", names::NEGATE);
                }
            },
            Expr::BinOp(binary) => self.binary(binary.op, &binary.left, &binary.right),
            Expr::Compare(chain) => {
                let steps = chain.ops.iter().map(|step| (chain_sign(step.op), &step.expr));
                self.comparison(&chain.expr, &steps.collect::<Vec<_>>());
            }
            Expr::IfExpr(choice) => {
                self.operand_for(&choice.true_expr, Precedence::Filtered, usage);
                self.printed.push_str(" if ");
                self.operand(&choice.test_expr, Precedence::Filtered);
                if let Some(otherwise) = &choice.false_expr {
                    self.printed.push_str(" else ");
                    self.operand_for(otherwise, Precedence::Filtered, usage);
                }
            }
            Expr::Filter(filter) => self.filter(filter, usage),
            Expr::Test(test) => self.test(test),
            Expr::GetAttr(attribute) => {
                self.operand_for(&attribute.expr, Precedence::Tight, Use::Entered);
                let _ = write!(self.printed, ".{}", attribute.name);
            }
            Expr::GetItem(item) => {
                self.operand_for(&item.expr, Precedence::Tight, Use::Entered);
                self.subscript(&item.subscript_expr);
            }
            Expr::Slice(slice) => {
                self.printed.push('(');
                self.with_deeper_nesting(|printer| printer.operand(&slice.expr, Precedence::Filtered));
                let _ = write!(self.printed, "|{})", names::SLICED);
                self.slice([&slice.start, &slice.stop, &slice.step]);
                let _ = write!(self.printed, "|{}", names::LIST);
            }
            Expr::List(list) => self.list(&list.items),
            Expr::Tuple(tuple) => self.list(&tuple.items),
            Expr::Map(map) => self.map(&map.keys, &map.values),
            Expr::Call(call) => self.call(expr, &call.expr, &call.args),
        }
    }

    /// Prints a part of an expression, in parentheses if its precedence is too low.
    fn operand(&mut self, expr: &Expr<'_>, needed: Precedence) {
        self.operand_for(expr, needed, Use::Needed);
    }

    fn operand_for(&mut self, expr: &Expr<'_>, needed: Precedence, usage: Use) {
        let precedence = if is_lookup(expr) && usage != Use::Entered { Precedence::Filtered } else { precedence(expr) };
        if precedence >= needed {
            return self.print_as(expr, usage);
        }
        self.printed.push('(');
        self.with_deeper_nesting(|printer| printer.print_as(expr, usage));
        self.printed.push(')');
    }

    fn enclosed(&mut self, open: char, expr: &Expr<'_>, close: char) {
        self.printed.push(open);
        self.with_deeper_nesting(|printer| printer.expression(expr));
        self.printed.push(close);
    }

    /// Prints a subscript in brackets. A computed one passes the filter `_key`, because MiniJinja uses a boolean as a
    /// number.
    fn subscript(&mut self, expr: &Expr<'_>) {
        if static_segment(expr).is_some() {
            return self.enclosed('[', expr, ']');
        }
        self.printed.push('[');
        self.with_deeper_nesting(|printer| printer.operand(expr, Precedence::Filtered));
        let _ = write!(self.printed, "|{}]", names::KEY);
    }

    /// Calls `write` for the content of brackets, one nesting level deeper. Reports an error instead if the nesting is
    /// too deep, because MiniJinja's parser recurses for each bracket, including those that this printer adds.
    fn with_deeper_nesting(&mut self, write: impl FnOnce(&mut Self)) {
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
            BinOpKind::Sub => names::SUBTRACT,
            BinOpKind::Mul => names::MULTIPLY,
            BinOpKind::Div => names::DIVIDE,
            BinOpKind::FloorDiv => names::FLOOR_DIVIDE,
            BinOpKind::Rem => names::REMAINDER,
            BinOpKind::Pow => names::POWER,
            BinOpKind::Concat => names::CONCAT,
            BinOpKind::ScAnd => return self.logical(" and ", op, left, right),
            BinOpKind::ScOr => return self.logical(" or ", op, left, right),
            BinOpKind::Eq => return self.comparison(left, &[("==", right)]),
            BinOpKind::Ne => return self.comparison(left, &[("!=", right)]),
            BinOpKind::Lt => return self.comparison(left, &[("<", right)]),
            BinOpKind::Lte => return self.comparison(left, &[("<=", right)]),
            BinOpKind::Gt => return self.comparison(left, &[(">", right)]),
            BinOpKind::Gte => return self.comparison(left, &[(">=", right)]),
            BinOpKind::In => return self.comparison(left, &[("in", right)]),
        };
        self.operand(left, Precedence::Filtered);
        let _ = write!(self.printed, "|{filter}");
        self.enclosed('(', right, ')');
    }

    /// Prints `and` or `or` unchanged. A chain of one operator groups from the left, so it needs no parentheses.
    fn logical(&mut self, sign: &str, op: BinOpKind, left: &Expr<'_>, right: &Expr<'_>) {
        let is_flat =
            matches!(left, Expr::BinOp(inner) if std::mem::discriminant(&inner.op) == std::mem::discriminant(&op));
        self.operand(left, if is_flat { Precedence::Loose } else { Precedence::Filtered });
        self.printed.push_str(sign);
        self.operand(right, Precedence::Filtered);
    }

    fn comparison(&mut self, first: &Expr<'_>, steps: &[(&str, &Expr<'_>)]) {
        // A value that is compared only with null may be missing.
        let usage = |at: usize| {
            let values = || std::iter::once(first).chain(steps.iter().map(|(_, right)| *right));
            let before = at.checked_sub(1).and_then(|before| Some((steps[before].0, values().nth(before)?)));
            let behind = steps.get(at).map(|(sign, right)| (*sign, *right));
            let is_test = |(sign, other): (&str, &Expr<'_>)| matches!(sign, "==" | "!=") && is_null(other);
            let is_tested = before.into_iter().chain(behind).all(is_test);
            if is_tested { Use::Tested } else { Use::Needed }
        };
        self.operand_for(first, Precedence::Filtered, usage(0));
        let _ = write!(self.printed, "|{}(", names::COMPARE);
        self.with_deeper_nesting(|printer| {
            for (at, (sign, right)) in steps.iter().enumerate() {
                let _ = write!(printer.printed, "\"{sign}\",");
                printer.print_as(right, usage(at + 1));
                printer.printed.push(',');
            }
        });
        self.printed.push(')');
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

    fn filter(&mut self, filter: &Filter<'_>, usage: Use) {
        let Some(operand) = &filter.expr else { return };
        let is_default = matches!(filter.name, "d" | "default");
        let is_tested = is_default || filter.name == "required";
        self.operand_for(operand, Precedence::Filtered, if is_tested { Use::Tested } else { Use::Needed });
        if let Some((paths, argument, is_tested)) = items::attributes(filter) {
            let place = self.place(argument);
            let read = |path| Read { path, place: place.clone(), is_tested, is_key: false };
            self.item_paths.extend(paths.into_iter().map(read));
        }
        self.check_name("filter", filter.name, operand, names::filters());
        let _ = write!(self.printed, "|{}", filter.name);
        if filter.name == "required" && filter.args.is_empty() {
            let place = self.place(operand);
            let subject = self.source.get(place.start - self.at..place.end - self.at).unwrap_or_default().trim();
            let _ = write!(self.printed, "({},false)", Json::from(subject).to_text());
            return;
        }
        if let ([CallArg::Pos(other)], true) = (filter.args.as_slice(), is_default)
            && is_lookup(other)
        {
            return self.default(other, usage);
        }
        self.arguments(&filter.args);
        self.check_arguments(filter, operand);
    }

    /// Prints a lookup that is the argument of `default`. It must have a value only where `default` returns the value.
    fn default(&mut self, other: &Expr<'_>, usage: Use) {
        self.printed.push('(');
        let before = self.reads.len();
        self.with_deeper_nesting(|printer| printer.print_as(other, Use::Tested));
        self.printed.push(')');
        if usage == Use::Needed {
            self.reads.iter_mut().skip(before).for_each(|read| read.is_tested = false);
            let number = self.add_lookup(other, static_path(other).map(|(path, _)| path));
            let _ = write!(self.printed, "|{}({number})", names::READ);
        }
    }

    fn test(&mut self, test: &Test<'_>) {
        let is_tested = names::TESTS_OF_MISSING.contains(&test.name)
            || names::EQUALITY_TESTS.contains(&test.name)
                && matches!(test.args.as_slice(), [CallArg::Pos(other)] if is_null(other));
        self.operand_for(&test.expr, Precedence::Filtered, if is_tested { Use::Tested } else { Use::Needed });
        self.check_name("test", test.name, &test.expr, names::tests());
        let _ = write!(self.printed, " is {}", test.name);
        self.arguments(&test.args);
        if let ("matches", [CallArg::Pos(pattern)]) = (test.name, test.args.as_slice()) {
            self.check_pattern(&test.expr, pattern);
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
        // The tree has no position for the name; it is the first such word after the operand.
        let start = self.place(before).end - self.at;
        let found = self.source.get(start..).and_then(|rest| rest.find(name)).map(|found| start + found);
        let place = found.map_or(0..self.source.len(), |found| found..found + name.len());
        self.errors.push(unknown_name(what, name, known).at(self.at + place.start..self.at + place.end));
    }

    fn slice(&mut self, bounds: [&Option<Expr<'_>>; 3]) {
        self.printed.push('[');
        self.with_deeper_nesting(|printer| {
            for (at, bound) in bounds.into_iter().enumerate() {
                printer.printed.push_str(if at > 0 { ":" } else { "" });
                if let Some(bound) = bound {
                    printer.operand(bound, Precedence::Filtered);
                }
            }
        });
        self.printed.push(']');
    }

    fn list(&mut self, items: &[Expr<'_>]) {
        self.printed.push('[');
        self.with_deeper_nesting(|printer| {
            for item in items {
                printer.expression(item);
                printer.printed.push(',');
            }
        });
        self.printed.push(']');
    }

    fn map(&mut self, keys: &[Expr<'_>], values: &[Expr<'_>]) {
        self.printed.push('{');
        self.with_deeper_nesting(|printer| {
            for (key, value) in keys.iter().zip(values) {
                printer.operand(key, Precedence::Filtered);
                printer.printed.push(':');
                printer.expression(value);
                printer.printed.push(',');
            }
        });
        self.printed.push('}');
    }

    /// Returns the byte range of an expression in the text that contains it. The range includes parentheses around the
    /// left operand, although the parsed tree does not record them.
    fn place(&self, expr: &Expr<'_>) -> Range<usize> {
        let span = expr.span();
        let mut start = first_span(expr).min(span.start_offset as usize).min(self.source.len());
        let end = (span.end_offset as usize).clamp(start, self.source.len());
        // The tree does not record parentheses around the left operand.
        let lacks_open = |text: &str| text.matches(')').count() > text.matches('(').count();
        while self.source.get(start..end).is_some_and(lacks_open)
            && let Some(before) = self.source[..start].trim_end().strip_suffix('(')
        {
            start = before.len();
        }
        self.at + start..self.at + end
    }
}

/// Returns the error for the unknown name of a filter or test.
fn unknown_name(what: &str, name: &str, known: impl Iterator<Item = &'static str>) -> ExprError {
    let mut error = ExprError::new(format!("unknown {what} `{name}`"));
    error.hint = match (what, name) {
        ("test", "null") => Some("write `is none`, or `is not none`".to_owned()),
        _ if let Some(meant) = functions::find(name) => Some(meant.correction(what)),
        _ => did_you_mean(name, known).or_else(|| Some(format!("`flowcell functions` lists all {what}s"))),
    };
    error
}
