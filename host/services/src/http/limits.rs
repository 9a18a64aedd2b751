//! The limits of the capability `http`.

use std::time::Duration;

use flowcell_contract::Failure;

use crate::code;

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

/// A limit on the bytes of a body.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyLimit {
    /// A body that is sent from memory: a text, or a file that is signed.
    InMemory(u64),
    /// A file that is sent.
    File(u64),
    /// An answer that the host unpacks, or searches for secrets.
    Searched(u64),
    /// An answer that may become a file.
    Answer(u64),
    /// An answer that is read in chunks.
    Stream(u64),
}

impl BodyLimit {
    /// Returns the limit in bytes.
    pub(super) fn bytes(self) -> u64 {
        match self {
            BodyLimit::InMemory(bytes)
            | BodyLimit::File(bytes)
            | BodyLimit::Searched(bytes)
            | BodyLimit::Answer(bytes)
            | BodyLimit::Stream(bytes) => bytes,
        }
    }

    /// Returns the failure for a larger body. It names the limit, and the option of the operator that raises it.
    pub(super) fn exceeded(self) -> Failure {
        let (body, of, advice) = match self {
            BodyLimit::InMemory(_) => ("request", "a body that the host has in memory", "send less, or a file value"),
            BodyLimit::File(_) => ("request", "a file", "the operator raises it with `--max-http-file MIB`"),
            BodyLimit::Searched(_) => (
                "answer",
                "an answer that is packed, or that is searched for secrets, which no option raises",
                "ask for less",
            ),
            BodyLimit::Answer(_) => {
                ("answer", "an answer", "ask for less, or the operator raises it with `--max-http-file MIB`")
            }
            BodyLimit::Stream(_) => (
                "answer",
                "an answer in chunks, which no option raises",
                "ask for less, or get the answer as a file, whose limit `--max-http-file MIB` raises",
            ),
        };
        let bytes = self.bytes();
        let shown = match bytes % (1 << 20) {
            0 if bytes > 0 => format!("{bytes} bytes ({} MiB)", bytes >> 20),
            _ => format!("{bytes} bytes"),
        };
        let message = format!("the body of the {body} is larger than {shown}, the limit of {of}: {advice}");
        Failure::new(code::BODY_TOO_LARGE, message)
    }
}
