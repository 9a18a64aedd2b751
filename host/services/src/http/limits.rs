//! The limits of the capability `http`.

use std::time::Duration;

/// The limits of one call. [The module's page](super) lists the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of a file that is the body of a request, and of the body of an answer that becomes a file.
    pub file_body: u64,
    /// Maximum headers of a request.
    pub headers: usize,
    /// Maximum bytes of a request's header names and values.
    pub header_bytes: usize,
    /// Maximum bytes of a request's body.
    pub request_body: usize,
    /// Maximum bytes of an answer's body, as received.
    pub answer_body: usize,
    /// Maximum bytes of an answer's body after decompression.
    pub unpacked_body: usize,
    /// Maximum bytes of a text in a reply. A longer body becomes a file.
    pub text: usize,
    /// Maximum bytes of a text in a reply, measured in its JSON form; a longer one becomes a file. A text within this
    /// limit fits into the output of a node.
    pub escaped_text: usize,
    /// Maximum bytes of a chunk of a stream.
    pub stream_chunk: usize,
    /// Maximum chunks of a stream.
    pub stream_chunks: u32,
    /// Maximum bytes of a stream.
    pub stream_bytes: u64,
    /// Maximum open streams of a tenant in a process.
    pub streams: usize,
    /// The longest time without a byte, of a stream that sets none.
    pub default_idle: Duration,
    /// The longest time without a byte that a stream may set.
    pub max_idle: Duration,
    /// The time limit of a stream that sets none.
    pub default_total: Duration,
    /// The longest time limit of a stream.
    pub max_total: Duration,
    /// The time limit of a call that sets none.
    pub default_timeout: Duration,
    /// The longest time limit of a call.
    pub max_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            file_body: 32 << 20,
            headers: 64,
            header_bytes: 32 * 1024,
            request_body: 32 * 1024 * 1024,
            answer_body: 32 * 1024 * 1024,
            unpacked_body: 32 * 1024 * 1024,
            text: 3 << 20,
            escaped_text: 7 << 19,
            stream_chunk: 64 << 10,
            stream_chunks: 10_000,
            stream_bytes: 64 << 20,
            streams: 64,
            default_idle: Duration::from_secs(60),
            max_idle: Duration::from_secs(600),
            default_total: Duration::from_secs(600),
            max_total: Duration::from_secs(24 * 3600),
            default_timeout: Duration::from_secs(30),
            max_timeout: Duration::from_secs(600),
        }
    }
}
