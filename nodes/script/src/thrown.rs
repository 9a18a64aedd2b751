//! Errors that scripts can catch.

use boa_engine::{JsError, JsNativeError};

/// Creates a JavaScript `TypeError` with this message.
pub(crate) fn error(message: impl Into<String>) -> JsError {
    JsNativeError::typ().with_message(message.into()).into()
}
