//! The failure codes of this crate. The contract defines further codes.

/// No connection was made: the name is unknown, the peer refused, or it closed early. Certainly nothing was sent.
/// Retryable.
pub const CONNECT: &str = "http_connect";
/// The time limit expired. Retryable.
pub const TIMEOUT: &str = "http_timeout";
/// The body of the request, or of the answer, is larger than its limit.
pub const BODY_TOO_LARGE: &str = "http_body_too_large";
/// The peer could not prove its identity, or no common protocol was found. Certainly nothing was sent.
pub const TLS: &str = "http_tls";
/// The answer is not HTTP, or broke off. Only the second case is retryable.
pub const PROTOCOL: &str = "http_protocol";
/// The circuit breaker of the origin is open, because the origin fails. Certainly nothing was sent. Retryable.
pub const CIRCUIT_OPEN: &str = "circuit_open";
/// The connection broke while the body of an answer became a file.
pub const STREAM_INTERRUPTED: &str = "stream_interrupted";
/// The request would wait for too long under the operator's limits for one origin. Certainly nothing was sent. Retryable.
pub const RATE_LIMITED: &str = "rate_limited";

/// The API key is missing, or the provider rejected it.
pub const MODEL_AUTH: &str = "model_auth";
/// The API key does not permit this model or this function.
pub const MODEL_PERMISSION: &str = "model_permission";
/// The provider rejected the request as invalid.
pub const MODEL_INVALID_REQUEST: &str = "model_invalid_request";
/// The provider has no such model, or no endpoint at its address.
pub const MODEL_NOT_FOUND: &str = "model_not_found";
/// The request is larger than the provider permits.
pub const MODEL_TOO_LARGE: &str = "model_too_large";
/// The messages exceed the context of the model.
pub const MODEL_CONTEXT_EXCEEDED: &str = "model_context_exceeded";
/// Too many requests or tokens in a short time. Retryable.
pub const MODEL_RATE_LIMITED: &str = "model_rate_limited";
/// The paid quota is used up.
pub const MODEL_QUOTA: &str = "model_quota";
/// The provider cannot answer now. Retryable.
pub const MODEL_OVERLOADED: &str = "model_overloaded";
/// The turn took too long, or the stream was silent for too long. Retryable.
pub const MODEL_TIMEOUT: &str = "model_timeout";
/// No connection was made, or it broke before an answer. Retryable, unless the provider could not prove its identity.
pub const MODEL_CONNECT: &str = "model_connect";
/// The answer broke off. Retryable.
pub const MODEL_STREAM_TRUNCATED: &str = "model_stream_truncated";
/// The answer violates the provider's interface.
pub const MODEL_BAD_RESPONSE: &str = "model_bad_response";

/// The tool server could not be started, reached or understood. Certainly no tool was called.
pub const MCP_CONNECT: &str = "mcp_connect";
/// A key of a server is missing, or the server rejected it. Certainly no tool was called.
pub const MCP_AUTH: &str = "mcp_auth";
/// The server did not answer in time. Retryable.
pub const MCP_TIMEOUT: &str = "mcp_timeout";
/// The server, or the connection to it, ended during the call. Retryable.
pub const MCP_BROKEN: &str = "mcp_broken";
/// The server cannot answer now. Retryable.
pub const MCP_UNAVAILABLE: &str = "mcp_unavailable";
/// The answer violates the protocol.
pub const MCP_PROTOCOL: &str = "mcp_protocol";
/// The answer is larger than its limit.
pub const MCP_TOO_LARGE: &str = "mcp_too_large";
/// The server refused the call with a protocol error.
pub const MCP_ERROR: &str = "mcp_error";
/// The tool ran and reports a failure.
pub const TOOL_FAILED: &str = "tool_failed";

/// Content that should be text is not UTF-8.
pub const NOT_TEXT: &str = "not_text";
/// A file is larger than its limit.
pub const FILE_TOO_LARGE: &str = "file_too_large";
/// The folder to remove is not empty.
pub const NOT_EMPTY: &str = "not_empty";
/// The tenant has too many files, or too many bytes in them.
pub const QUOTA_EXCEEDED: &str = "quota_exceeded";
/// A disk operation failed. Retryable.
pub const FILE_FAILED: &str = "file_failed";

/// The registry denies the operation, with or without credentials.
pub const REGISTRY_DENIED: &str = "registry_denied";
/// The registry does not have the requested item.
pub const REGISTRY_NOT_FOUND: &str = "registry_not_found";
/// A registry, or another server that packs are downloaded from, sent an unexpected answer.
pub const REGISTRY_REFUSED: &str = "registry_refused";
/// The digest of the received content differs from the announced digest.
pub const PACK_CHANGED: &str = "pack_changed";

/// The token endpoint of a credential refused to give a token, or did not answer. Retryable in the second case.
pub const CREDENTIAL_REFRESH_FAILED: &str = "credential_refresh_failed";
