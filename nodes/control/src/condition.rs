//! Evaluates fields that the manifest marks as conditions.

use flowcell_expr::{Captured, Condition, ExprError, Json};
use flowcell_sdk::prelude::*;

/// Evaluates a captured condition: a field to which the host has added the values that the condition reads. The
/// condition can also read the members of `locals` by name.
pub(crate) fn holds(field: &Json, locals: Json) -> Result<bool> {
    let captured = Captured::parse(field);
    let condition = Condition::compile(captured.raw()).map_err(|errors| refuse(errors.first()))?;
    let held = condition.evaluate(&captured.with_locals(locals));
    held.map_err(|error| Failure::new(if error.is_missing { "missing_value" } else { "condition_error" }, error))
}

fn refuse(error: Option<&ExprError>) -> Failure {
    Failure::invalid_input(error.map_or_else(|| "this is not a condition".to_owned(), ToString::to_string))
}
