//! The failure codes of this crate, beside those of the contract.

/// No connection could be made: no such name, nobody listens, the peer hung up. Certainly nothing was sent. Retryable.
pub const CONNECT: &str = "http_connect";
/// The time was up. Retryable.
pub const TIMEOUT: &str = "http_timeout";
/// The body of the request, or of the answer, is larger than its limit.
pub const BODY_TOO_LARGE: &str = "http_body_too_large";
/// The peer could not prove who it is, or no common protocol was found. Certainly nothing was sent.
pub const TLS: &str = "http_tls";
/// What came back is not HTTP, or broke off; only in the second case retryable.
pub const PROTOCOL: &str = "http_protocol";

/// The provider did not accept the key, or there is none.
pub const MODEL_AUTH: &str = "model_auth";
/// The key may not use this model or this function.
pub const MODEL_PERMISSION: &str = "model_permission";
/// The provider did not understand the request.
pub const MODEL_INVALID_REQUEST: &str = "model_invalid_request";
/// The provider has no such model, or nothing is at its address.
pub const MODEL_NOT_FOUND: &str = "model_not_found";
/// The request is larger than the provider takes.
pub const MODEL_TOO_LARGE: &str = "model_too_large";
/// The messages are longer than the model can read.
pub const MODEL_CONTEXT_EXCEEDED: &str = "model_context_exceeded";
/// Too many requests or tokens in a short time. Retryable.
pub const MODEL_RATE_LIMITED: &str = "model_rate_limited";
/// What was paid for is used up.
pub const MODEL_QUOTA: &str = "model_quota";
/// The provider cannot answer now. Retryable.
pub const MODEL_OVERLOADED: &str = "model_overloaded";
/// The turn took too long, or nothing came for too long. Retryable.
pub const MODEL_TIMEOUT: &str = "model_timeout";
/// No connection could be made, or it broke before an answer. Retryable, unless the provider could not prove who it is.
pub const MODEL_CONNECT: &str = "model_connect";
/// The answer broke off. Retryable.
pub const MODEL_STREAM_TRUNCATED: &str = "model_stream_truncated";
/// What came back is not what the provider's interface says.
pub const MODEL_BAD_RESPONSE: &str = "model_bad_response";

/// There is no connection to a server of tools: it could not be started, reached or understood. Certainly nothing was called.
pub const MCP_CONNECT: &str = "mcp_connect";
/// A key of a server is missing, or the server did not accept it. Certainly nothing was called.
pub const MCP_AUTH: &str = "mcp_auth";
/// The server did not answer in time. Retryable.
pub const MCP_TIMEOUT: &str = "mcp_timeout";
/// The server, or the connection to it, ended in the middle. Retryable.
pub const MCP_BROKEN: &str = "mcp_broken";
/// The server cannot answer now. Retryable.
pub const MCP_UNAVAILABLE: &str = "mcp_unavailable";
/// What came back is not what the protocol says.
pub const MCP_PROTOCOL: &str = "mcp_protocol";
/// What came back is larger than its limit.
pub const MCP_TOO_LARGE: &str = "mcp_too_large";
/// The server refused the call with an error of the protocol's.
pub const MCP_ERROR: &str = "mcp_error";
/// The tool ran, and says that it failed.
pub const TOOL_FAILED: &str = "tool_failed";

/// What is read as text is not UTF-8.
pub const NOT_TEXT: &str = "not_text";
/// A file is larger than its limit.
pub const FILE_TOO_LARGE: &str = "file_too_large";
/// A folder that is to be removed is not empty.
pub const NOT_EMPTY: &str = "not_empty";
/// The tenant has too many files, or too large ones.
pub const QUOTA_EXCEEDED: &str = "quota_exceeded";
/// The disk could not do it. Retryable.
pub const FILE_FAILED: &str = "file_failed";

/// A registry does not let whoever asks do it, with or without credentials.
pub const REGISTRY_DENIED: &str = "registry_denied";
/// A registry does not have it.
pub const REGISTRY_NOT_FOUND: &str = "registry_not_found";
/// A registry, or another server, answers with something else than was asked for.
pub const REGISTRY_REFUSED: &str = "registry_refused";
/// What came is not what was said to come.
pub const PACK_CHANGED: &str = "pack_changed";
