//! Finds keys in bytes, and in everything that these bytes encode.
//!
//! A view is a sequence of bytes that is searched: the bytes of an answer, or bytes that were decoded from another
//! view. A block is a part of a view that encodes bytes: hexadecimal, base64, gzip or zlib. A span is the range of a
//! key in a view.

mod blocks;
mod packed;

use std::ops::Range;

use super::{
    budget::{Steps, Work},
    escapes::{Few, Reader, is_introducer},
};

/// Maximum nesting of escapes that are decoded. An example with two levels: `\u0025\u0034\u0031` stands for `%41`, and
/// `%41` for `A`.
pub(super) const MAX_LAYERS: u8 = 3;

/// Maximum nesting of blocks that are decoded, such as base64 inside gzip.
const MAX_DEPTH: u8 = 4;

/// Maximum steps of a search, for each byte and key, as far as its [`Work`] has them. For ordinary text a search takes one
/// step a byte, for text that consists of escapes ten.
const STEPS_PER_BYTE: u64 = 24;

/// Bytes of a view that count as one step. So do unpacked bytes, which then count again as a view.
const BYTES_PER_STEP: u64 = 16;

/// Steps that every search may take, even for few bytes.
const MIN_STEPS: u64 = 1 << 20;

/// Maximum characters of a line break between two characters of a key. The longest one is `=\r\n`.
const MAX_BREAK_CHARS: u8 = 3;

/// The places of keys in a view, ordered and not touching when a search ends.
pub(super) type Spans = Vec<Range<usize>>;

/// Sorts spans, and joins those that touch.
fn joined(mut spans: Spans) -> Spans {
    spans.sort_by_key(|span| span.start);
    let mut joined = Spans::with_capacity(spans.len());
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}

/// Returns true if a character ends a line. The search removes line ends from keys, because peers may break lines
/// elsewhere.
pub(super) fn is_line_end(character: u8) -> bool {
    matches!(character, b'\r' | b'\n')
}

/// Returns true if a character of a view may stand for `wanted` of a key: in another case, or as forms write a space.
fn stands_for(character: u8, wanted: u8) -> bool {
    character.eq_ignore_ascii_case(&wanted) || matches!((character, wanted), (b'+', b' ') | (b' ', b'+'))
}

/// One search, with its remaining steps.
pub(super) struct Search<'a> {
    keys: &'a [&'a [u8]],
    /// True for each byte that may begin a key, plain or escaped.
    begins: [bool; 256],
    /// Number of characters of the shortest key.
    shortest: usize,
    /// Number of characters of the longest key.
    longest: usize,
    work: &'a Work<'a>,
    steps: Steps<'a>,
}

impl<'a> Search<'a> {
    /// Creates a search for keys in `bytes` bytes, as a part of `work`. No key may be empty.
    pub(super) fn new(keys: &'a [&'a [u8]], bytes: usize, work: &'a Work<'a>) -> Search<'a> {
        let mut begins = [false; 256];
        for byte in 0..=u8::MAX {
            let of_key = keys.iter().any(|key| key.first().is_some_and(|first| stands_for(byte, *first)));
            begins[usize::from(byte)] = of_key || is_introducer(byte);
        }
        let lengths = || keys.iter().map(|key| key.len());
        let steps = (bytes as u64).saturating_mul(STEPS_PER_BYTE).max(MIN_STEPS).saturating_mul(keys.len() as u64);
        Search {
            keys,
            begins,
            shortest: lengths().min().unwrap_or(1).max(1),
            longest: lengths().max().unwrap_or(1).max(1),
            work,
            steps: Steps::new(work, steps),
        }
    }

    /// Searches bytes and everything that they encode. Returns `None` if the steps were used up before the end, or if the
    /// bytes unpack to more than the work may unpack.
    pub(super) fn everywhere(&self, bytes: &[u8]) -> Option<Spans> {
        let found = self.view(bytes, MAX_DEPTH);
        (!self.is_spent()).then_some(found)
    }

    /// Searches a view and the blocks in it, up to `depth` levels deep. If the steps of the search are used up, the
    /// whole view becomes one span.
    fn view(&self, view: &[u8], depth: u8) -> Spans {
        let mut found = Spans::new();
        self.spend(view.len() as u64 / BYTES_PER_STEP + 1);
        self.find_spelled(view, &mut found);
        if let Some(depth) = depth.checked_sub(1) {
            blocks::find(self, view, depth, &mut found);
            packed::find(self, view, depth, &mut found);
        }
        if self.is_spent() && !view.is_empty() {
            return std::iter::once(0..view.len()).collect();
        }
        joined(found)
    }

    /// Creates a reader of a view. The steps of the reader count as steps of this search.
    fn reader<'v>(&'v self, view: &'v [u8]) -> Reader<'v> {
        Reader::new(view, &self.steps)
    }

    /// Subtracts `steps` from the steps that the search may still take.
    fn spend(&self, steps: u64) {
        self.steps.spend(steps);
    }

    fn is_spent(&self) -> bool {
        self.steps.is_spent()
    }

    /// Returns true if this search must not unpack.
    fn is_inline(&self) -> bool {
        self.work.is_inline()
    }

    /// Ends this search, which is repeated elsewhere.
    fn interrupt(&self) {
        self.work.interrupt();
        self.steps.exhaust();
    }

    /// Takes `bytes` from the bytes that may still be decompressed. If fewer are left, returns false, and the search ends.
    fn take_unpacked(&self, bytes: usize) -> bool {
        let has_taken = self.work.take_unpacked(bytes as u64);
        if !has_taken {
            self.steps.exhaust();
        }
        has_taken
    }

    /// Spends steps for the `bytes` that were decompressed, takes those to search them, and returns the rest of the `taken`
    /// bytes.
    fn count_unpacked(&self, taken: usize, bytes: usize) {
        self.work.return_unpacked(taken.saturating_sub(bytes) as u64);
        self.steps.add((bytes as u64).saturating_mul(STEPS_PER_BYTE));
        self.spend(bytes as u64 / BYTES_PER_STEP + 1);
    }

    /// Finds keys whose characters are plain or escaped, without decoding blocks.
    fn find_spelled(&self, view: &[u8], found: &mut Spans) {
        let reader = self.reader(view);
        let mut at = 0;
        while at < view.len() && !self.is_spent() {
            if !self.begins[usize::from(view[at])] {
                at += 1;
                continue;
            }
            self.spend(1);
            let first = reader.readings(at, MAX_LAYERS);
            let begins = |key: &&&[u8]| first.iter().any(|(character, _)| stands_for(character, key[0]));
            let mut next = at + 1;
            for key in self.keys.iter().filter(begins) {
                if let Some(end) = self.compare(&reader, at, key) {
                    found.push(at..end);
                    next = next.max(end);
                }
            }
            at = next;
        }
    }

    /// Compares a key with the view at a place. Returns the place after the key, or `None` if the key is not there. A
    /// character may have several spellings of different lengths. Then the comparison continues at several places at once.
    fn compare(&self, reader: &Reader<'_>, at: usize, key: &[u8]) -> Option<usize> {
        let mut ends = Few::one(at);
        for (index, wanted) in key.iter().enumerate() {
            let mut next = Few::default();
            for start in ends.iter() {
                self.spend(1);
                // No line break may precede the first character of a key.
                let breaks = if index == 0 { 0 } else { MAX_BREAK_CHARS };
                self.follow(reader, start, *wanted, breaks, &mut next);
            }
            if next.is_empty() {
                return None;
            }
            ends = next;
        }
        ends.iter().max()
    }

    /// Looks for the character `wanted` at the place `start`, and adds the places after it to `next`. It may skip up to
    /// `breaks` characters of line breaks in front of `wanted`.
    fn follow(&self, reader: &Reader<'_>, start: usize, wanted: u8, breaks: u8, next: &mut Few<usize>) {
        for (character, end) in reader.readings(start, MAX_LAYERS).iter() {
            if stands_for(character, wanted) {
                next.add(end);
                // UTF-16 has a zero byte between two ASCII characters.
                if reader.byte(end) == Some(0) {
                    next.add(end + 1);
                }
            }
            // A soft line break of quoted-printable begins with `=`.
            let breaks_here = is_line_end(character) || character == b'=' && reader.byte(end).is_some_and(is_line_end);
            if breaks > 0 && breaks_here {
                self.spend(1);
                self.follow(reader, end, wanted, breaks - 1, next);
            }
        }
    }
}
