//! The parts of answers about a run that need the scope `run:read`, on routes that need another scope.

use flowcell_contract::code;

use super::{
    api_error::ApiError,
    identity::{Caller, Scope},
};

/// The codes of errors whose messages or details tell of the input or the tasks of a run.
const TELLING: [&str; 3] = [code::INVALID_INPUT, code::SCHEMA_TOO_COSTLY, "migration_refused"];

/// Returns the scope that a caller needs to see more of a run than its id and its status, or `None` if it has the scope.
pub(crate) fn missing_scope(caller: &Caller) -> Option<Scope> {
    (!caller.scopes.has(Scope::RunRead)).then_some(Scope::RunRead)
}

/// Returns 403 if a caller may not see more of a run than its id and its status.
pub(crate) fn require_read(caller: &Caller) -> Result<(), ApiError> {
    missing_scope(caller).map_or(Ok(()), |scope| Err(ApiError::forbidden(scope)))
}

/// Returns the error that a caller may see. Without the scope, an error about the content of a run says no more than that
/// the run does not fit.
pub(crate) fn error_for(caller: &Caller, error: ApiError) -> ApiError {
    match missing_scope(caller) {
        Some(scope) if TELLING.contains(&error.code()) => {
            let (status, code, _) = error.into_parts();
            let why =
                format!("the run does not fit this version of its flow; a token with the scope `{scope}` sees why");
            ApiError::new(status, code, why)
        }
        _ => error,
    }
}
