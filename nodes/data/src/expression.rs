//! Compiles fields that the manifest marks as conditions or templates, and converts their errors to failures.

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
    let text = raw.as_str().ok_or_else(|| Failure::invalid_input("an expression must be a text"))?;
    Binding::expression(text).map_err(|errors| refuse(&errors))
}

/// Returns the failure for an error of an expression or a template: `missing_value` or `expression_error`.
pub(crate) fn expression_failure(error: ExprError) -> Failure {
    Failure::new(code(&error, "expression_error"), error)
}

/// Returns the failure for an error of a condition: `missing_value` or `condition_error`.
pub(crate) fn condition_failure(error: ExprError) -> Failure {
    Failure::new(code(&error, "condition_error"), error)
}

/// Adds the index of the list item to a failure.
pub(crate) fn with_item_index(index: usize) -> impl Fn(Failure) -> Failure {
    move |failure| Failure { message: format!("item {index}: {}", failure.message), ..failure }
}

fn code(error: &ExprError, otherwise: &'static str) -> &'static str {
    if error.is_missing { "missing_value" } else { otherwise }
}

fn refuse(errors: &[ExprError]) -> Failure {
    Failure::invalid_input(errors.first().map_or_else(|| "this is not an expression".to_owned(), ToString::to_string))
}
