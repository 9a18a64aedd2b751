//! The frames of messages: headers with a length, and a body of JSON.

use std::io::{self, BufRead, Read};

use lsp_server::Message;
use serde_json::json;

/// Maximum size of a message in bytes. A flow of 4 MiB fits, also if each of its signs is escaped.
pub(super) const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;
/// Maximum size in bytes of the headers of a message.
const MAX_HEADER_BYTES: u64 = 8 * 1024;

/// A message that was read.
pub(super) enum Frame {
    Message(Message),
    /// The body is no message, for this reason. Other messages may follow.
    Unreadable(String),
}

/// Reads a message; `None` at the end of the stream. After an error the stream cannot be read any further.
pub(super) fn read_frame(input: &mut impl BufRead) -> io::Result<Option<Frame>> {
    let Some(length) = read_length(input)? else { return Ok(None) };
    if length > MAX_MESSAGE_BYTES {
        io::copy(&mut input.take(length as u64), &mut io::sink())?;
        let why = format!("the message has {length} bytes; the maximum is {MAX_MESSAGE_BYTES}");
        return Ok(Some(Frame::Unreadable(why)));
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Some(match serde_json::from_slice(&body) {
        Ok(message) => Frame::Message(message),
        Err(error) => Frame::Unreadable(format!("the body is not a JSON-RPC message: {error}")),
    }))
}

/// Reads the headers, and returns the length of the body.
fn read_length(input: &mut impl BufRead) -> io::Result<Option<usize>> {
    let wrong = |message: &str| io::Error::new(io::ErrorKind::InvalidData, message.to_owned());
    let mut headers = input.take(MAX_HEADER_BYTES);
    let mut length = None;
    for number in 0.. {
        let mut line = Vec::new();
        if headers.read_until(b'\n', &mut line)? == 0 {
            return match (number, headers.limit()) {
                (0, _) => Ok(None),
                (_, 0) => Err(wrong("the headers are larger than 8 KiB")),
                _ => Err(wrong("the stream ends inside of headers")),
            };
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| wrong("a header has no `:`"))?;
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse().map_err(|_| wrong("`Content-Length` is not a number"))?);
        }
    }
    length.map(Some).ok_or_else(|| wrong("the header `Content-Length` is missing"))
}

/// Returns the frame of a reply to something that is no message.
pub(super) fn refusal(why: &str) -> Vec<u8> {
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32700, "message": why } }).to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn messages_are_read_and_broken_bodies_are_skipped() {
        let text = "Content-Length: 34\r\nContent-Type: x\r\n\r\n{\"jsonrpc\":\"2.0\",\"method\":\"a\"}    \
                    content-length: 2\r\n\r\n{}Content-Length: 3\r\n\r\n\u{20ac}";
        let mut input = text.as_bytes();
        assert!(matches!(read_frame(&mut input).unwrap(), Some(Frame::Message(Message::Notification(_)))));
        for _ in 0..2 {
            assert!(matches!(read_frame(&mut input).unwrap(), Some(Frame::Unreadable(_))));
        }
        assert!(read_frame(&mut input).unwrap().is_none());
    }

    #[test]
    fn broken_frames_are_errors_and_take_no_memory() {
        for text in [
            "x\r\n\r\n",
            "Content-Length: -1\r\n\r\n",
            "A: b\r\n\r\n",
            "Content-Length: 9\r\n\r\n{}",
            "A: b",
            "Content-Length: 99999999999999999999\r\n\r\n",
        ] {
            assert!(read_frame(&mut text.as_bytes()).is_err(), "{text}");
        }
        let endless = format!("A: {}", "b".repeat(10_000));
        assert!(read_frame(&mut endless.as_bytes()).is_err());
        let huge = "Content-Length: 4000000000\r\n\r\n{}";
        assert!(matches!(read_frame(&mut huge.as_bytes()).unwrap(), Some(Frame::Unreadable(_))));
    }
}
