//! Prints calls of functions, and the arguments of functions, filters and tests.

use std::fmt::Write as _;

use minijinja::machinery::ast::{CallArg, Expr};

use super::{Printer, Read};
use crate::{
    error::ExprError,
    language::{names, syntax_errors, tree::Precedence},
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
            return self.reads.push(Read { path: Path::new(names::RANDOM, []), place, is_tested: true });
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
}
