//! What scripts can catch.

use boa_engine::{JsError, JsNativeError};

/// A `TypeError` of JavaScript, thrown where the script has called.
pub(crate) fn error(message: impl Into<String>) -> JsError {
    JsNativeError::typ().with_message(message.into()).into()
}
