//! A text that comes in pieces, and is told before its end is there.

use std::mem;

use super::{HIDDEN, Redaction, search::Found};

/// Bytes of told text that are searched with what follows: a few characters of a key, however they are encoded.
const CONTEXT: usize = 128;

/// Takes pieces of a text, and returns them without keys. It keeps back what may be a part of a key; a few first characters of a
/// key may be told before the rest of it comes.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    redaction: Redaction,
    /// The end of what was told, and what was not told yet.
    text: String,
    /// Bytes of it that were told.
    told: usize,
}

impl Pieces {
    /// A text without these keys.
    pub(crate) fn new(redaction: Redaction) -> Pieces {
        Pieces { redaction, ..Pieces::default() }
    }

    /// Adds a piece, and returns what may be told now.
    pub(crate) fn add(&mut self, piece: &str) -> String {
        if self.redaction.is_empty() {
            return piece.to_owned();
        }
        self.text.push_str(piece);
        let found = self.redaction.search(self.text.as_bytes());
        // A key that is there already is not told in two parts.
        let inside = found.spans.iter().find(|span| span.start < found.open && found.open < span.end);
        let end = inside.map_or(found.open, |span| span.start);
        self.told_until(&found, end)
    }

    /// Returns what was kept back. What follows is another text.
    pub(crate) fn end(&mut self) -> String {
        let found = self.redaction.search(self.text.as_bytes());
        let rest = self.told_until(&found, self.text.len());
        (self.text, self.told) = (String::new(), 0);
        rest
    }

    fn told_until(&mut self, found: &Found, end: usize) -> String {
        let end = self.text.floor_char_boundary(end).max(self.told);
        let (mut from, mut told) = (self.told, String::new());
        let untold = self.told;
        for span in found.spans.iter().filter(|span| span.end > untold && span.start < end) {
            told.push_str(self.text.get(from..span.start.max(from)).unwrap_or_default());
            told.push_str(HIDDEN);
            from = span.end.min(end);
        }
        told.push_str(self.text.get(from..end).unwrap_or_default());
        let kept = self.text.floor_char_boundary(end.saturating_sub(CONTEXT));
        self.text = mem::take(&mut self.text).split_off(kept);
        self.told = end - kept;
        told
    }
}
