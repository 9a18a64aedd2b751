//! The failure `file_failed` of disk operations.

use std::io;

use flowcell_contract::Failure;

use crate::code;

/// Returns the failure of a disk operation. It does not reveal the operator's own paths.
pub(super) fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::retryable(code::FILE_FAILED, format!("{what}: {}", error.kind()))
}
