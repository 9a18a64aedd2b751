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
