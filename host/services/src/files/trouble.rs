//! What the disk says.

use std::io;

use flowcell_contract::Failure;

use crate::code;

/// The failure of something on the disk. The operator's own paths are not told.
pub(super) fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::retryable(code::FILE_FAILED, format!("{what}: {}", error.kind()))
}
