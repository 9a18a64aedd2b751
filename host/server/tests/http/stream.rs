//! A client for a live stream of events.

use std::{
    io::{BufRead, BufReader},
    net::TcpStream,
};

use serde_json::Value;

use crate::client::{Served, connect, head, send};

/// An open event stream.
pub(crate) struct Stream(BufReader<TcpStream>);

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
        Stream(stream)
    }

    /// Creates a stream whose answer has begun.
    pub(crate) fn over(stream: BufReader<TcpStream>) -> Stream {
        Stream(stream)
    }

    /// Returns the next line of the body. Each chunk consists of whole lines.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        Some(line.trim_end().to_owned()).filter(|_| !line.is_empty())
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
                // This is the size of a chunk, or a heartbeat. The last chunk has the size 0.
                _ if line == "0" => return None,
                _ => {}
            }
        }
    }
}
