//! Server-sent events, as the HTML standard parses them.

use std::collections::VecDeque;

use crate::failure::{Failure, Result};

/// Maximum size in bytes of a line, and of the data of an event.
const MAX_BYTES: usize = 8 << 20;

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The type of the event, `message` if it names none.
    pub name: String,
    /// The data. Several lines are joined by `\n`.
    pub data: String,
    /// The last id that the stream has named so far; empty without one. A new request sends it as `Last-Event-ID`.
    pub id: String,
    /// The last time that the stream has named so far, in milliseconds: how long to wait before a new request.
    pub retry_ms: Option<u64>,
}

/// Parses the events of one answer.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// Events that are complete and were not read.
    pub(super) ready: VecDeque<Event>,
    line: Vec<u8>,
    /// The last id and time of the stream, and the type and data of the next event.
    next: Event,
    has_data: bool,
    /// True if the last byte was `\r`: a following `\n` belongs to the same line end.
    after_return: bool,
    is_begun: bool,
}

impl Parser {
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        if self.after_return && !bytes.is_empty() {
            self.after_return = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&bytes[..end])?;
            let is_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if is_return {
                self.after_return = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            let event = self.end_line()?;
            self.ready.extend(event);
        }
        self.extend(bytes)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<()> {
        check_size(self.line.len() + bytes.len())?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes in a line. Returns the event that an empty line ends.
    fn end_line(&mut self) -> Result<Option<Event>> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.is_begun, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        let line = String::from_utf8_lossy(&line);
        if line.is_empty() {
            let Event { name, data, id, retry_ms } = &mut self.next;
            let (name, data) = (std::mem::take(name), std::mem::take(data));
            let name = if name.is_empty() { "message".to_owned() } else { name };
            let event = Event { name, data, id: id.clone(), retry_ms: *retry_ms };
            return Ok(std::mem::take(&mut self.has_data).then_some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.next.name),
            "data" => {
                check_size(self.next.data.len() + value.len() + 1)?;
                if std::mem::replace(&mut self.has_data, true) {
                    self.next.data.push('\n');
                }
                self.next.data.push_str(value);
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.next.id),
            "retry" if !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_digit()) => {
                self.next.retry_ms = Some(value.parse().unwrap_or(u64::MAX));
            }
            _ => {}
        }
        Ok(None)
    }
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(Failure::new("limit_exceeded", format!("a line or an event of the stream has more than {MAX_BYTES} bytes")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn parse<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
        let mut parser = Parser::default();
        chunks.into_iter().for_each(|chunk| parser.feed(chunk).unwrap());
        parser.ready.into()
    }

    /// The name, data, id and time of an event.
    type Expected<'a> = (&'a str, &'a str, &'a str, Option<u64>);

    #[test]
    fn events_are_parsed_as_the_standard_says() {
        let table: [(&str, &[Expected<'_>]); 16] = [
            ("data: a\n\n", &[("message", "a", "", None)]),
            ("data:a\ndata:  b\ndata\n\n", &[("message", "a\n b\n", "", None)]),
            ("event: x\ndata: a\n\ndata: b\n\n", &[("x", "a", "", None), ("message", "b", "", None)]),
            (": comment\n:\n\ndata: a\n\n", &[("message", "a", "", None)]),
            ("event: x\n\ndata: a\n\n", &[("message", "a", "", None)]),
            ("id: 1\n\ndata: a\n\n", &[("message", "a", "1", None)]),
            (
                "id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
                &[("message", "a", "1", None), ("message", "b", "1", None), ("message", "c", "", None)],
            ),
            ("id: 1\0\ndata: a\n\n", &[("message", "a", "", None)]),
            (
                "retry: 50\n\ndata: a\n\nretry: 5s\nretry:\nretry: +7\ndata: b\n\n",
                &[("message", "a", "", Some(50)), ("message", "b", "", Some(50))],
            ),
            ("retry: 99999999999999999999\ndata: a\n\n", &[("message", "a", "", Some(u64::MAX))]),
            ("data\n\n", &[("message", "", "", None)]),
            ("Data: a\n data: b\ndata : c\n\n", &[]),
            ("data: a\n", &[]),
            ("data: a", &[]),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", &[("message", "a", "", None)]),
            ("data: grüße 🦀: x\n\n", &[("message", "grüße 🦀: x", "", None)]),
        ];
        for (text, expected) in table {
            for text in [text.to_owned(), text.replace('\n', "\r\n"), text.replace('\n', "\r")] {
                let expected: Vec<_> = expected
                    .iter()
                    .map(|(name, data, id, retry_ms)| Event {
                        name: (*name).into(),
                        data: (*data).into(),
                        id: (*id).into(),
                        retry_ms: *retry_ms,
                    })
                    .collect();
                assert_eq!(parse([text.as_bytes()]), expected, "{text:?}");
                assert_eq!(parse(text.as_bytes().chunks(1)), expected, "{text:?}, byte by byte");
                for cut in 0..=text.len() {
                    let (before, after) = text.as_bytes().split_at(cut);
                    assert_eq!(parse([before, b"", after]), expected, "{text:?}, cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        assert_eq!(parse([b"data: a\xffb\n\n".as_slice()])[0].data, "a\u{fffd}b");
    }

    #[test]
    fn lines_and_events_are_bounded() {
        let part = vec![b'x'; 1 << 20];
        let mut parser = Parser::default();
        let failed = (0..9).find_map(|_| parser.feed(&part).err()).unwrap();
        assert_eq!(failed.code, "limit_exceeded");
        let line = [b"data:".as_slice(), &part, b"\n"].concat();
        let mut parser = Parser::default();
        let failed = (0..9).find_map(|_| parser.feed(&line).err()).unwrap();
        assert_eq!(failed.code, "limit_exceeded");
    }
}
