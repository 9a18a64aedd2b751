//! The numbers of the capability `http`.

use std::time::Duration;

/// How much one call may take. The defaults are those of the table in [the module's page](super).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Headers of a request.
    pub headers: usize,
    /// Bytes of their names and values.
    pub header_bytes: usize,
    /// Bytes of a request's body.
    pub request_body: usize,
    /// Bytes of an answer's body, as they come.
    pub answer_body: usize,
    /// Bytes of an answer's body after it was unpacked.
    pub unpacked_body: usize,
    /// Bytes that a reply holds as a text; what is larger becomes a file.
    pub text: usize,
    /// Bytes that such a text may have as JSON, so that a node can hand it on as its output.
    pub escaped_text: usize,
    /// The time for a call that names none.
    pub default_timeout: Duration,
    /// The longest time for a call.
    pub max_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            headers: 64,
            header_bytes: 32 * 1024,
            request_body: 32 * 1024 * 1024,
            answer_body: 32 * 1024 * 1024,
            unpacked_body: 32 * 1024 * 1024,
            text: 3 << 20,
            escaped_text: 7 << 19,
            default_timeout: Duration::from_secs(30),
            max_timeout: Duration::from_secs(600),
        }
    }
}
