//! A client for a live stream of events.

use std::{io::BufReader, net::TcpStream};

use serde_json::Value;

use crate::client::{Served, chunk, connect, head, send};

/// An open event stream.
pub(crate) struct Stream {
    stream: BufReader<TcpStream>,
    /// Bytes of the last chunk that do not form a whole character yet.
    bytes: Vec<u8>,
    /// Text of the body that is not returned yet.
    read: String,
}

/// One event of a stream.
#[derive(Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) id: Option<u64>,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Stream {
    pub(crate) fn open(served: &Served, path: &str, headers: &[(&str, &str)]) -> Stream {
        let stream = connect(served.address);
        send(&stream, served.address, "GET", path, headers, "");
        let mut stream = BufReader::new(stream);
        let answer = head(&mut stream);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")), "{answer:?}");
        Stream::over(stream)
    }

    /// Creates a stream whose answer has begun.
    pub(crate) fn over(stream: BufReader<TcpStream>) -> Stream {
        Stream { stream, bytes: Vec::new(), read: String::new() }
    }

    /// Returns the next line of the body, which may lie in several chunks. Returns `None` at the end.
    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.find('\n') {
                let line: String = self.read.drain(..=end).collect();
                return Some(line.trim_end().to_owned());
            }
            self.bytes.extend(chunk(&mut self.stream)?);
            // A chunk may end within a character.
            let valid = match std::str::from_utf8(&self.bytes) {
                Ok(text) => text.len(),
                Err(error) => error.valid_up_to(),
            };
            self.read += &String::from_utf8(self.bytes.drain(..valid).collect()).unwrap();
        }
    }

    /// Returns the next event, or `None` if the stream has ended.
    pub(crate) fn next(&mut self) -> Option<Sent> {
        let (mut id, mut kind, mut data) = (None, String::new(), None);
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("id", value)) => id = Some(value.parse().unwrap()),
                Some(("event", value)) => kind = value.to_owned(),
                Some(("data", value)) => data = Some(serde_json::from_str(value).unwrap()),
                _ if line.is_empty() => {
                    if let Some(data) = data.take() {
                        return Some(Sent { id, kind, data });
                    }
                }
                // A heartbeat.
                _ => {}
            }
        }
    }
}
