//! The format of all answers: `{ "success", "data", "error" }`.

use std::fmt::Display;

use axum::{
    Json as Body,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::http::api_error::ErrorSummary;
use flowcell_platform::{library::LibraryError, library::service::FlowError};

/// An answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct Envelope {
    success: bool,
    /// The result of a successful request.
    #[schema(value_type = Option<Object>)]
    data: Option<Value>,
    /// The error of a failed request.
    error: Option<EnvelopeError>,
}

/// The error of a failed request.
#[derive(Serialize, ToSchema)]
pub(crate) struct EnvelopeError {
    /// `BAD_REQUEST`, `NOT_FOUND`, `CREATE_FLOW_FAILED`, `RUN_FLOW_FAILED` or `INTERNAL_ERROR`.
    code: &'static str,
    message: String,
}

/// An answer that reports an error.
pub(crate) struct ErrorResponse {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ErrorResponse {
    pub(super) fn new(status: StatusCode, code: &'static str, message: String) -> ErrorResponse {
        ErrorResponse { status, code, message }
    }

    /// Returns a 500 answer. The error goes to the log and is not shown to the caller.
    pub(super) fn internal(error: &dyn Display) -> ErrorResponse {
        tracing::error!(%error, "a request to the steps API failed");
        ErrorResponse::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "INTERNAL_ERROR",
            "the host failed; its log has the reason".to_owned(),
        )
    }
}

/// Converts an error of a shared layer to the format of `/api`. Such errors come from the token check, the guard and
/// unknown routes. Any other response is returned unchanged.
pub(crate) fn enveloped(answer: Response) -> Response {
    let Some(ErrorSummary { code, message }) = answer.extensions().get().cloned() else { return answer };
    let body = json!({ "success": false, "data": null, "error": { "code": code.to_uppercase(), "message": message } });
    let (mut parts, _) = answer.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, body.to_string().into())
}

/// Converts an error of the flow service: a missing flow is 404, a refused link 409, and all others are errors of the
/// host.
pub(super) fn error_response(error: FlowError) -> ErrorResponse {
    match error {
        FlowError::Library(LibraryError::Unknown(_) | LibraryError::BadName(_)) => {
            ErrorResponse::new(StatusCode::NOT_FOUND, "NOT_FOUND", error.to_string())
        }
        FlowError::Library(LibraryError::Link(_)) => {
            ErrorResponse::new(StatusCode::CONFLICT, "LINK_REFUSED", error.to_string())
        }
        error => ErrorResponse::internal(&error),
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let error = EnvelopeError { code: self.code, message: self.message };
        (self.status, Body(Envelope { success: false, data: None, error: Some(error) })).into_response()
    }
}

/// Returns a successful answer whose `data` is an object with one member.
pub(super) fn success(status: StatusCode, member: &str, value: &impl Serialize) -> Response {
    match serde_json::to_value(value) {
        Ok(value) => {
            let data = Some(json!({ member: value }));
            (status, Body(Envelope { success: true, data, error: None })).into_response()
        }
        Err(error) => ErrorResponse::internal(&error).into_response(),
    }
}
