//! Server-sent events, read piece by piece, with limits on all sizes that a peer controls.
//!
//! A piece may end anywhere: inside a character, or between the two bytes of a line end. Lines end with `\n`, `\r\n` or
//! `\r`. Comments and unknown fields are skipped. An event without its final empty line is incomplete, and is
//! dropped.

use std::mem;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One complete event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// The event's name; empty if it has none.
    pub(crate) name: String,
    /// The event's data, with several lines joined.
    pub(crate) data: String,
    /// The id from which a client can resume the stream after this event; `None` if the event has none.
    pub(crate) id: Option<String>,
    /// Milliseconds that a client should wait before it requests the stream again; `None` if the event has none.
    pub(crate) retry: Option<u64>,
}

/// The reason that a stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A line is longer than [`Caps::line`].
    Line,
    /// The data of an event is longer than [`Caps::event`].
    Event,
    /// The stream is longer than [`Caps::stream`].
    Stream,
    /// A line is not UTF-8.
    Encoding,
}

/// The size limits of one stream, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    /// Maximum bytes of one line.
    pub(crate) line: usize,
    /// Maximum bytes of the data of one event.
    pub(crate) event: usize,
    /// Maximum bytes of the whole stream.
    pub(crate) stream: usize,
}

/// A parser of one stream of events.
#[derive(Debug)]
pub(crate) struct EventStream {
    caps: Caps,
    line: Vec<u8>,
    next: Event,
    has_data: bool,
    /// True if the last byte was `\r`; a following `\n` belongs to the same line end.
    after_return: bool,
    first_line: bool,
    received: usize,
}

impl EventStream {
    pub(crate) fn new(caps: Caps) -> EventStream {
        EventStream {
            caps,
            line: Vec::new(),
            next: Event::default(),
            has_data: false,
            after_return: false,
            first_line: true,
            received: 0,
        }
    }

    /// Parses the next piece of the stream, and passes every event that it completes to `each`.
    pub(crate) fn feed(&mut self, mut piece: &[u8], mut each: impl FnMut(Event)) -> Result<(), Unreadable> {
        self.received += piece.len();
        if self.received > self.caps.stream {
            return Err(Unreadable::Stream);
        }
        if !piece.is_empty() && mem::take(&mut self.after_return) {
            piece = piece.strip_prefix(b"\n").unwrap_or(piece);
        }
        while let Some(end) = piece.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&piece[..end])?;
            let ended_by = piece[end];
            piece = &piece[end + 1..];
            if ended_by == b'\r' {
                match piece.split_first() {
                    Some((b'\n', rest)) => piece = rest,
                    Some(_) => {}
                    None => self.after_return = true,
                }
            }
            if let Some(event) = self.end_line()? {
                each(event);
            }
        }
        self.extend(piece)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), Unreadable> {
        if self.line.len() + bytes.len() > self.caps.line {
            return Err(Unreadable::Line);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<Option<Event>, Unreadable> {
        let bytes = mem::take(&mut self.line);
        let bytes = match mem::take(&mut self.first_line) {
            true => bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes),
            false => &bytes,
        };
        let line = std::str::from_utf8(bytes).map_err(|_| Unreadable::Encoding)?;
        if line.is_empty() {
            let event = mem::take(&mut self.next);
            return Ok(mem::take(&mut self.has_data).then_some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.next.name),
            "data" => self.add_data(value)?,
            "id" if !value.contains('\0') => self.next.id = Some(value.to_owned()),
            "retry" => self.next.retry = value.parse().ok(),
            _ => {}
        }
        Ok(None)
    }

    fn add_data(&mut self, value: &str) -> Result<(), Unreadable> {
        if self.next.data.len() + value.len() + 1 > self.caps.event {
            return Err(Unreadable::Event);
        }
        if mem::replace(&mut self.has_data, true) {
            self.next.data.push('\n');
        }
        self.next.data.push_str(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Caps, Event, EventStream, Unreadable};

    fn events(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut stream = EventStream::new(Caps { line: 64, event: 64, stream: 64 });
        let mut found = Vec::new();
        for piece in pieces {
            stream.feed(piece, |Event { name, data, .. }| found.push((name, data))).unwrap();
        }
        found
    }

    #[test]
    fn streams_are_parsed_as_the_standard_says() {
        let table: [(&str, &[(&str, &str)]); 12] = [
            ("data: a\n\n", &[("", "a")]),
            ("data:a\ndata:  b\n\n", &[("", "a\n b")]),
            ("event: x\ndata: a\n\ndata: b\n\n", &[("x", "a"), ("", "b")]),
            (": comment\n\ndata: a\n\n", &[("", "a")]),
            ("event: x\n\ndata: a\n\n", &[("", "a")]),
            ("id: 1\nretry: 5\nnonsense\ndata: a\n\n", &[("", "a")]),
            ("data\n\n", &[("", "")]),
            ("data\ndata\n\n", &[("", "\n")]),
            ("data: a\n", &[]),
            ("data: a", &[]),
            ("\u{feff}data: a\n\n", &[("", "a")]),
            ("data: {\"a\":\"b:c\"}\n\n", &[("", "{\"a\":\"b:c\"}")]),
        ];
        for (text, expected) in table {
            for text in [text.to_owned(), text.replace('\n', "\r\n"), text.replace('\n', "\r")] {
                let expected: Vec<_> =
                    expected.iter().map(|(name, data)| (name.to_string(), data.to_string())).collect();
                assert_eq!(events(&[text.as_bytes()]), expected, "{text:?}");
                let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
                assert_eq!(events(&bytes), expected, "{text:?}, byte by byte");
            }
        }
    }

    #[test]
    fn an_event_has_an_id_and_a_retry_time() {
        let table: [(&str, Option<&str>, Option<u64>); 5] = [
            ("id: 7\nretry: 50\ndata: a\n\n", Some("7"), Some(50)),
            ("id\ndata: a\n\n", Some(""), None),
            ("id: 7\0\ndata: a\n\n", None, None),
            ("retry: soon\ndata: a\n\n", None, None),
            ("data: a\n\n", None, None),
        ];
        for (text, id, retry) in table {
            let mut found = Vec::new();
            let mut stream = EventStream::new(Caps { line: 64, event: 64, stream: 64 });
            stream.feed(text.as_bytes(), |event| found.push(event)).unwrap();
            assert_eq!((found[0].id.as_deref(), found[0].retry), (id, retry), "{text:?}");
        }
    }

    #[test]
    fn pieces_may_end_anywhere() {
        let text = "event: ü\r\ndata: grüße 🦀\r\n\r\ndata: b\r\r\n".as_bytes();
        for cut in 0..=text.len() {
            let expected = [("ü".to_owned(), "grüße 🦀".to_owned()), (String::new(), "b".to_owned())];
            assert_eq!(events(&[&text[..cut], b"", &text[cut..]]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn limits_hold_wherever_pieces_end() {
        let table: [(&[u8], Result<(), Unreadable>); 7] = [
            (b"data: 1234\n\n", Ok(())),
            (b"data: 12345\n\n", Err(Unreadable::Line)),
            (b"data: 12345678901234567890", Err(Unreadable::Line)),
            (b"data: 12\ndata: 34\n\n", Ok(())),
            (b"data: 123\ndata: 456\n\n", Err(Unreadable::Event)),
            (b":\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n", Err(Unreadable::Stream)),
            (b"data: \xff\n", Err(Unreadable::Encoding)),
        ];
        for (bytes, expected) in table {
            for size in [1, 3, bytes.len()] {
                let mut stream = EventStream::new(Caps { line: 10, event: 6, stream: 31 });
                let outcome = bytes.chunks(size).try_for_each(|piece| stream.feed(piece, |_| {}));
                assert_eq!(outcome, expected, "{bytes:?} in pieces of {size}");
            }
        }
    }
}
