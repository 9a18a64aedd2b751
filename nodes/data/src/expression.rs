//! Fields that the manifest marks as conditions or templates.

use flowcell_expr::{Binding, Condition, ExprError};
use flowcell_sdk::prelude::*;

/// Compiles a condition.
pub(crate) fn condition(raw: &flowcell_expr::Json) -> Result<Condition> {
    Condition::compile(raw).map_err(|errors| refuse(&errors))
}

/// Compiles a template.
pub(crate) fn template(raw: &flowcell_expr::Json) -> Result<Binding> {
    Binding::compile(raw).map_err(|errors| refuse(&errors))
}

/// Compiles one expression.
pub(crate) fn expression(raw: &flowcell_expr::Json) -> Result<Binding> {
    let text = raw.as_str().ok_or_else(|| Failure::invalid_input("an expression is a text"))?;
    Binding::expression(text).map_err(|errors| refuse(&errors))
}

/// What an expression or a template met while it was evaluated.
pub(crate) fn failed(error: ExprError) -> Failure {
    Failure::new("expression_error", error)
}

/// What a condition met while it was evaluated.
pub(crate) fn undecided(error: ExprError) -> Failure {
    Failure::new("condition_error", error)
}

fn refuse(errors: &[ExprError]) -> Failure {
    Failure::invalid_input(errors.first().map_or_else(|| "this is no expression".to_owned(), ToString::to_string))
}
