//! Redaction of a text that arrives in pieces and is released before it is complete.

use std::{mem, ops::Range};

use super::{MAX_INLINE_BYTES, REPLACEMENT, Redaction, WITHHELD, budget::Work, search::Spans};

/// Number of released bytes that are searched again with the next piece. In any encoding, the first few characters of a
/// key fit into them.
const CONTEXT_BYTES: usize = 128;

/// The units of a text that are released as a whole. So the end of what is released does not show whether a text, which
/// its reader may have chosen, begins as a key does. Keys that a line break splits are found in whole units only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Unit {
    /// Lines, for programs.
    Line,
    /// Words, for people who read a text while it arrives. A character outside of ASCII is a word.
    #[default]
    Word,
}

impl Unit {
    /// Returns the bytes at the end of a long unit that are held back. A key fits into them, in most encodings.
    fn held(self) -> usize {
        match self {
            Unit::Line => 128 * 1024,
            Unit::Word => 1024,
        }
    }

    /// Returns the length of the units that are complete, and of the beginning of a long one.
    fn complete(self, text: &str) -> usize {
        let last = match self {
            Unit::Line => text.rfind('\n'),
            Unit::Word => text.rfind(|character: char| character.is_whitespace() || !character.is_ascii()),
        };
        let end = last.map_or(0, |at| text.ceil_char_boundary(at + 1));
        if text.len() - end > 2 * self.held() { text.len() - self.held() } else { end }
    }
}

/// Receives a text in pieces and releases it in whole units, with keys redacted. If a search takes too long, releases
/// [`WITHHELD`] and withholds the rest of the text.
#[derive(Debug, Default)]
pub(crate) struct StreamRedactor {
    redaction: Redaction,
    unit: Unit,
    /// The end of the released text, and after it the text that is held back.
    text: String,
    /// The number of released bytes in `text`.
    released: usize,
    is_withheld: bool,
}

impl StreamRedactor {
    /// Creates an empty text with these keys redacted. The budget of the redaction is that of the stream.
    pub(crate) fn new(redaction: Redaction, unit: Unit) -> StreamRedactor {
        StreamRedactor { redaction, unit, ..StreamRedactor::default() }
    }

    /// Adds a piece, and returns the units that are complete now. Without keys nothing is held back. If the caller drops the
    /// future, the next call or [`end`](Self::end) returns these units.
    pub(crate) async fn add(&mut self, piece: &str) -> String {
        if self.redaction.is_empty() {
            return piece.to_owned();
        }
        if self.is_withheld {
            return String::new();
        }
        self.text.push_str(piece);
        let end = self.unit.complete(&self.text);
        if end <= self.released {
            return String::new();
        }
        let Some(found) = self.search().await else { return self.withhold() };
        // A complete key is not split between two releases.
        let inside = found.iter().find(|span| span.start < end && end < span.end);
        let end = inside.map_or(end, |span| span.start);
        self.release_until(&found, end)
    }

    /// Returns the text that is held back, with keys redacted. The next piece starts a new text.
    pub(crate) async fn end(&mut self) -> String {
        let rest = match self.text.len() > self.released {
            true => match self.search().await {
                Some(found) => self.release_until(&found, self.text.len()),
                None => self.withhold(),
            },
            false => String::new(),
        };
        self.clear();
        rest
    }

    /// Drops the text that is held back. The next piece starts a new text.
    pub(crate) fn clear(&mut self) {
        (self.text, self.released, self.is_withheld) = (String::new(), 0, false);
    }

    /// Returns the places of keys in the text, or `None` if the search did not end.
    async fn search(&self) -> Option<Spans> {
        let is_small = self.text.len() <= MAX_INLINE_BYTES;
        let work = |redaction: &Redaction, text: &String, work: &Work<'_>| {
            let found = redaction.search(text.as_bytes(), work);
            if found.is_none() {
                work.note_withheld();
            }
            found
        };
        self.redaction.search_with(self.text.clone(), is_small, work).await?.1
    }

    fn withhold(&mut self) -> String {
        self.clear();
        self.is_withheld = true;
        WITHHELD.to_owned()
    }

    fn release_until(&mut self, found: &[Range<usize>], end: usize) -> String {
        let end = self.text.floor_char_boundary(end).max(self.released);
        let (mut from, mut text) = (self.released, String::new());
        let before = self.released;
        for span in found.iter().filter(|span| span.end > before && span.start < end) {
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
