//! Converts errors of the library `rmcp` and of the transports to failures.

use std::{error::Error, fmt};

use flowcell_contract::{Failure, Json, code as codes};
use hyper::StatusCode;
use rmcp::{
    ServiceError,
    model::{ErrorCode, ErrorData, RequestId},
    service::ClientInitializeError,
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};

use super::{setting::readable, watch::ConnectionState};
use crate::{code, redaction::Redaction};

/// The error type of a transport: it carries a failure through the library unchanged.
#[derive(Debug)]
pub(super) struct CarriedFailure(pub(super) Failure);

impl fmt::Display for CarriedFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Error for CarriedFailure {}

/// Maps the failure of an HTTP exchange to the codes of this module.
pub(super) fn from_exchange(failure: Failure) -> Failure {
    let class = match (failure.code.as_str(), failure.retryable) {
        (code::CONNECT | code::TLS | code::TIMEOUT, _) => code::MCP_CONNECT,
        (code::PROTOCOL, true) => code::MCP_BROKEN,
        (code::PROTOCOL, false) => code::MCP_PROTOCOL,
        _ => return failure,
    };
    Failure { code: class.into(), ..failure }
}

/// Returns the failure for an unsuccessful status.
pub(super) fn from_status(status: StatusCode) -> Failure {
    let message = format!("the server answered with the status {}", status.as_u16());
    match status.as_u16() {
        408 | 429 | 500.. => Failure::retryable(code::MCP_UNAVAILABLE, message),
        _ => Failure::new(code::MCP_PROTOCOL, message),
    }
}

/// Returns the failure of a request without a result: the one that `state` stores for this id, else one made from the
/// error.
pub(super) async fn from_request(
    error: ServiceError,
    id: Option<&RequestId>,
    state: &ConnectionState,
    redaction: &Redaction,
) -> Failure {
    if let Some(failure) = id.and_then(|id| state.failure(id)) {
        return failure;
    }
    match error {
        ServiceError::McpError(error) => from_answer(&error, redaction).await,
        ServiceError::TransportSend(error) => from_transport(&error, state),
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => closed(state),
        _ => nonsense(),
    }
}

/// Returns the failure for an answer that does not belong to the kind of its request.
pub(super) fn nonsense() -> Failure {
    Failure::new(code::MCP_PROTOCOL, "the answer has another kind than the request")
}

/// Returns the failure for a connection that could not be opened. No tool was called.
pub(super) async fn from_start(
    error: &ClientInitializeError,
    state: &ConnectionState,
    redaction: &Redaction,
) -> Failure {
    let mut error = error;
    while let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        error = fallback;
    }
    match error {
        ClientInitializeError::JsonRpcError(error) => from_answer(error, redaction).await,
        ClientInitializeError::TransportError { error, .. } => from_transport(error, state),
        ClientInitializeError::ConnectionClosed(_) => closed(state),
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            Failure::new(code::MCP_PROTOCOL, "the host supports no version of the protocol that the server speaks")
        }
        _ => nonsense(),
    }
}

/// Converts a failure that occurred before the connection was open. Its code becomes `mcp_connect`, and
/// `details.code` has the original code. `denied` and `mcp_auth` stay.
pub(super) fn not_connected(failure: Failure) -> Failure {
    if matches!(failure.code.as_str(), codes::DENIED | code::MCP_AUTH | code::MCP_CONNECT) {
        return failure;
    }
    let details = Json::object([("code", Json::from(failure.code))]);
    Failure { code: code::MCP_CONNECT.into(), details: Some(details), ..failure }
}

async fn from_answer(error: &ErrorData, redaction: &Redaction) -> Failure {
    let message = format!("the server refused: {}", readable(redaction, &error.message).await);
    let class = if error.code == ErrorCode::INVALID_PARAMS { codes::INVALID_INPUT } else { code::MCP_ERROR };
    let details = Json::object([("mcpCode", Json::from(i64::from(error.code.0)))]);
    Failure { details: Some(details), ..Failure::new(class, message) }
}

fn from_transport(error: &DynamicTransportError, state: &ConnectionState) -> Failure {
    let mut source: Option<&(dyn Error + 'static)> = Some(&*error.error);
    while let Some(error) = source {
        if let Some(StreamableHttpError::Client(CarriedFailure(failure))) =
            error.downcast_ref::<StreamableHttpError<CarriedFailure>>()
        {
            return failure.clone();
        }
        if let Some(CarriedFailure(failure)) = error.downcast_ref::<CarriedFailure>() {
            return failure.clone();
        }
        source = error.source();
    }
    closed(state)
}

fn closed(state: &ConnectionState) -> Failure {
    let unknown = || Failure::retryable(code::MCP_BROKEN, "the connection to the server ended");
    state.end_reason().cloned().unwrap_or_else(unknown)
}
