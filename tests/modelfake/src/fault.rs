//! Errors in the form of each provider, and faulty bodies.

use std::io::Write as _;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use crate::Dialect;

/// An error answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorReply {
    pub(crate) status: u16,
    pub(crate) kind: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) message: String,
}

impl ErrorReply {
    /// Creates the error answer to a bad request, with status 400.
    pub(crate) fn invalid(message: impl Into<String>) -> ErrorReply {
        ErrorReply { status: 400, kind: None, code: None, message: message.into() }
    }

    /// Returns the body of the error in the form of this dialect's provider.
    pub(crate) fn body(&self, dialect: Dialect) -> Value {
        match dialect {
            Dialect::Messages => {
                let kind = self.kind.as_deref().unwrap_or_else(|| anthropic_type(self.status));
                let mut error = json!({ "type": kind, "message": self.message });
                if let Some(code) = &self.code {
                    error["details"] = json!({ "error_code": code });
                }
                json!({ "type": "error", "error": error, "request_id": "req_fake" })
            }
            Dialect::Chat | Dialect::Responses => {
                let kind = self.kind.as_deref().unwrap_or_else(|| openai_type(self.status));
                json!({ "error": { "message": self.message, "type": kind, "param": null, "code": self.code } })
            }
        }
    }
}

fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

fn openai_type(status: u16) -> &'static str {
    match status {
        429 => "requests",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// Returns an error event for the middle of a stream.
pub(crate) fn event(dialect: Dialect, kind: &str) -> String {
    match dialect {
        Dialect::Messages => {
            let data = json!({ "type": "error", "error": { "type": kind, "message": "in the middle" } });
            format!("event: error\ndata: {data}\n\n")
        }
        Dialect::Chat => {
            format!("data: {}\n\n", json!({ "error": { "message": "in the middle", "type": kind, "code": null } }))
        }
        Dialect::Responses => {
            let data = json!({ "type": "error", "code": kind, "message": "in the middle", "param": null, "sequence_number": 9 });
            format!("event: error\ndata: {data}\n\n")
        }
    }
}

/// Returns a gzip stream that unpacks to `size` zero bytes.
pub(crate) fn bomb(size: usize) -> Bytes {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    let zeros = vec![0; size.min(1 << 20)];
    let mut left = size;
    while left > 0 {
        let piece = left.min(zeros.len());
        // Writing to memory cannot fail.
        if packed.write_all(&zeros[..piece]).is_err() {
            break;
        }
        left -= piece;
    }
    packed.finish().unwrap_or_default().into()
}
