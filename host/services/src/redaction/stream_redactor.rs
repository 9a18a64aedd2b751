//! Redaction of a text that arrives in pieces and is released before it is complete.

use std::mem;

use super::{REPLACEMENT, Redaction, search::Found};

/// Number of released bytes that are searched again with the next piece. In any encoding, the first few characters of a
/// key fit into them.
const CONTEXT_BYTES: usize = 128;

/// Bytes at the end of a long line that [`StreamRedactor::add_lines`] holds back. A key of 16 KiB fits, in most encodings.
const HELD_LINE_BYTES: usize = 128 * 1024;

/// Receives a text in pieces and releases it with keys redacted. Text that may be part of a key is held back. The first
/// few characters of a key may be released before the rest of the key arrives.
#[derive(Debug, Default)]
pub(crate) struct StreamRedactor {
    redaction: Redaction,
    /// The end of the released text, and after it the text that is held back.
    text: String,
    /// The number of released bytes in `text`.
    released: usize,
}

impl StreamRedactor {
    /// Creates an empty text with these keys redacted.
    pub(crate) fn new(redaction: Redaction) -> StreamRedactor {
        StreamRedactor { redaction, ..StreamRedactor::default() }
    }

    /// Adds a piece, and returns the text that may be released now.
    pub(crate) fn add(&mut self, piece: &str) -> String {
        if self.redaction.is_empty() {
            return piece.to_owned();
        }
        self.text.push_str(piece);
        let found = self.redaction.search(self.text.as_bytes());
        // A complete key is not split between two releases.
        let inside = found.spans.iter().find(|span| span.start < found.open && found.open < span.end);
        let end = inside.map_or(found.open, |span| span.start);
        self.release_until(&found, end)
    }

    /// Adds a piece, and returns the lines that are complete now, and the beginning of a line above 256 KiB. Where this text
    /// ends follows from the length of the lines alone, unless a complete key is there. So a reader that has chosen the text
    /// does not learn whether it begins as a key does.
    pub(crate) fn add_lines(&mut self, piece: &str) -> String {
        if self.redaction.is_empty() {
            return piece.to_owned();
        }
        self.text.push_str(piece);
        let lines = self.text.rfind('\n').map_or(0, |at| at + 1);
        let is_long = self.text.len() - lines > 2 * HELD_LINE_BYTES;
        let end = if is_long { self.text.len() - HELD_LINE_BYTES } else { lines };
        if end <= self.released {
            return String::new();
        }
        let found = self.redaction.search(self.text.as_bytes());
        // A complete key is not split between two releases.
        let inside = found.spans.iter().find(|span| span.start < end && end < span.end);
        let end = inside.map_or(end, |span| span.start);
        self.release_until(&found, end)
    }

    /// Returns the text that is held back, with keys redacted. The next piece starts a new text.
    pub(crate) fn end(&mut self) -> String {
        let found = self.redaction.search(self.text.as_bytes());
        let rest = self.release_until(&found, self.text.len());
        (self.text, self.released) = (String::new(), 0);
        rest
    }

    fn release_until(&mut self, found: &Found, end: usize) -> String {
        let end = self.text.floor_char_boundary(end).max(self.released);
        let (mut from, mut text) = (self.released, String::new());
        let before = self.released;
        for span in found.spans.iter().filter(|span| span.end > before && span.start < end) {
            text.push_str(self.text.get(from..span.start.max(from)).unwrap_or_default());
            text.push_str(REPLACEMENT);
            from = span.end.min(end);
        }
        text.push_str(self.text.get(from..end).unwrap_or_default());
        let kept = self.text.floor_char_boundary(end.saturating_sub(CONTEXT_BYTES));
        self.text = mem::take(&mut self.text).split_off(kept);
        self.released = end - kept;
        text
    }
}
