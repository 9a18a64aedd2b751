//! The file that a request is about, and its errors.

use lsp_server::ErrorCode;
use serde_json::Value;

/// An open file.
pub(super) struct OpenFile {
    pub(super) text: String,
    pub(super) version: Value,
}

/// An error of a request.
pub(super) struct RequestError {
    pub(super) code: ErrorCode,
    pub(super) message: String,
}

impl RequestError {
    pub(super) fn parameters(message: impl Into<String>) -> RequestError {
        RequestError { code: ErrorCode::InvalidParams, message: message.into() }
    }

    pub(super) fn failed(message: impl Into<String>) -> RequestError {
        RequestError { code: ErrorCode::RequestFailed, message: message.into() }
    }
}
