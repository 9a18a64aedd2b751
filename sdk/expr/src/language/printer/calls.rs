//! Prints calls of functions, and the arguments of functions, filters and tests.

use std::fmt::Write as _;

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Filter};

use super::{Printer, Read, unknown_name};
use crate::{
    error::ExprError,
    functions::{FunctionKind, functions_named},
    language::{
        constants, names, syntax_errors,
        tree::{Precedence, static_path},
    },
    path::Path,
};

impl Printer<'_> {
    /// Prints the call of a function as a filter on its first argument. Reports an error for any other call.
    pub(super) fn call(&mut self, expr: &Expr<'_>, callee: &Expr<'_>, arguments: &[CallArg<'_>]) {
        if let (Expr::Var(name), [CallArg::Pos(first), rest @ ..]) = (callee, arguments)
            && let Some((_, filter)) = names::CALLS.iter().find(|(function, _)| *function == name.id)
        {
            self.operand(first, Precedence::Filtered);
            let _ = write!(self.printed, "|{filter}");
            return self.arguments(rest);
        }
        let place = self.place(expr);
        if let (Expr::Var(name), [] | [CallArg::Pos(_)]) = (callee, arguments)
            && let Some((.., filter)) = names::RANDOM_CALLS
                .iter()
                .find(|(function, count, _)| (*function, *count) == (name.id, arguments.len()))
        {
            match arguments {
                [CallArg::Pos(first)] => self.operand(first, Precedence::Filtered),
                _ => self.printed.push('0'),
            }
            // The byte at which a call begins tells the calls of one text apart.
            let _ = write!(self.printed, "|{filter}({})", place.start);
            return self.reads.push(Read { path: Path::new(names::RANDOM, []), place, is_tested: true, is_key: false });
        }
        self.errors.push(syntax_errors::not_callable(callee, arguments).at(place));
        if let Expr::GetAttr(method) = callee {
            self.with_deeper_nesting(|printer| printer.expression(&method.expr));
        }
        self.arguments(arguments);
    }

    pub(super) fn arguments(&mut self, arguments: &[CallArg<'_>]) {
        if arguments.is_empty() {
            return;
        }
        self.printed.push('(');
        self.with_deeper_nesting(|printer| {
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
                self.errors.push(ExprError::new("arguments with `*` are not supported").at(place));
            }
        }
    }

    /// Checks the arguments of a filter that the expression has as constants. `operand` is the value of the filter.
    pub(super) fn check_arguments(&mut self, filter: &Filter<'_>, operand: &Expr<'_>) {
        self.check_applied(filter);
        match (filter.name, filter.args.as_slice()) {
            ("map", [CallArg::Pos(Expr::Const(name)), CallArg::Pos(key), ..])
                if name.value.as_str() == Some("hmac") =>
            {
                self.check_key(key);
            }
            ("hmac", arguments) => {
                let key = arguments.iter().find_map(|argument| match argument {
                    CallArg::Pos(key) | CallArg::Kwarg("key", key) => Some(key),
                    _ => None,
                });
                key.into_iter().for_each(|key| self.check_key(key));
            }
            (name, [CallArg::Pos(pattern), ..]) if name.starts_with("regex") => self.check_pattern(operand, pattern),
            _ => {}
        }
        self.check_constants(filter);
    }

    /// Reports constant arguments with which the filter fails. A flow is checked before it reaches a pack.
    fn check_constants(&mut self, filter: &Filter<'_>) {
        if cfg!(target_family = "wasm") {
            return;
        }
        let function = functions_named(filter.name).find(|function| function.kind == FunctionKind::Filter);
        let Some(function) = function else { return };
        for (at, argument) in filter.args.iter().enumerate() {
            let (name, value) = match argument {
                CallArg::Pos(Expr::Const(value)) => (function.argument(at + 1), &value.value),
                CallArg::Kwarg(name, Expr::Const(value)) => (Some(*name), &value.value),
                _ => continue,
            };
            if let Some(Err(message)) = name.map(|name| constants::check(filter.name, name, value)) {
                let (CallArg::Pos(value) | CallArg::Kwarg(_, value)) = argument else { continue };
                self.errors.push(ExprError::new(message).at(self.place(value)));
            }
        }
    }

    /// Checks that the key of `hmac` comes from a value, since a key that the expression has itself is no secret. Marks the
    /// paths whose value may be the key.
    fn check_key(&mut self, key: &Expr<'_>) {
        let place = self.place(key);
        if self.may_be_constant(key) {
            let hint = "every reader of the flow knows it: take the key from an input, such as `flow.input.key`";
            self.errors.push(ExprError::new("the key of `hmac` is written in the flow").hint(hint).at(place.clone()));
        }
        if keeps_value(key) {
            let inside = self.reads.iter_mut().filter(|read| place.contains(&read.place.start));
            inside.for_each(|read| read.is_key = true);
        }
    }

    /// Returns true if an expression reads nothing, or gives in some cases a part that reads nothing. An empty text is no
    /// key.
    fn may_be_constant(&self, expr: &Expr<'_>) -> bool {
        match expr {
            Expr::Const(value) if value.value.is_none() || value.value.as_str() == Some("") => false,
            Expr::Filter(filter) => {
                let other = match (filter.name, filter.args.first()) {
                    ("d" | "default", Some(CallArg::Pos(other))) => Some(other),
                    _ => None,
                };
                filter.expr.iter().chain(other).any(|part| self.may_be_constant(part))
            }
            Expr::IfExpr(choice) => {
                let parts = std::iter::once(&choice.true_expr).chain(&choice.false_expr);
                parts.into_iter().any(|part| self.may_be_constant(part))
            }
            Expr::BinOp(binary) if matches!(binary.op, BinOpKind::ScOr | BinOpKind::ScAnd) => {
                self.may_be_constant(&binary.left) || self.may_be_constant(&binary.right)
            }
            _ => {
                let place = self.place(expr);
                !self.reads.iter().any(|read| place.contains(&read.place.start))
            }
        }
    }

    /// Checks the name of the filter or test that a filter such as `map` applies to each item, if the expression has it as a
    /// text.
    fn check_applied(&mut self, filter: &Filter<'_>) {
        let (what, at) = match filter.name {
            "map" => ("filter", 0),
            "reject" | "select" => ("test", 0),
            "rejectattr" | "selectattr" => ("test", 1),
            _ => return,
        };
        let Some(CallArg::Pos(argument)) = filter.args.get(at) else { return };
        let known: Vec<_> = if what == "filter" { names::filters().collect() } else { names::tests().collect() };
        let Expr::Const(name) = argument else { return };
        let name = name.value.as_str().unwrap_or_default();
        if name.is_empty() || known.contains(&name) {
            return;
        }
        let error = unknown_name(what, name, known.into_iter());
        self.errors.push(error.at(self.place(argument)));
    }

    /// Checks a regular expression that is written in the expression. `operand` is the searched value.
    pub(super) fn check_pattern(&mut self, operand: &Expr<'_>, pattern: &Expr<'_>) {
        let Expr::Const(pattern) = pattern else { return };
        if let Err(message) = crate::pattern::Pattern::new(pattern.value.as_str().unwrap_or_default()) {
            let place = self.place(operand);
            self.errors.push(ExprError::new(message).at(place.start..self.at + self.source.len()));
        }
    }
}

/// Returns true if the value of an expression is that of a path, or its default.
fn keeps_value(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Filter(filter) => {
            matches!(filter.name, "d" | "default" | "required") && filter.expr.as_ref().is_some_and(keeps_value)
        }
        other => static_path(other).is_some(),
    }
}
