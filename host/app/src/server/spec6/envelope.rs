//! The one shape of answers: `{ "success", "data", "error" }`.

use std::fmt::Display;

use axum::{
    Json as Body,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::json;

use crate::{flows::FlowError, library::LibraryError};

/// An answer that says why there is no other.
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, message: String) -> Refusal {
        Refusal { status, code, message }
    }

    /// It is not the caller's fault. The caller is not told what of the host has failed.
    pub(super) fn internal(error: &dyn Display) -> Refusal {
        tracing::error!(%error, "a request for flows failed");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "the host could not do this".to_owned())
    }
}

/// Why a flow is not there, or cannot be used.
pub(super) fn refusal_of(error: FlowError) -> Refusal {
    match error {
        FlowError::Library(LibraryError::Unknown(_) | LibraryError::BadName(_)) => {
            Refusal::new(StatusCode::NOT_FOUND, "NOT_FOUND", error.to_string())
        }
        error => Refusal::internal(&error),
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = json!({ "code": self.code, "message": self.message });
        (self.status, Body(json!({ "success": false, "data": null, "error": error }))).into_response()
    }
}

/// An answer with one member of data.
pub(super) fn success(status: StatusCode, member: &str, value: &impl Serialize) -> Response {
    match serde_json::to_value(value) {
        Ok(value) => {
            (status, Body(json!({ "success": true, "data": { member: value }, "error": null }))).into_response()
        }
        Err(error) => Refusal::internal(&error).into_response(),
    }
}
