//! Finds the places of keys in bytes, and in everything that these bytes encode.

use std::{cell::Cell, ops::Range};

use super::escapes::{Few, Reader, is_introducer};

/// Escapes inside escapes that are undone, such as `\u0025\u0034\u0031` for `%41` for `A`.
pub(super) const LAYERS: u8 = 3;

/// Blocks inside blocks that are decoded, such as base64 inside gzip.
const DEPTH: u8 = 4;

/// Steps that a search may take for each byte and key. An ordinary text takes 1, one of nothing but escapes 10.
const STEPS_PER_BYTE: u64 = 24;

/// Bytes of a view that are one step.
pub(super) const BYTES_PER_STEP: u64 = 16;

/// Steps that a search of few bytes may take.
const LEAST_STEPS: u64 = 1 << 20;

/// Characters of a line break between two characters of a key, at most: `=\r\n`.
const BREAKS: u8 = 3;

/// Characters of a key at the end of a view from which on the rest is waited for.
const OPEN: usize = 4;

/// Bytes that one search unpacks, at most.
const MAX_UNPACKED: u64 = 64 << 20;

/// What a search found in a view.
#[derive(Debug)]
pub(super) struct Found {
    /// The places of keys, in order and apart from each other.
    pub(super) spans: Vec<Range<usize>>,
    /// The first place where a key begins that may go on behind the end; the length of the view if there is none.
    pub(super) open: usize,
}

impl Found {
    /// No key in a view of so many bytes.
    pub(super) fn nothing(length: usize) -> Found {
        Found { spans: Vec::new(), open: length }
    }

    /// Puts spans in order, and joins those that touch.
    fn joined(mut self) -> Found {
        self.spans.sort_by_key(|span| span.start);
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(self.spans.len());
        for span in self.spans {
            match joined.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => joined.push(span),
            }
        }
        Found { spans: joined, ..self }
    }
}

/// Whether a character ends a line. Keys are searched without these, as lines may be broken elsewhere.
pub(super) fn is_line_end(character: u8) -> bool {
    matches!(character, b'\r' | b'\n')
}

/// One search, with what it may still spend.
pub(super) struct Search<'a> {
    keys: &'a [&'a [u8]],
    /// Whether a key may begin with this byte, plain or escaped.
    begins: [bool; 256],
    /// Characters of the shortest key.
    pub(super) shortest: usize,
    /// Characters of the longest key.
    pub(super) longest: usize,
    steps: Cell<u64>,
    unpacked: Cell<u64>,
}

/// How a key compares with a place.
enum Comparison {
    /// It is not there.
    Other,
    /// It is there, and ends here.
    There(usize),
    /// The view ends before the key does, with more than a few characters of it.
    Open,
}

impl<'a> Search<'a> {
    /// A search for keys, none of them empty, in so many bytes.
    pub(super) fn new(keys: &'a [&'a [u8]], bytes: usize) -> Search<'a> {
        let mut begins = [false; 256];
        for byte in 0..=u8::MAX {
            let of_key = keys.iter().any(|key| key.first().is_some_and(|first| first.eq_ignore_ascii_case(&byte)));
            begins[usize::from(byte)] = of_key || is_introducer(byte);
        }
        let lengths = || keys.iter().map(|key| key.len());
        let steps = (bytes as u64).saturating_mul(STEPS_PER_BYTE).max(LEAST_STEPS).saturating_mul(keys.len() as u64);
        Search {
            keys,
            begins,
            shortest: lengths().min().unwrap_or(1).max(1),
            longest: lengths().max().unwrap_or(1).max(1),
            steps: Cell::new(steps),
            unpacked: Cell::new(MAX_UNPACKED),
        }
    }

    /// Searches bytes and everything that they encode.
    pub(super) fn everywhere(&self, bytes: &[u8]) -> Found {
        self.view(bytes, DEPTH)
    }

    /// Searches a view and what it encodes, so many blocks deep. A view that costs too much is one span.
    pub(super) fn view(&self, view: &[u8], depth: u8) -> Found {
        let mut found = Found::nothing(view.len());
        self.spend(view.len() as u64 / BYTES_PER_STEP + 1);
        self.spelled(view, &mut found);
        if let Some(depth) = depth.checked_sub(1) {
            self.blocks(view, depth, &mut found);
            self.packed(view, depth, &mut found);
        }
        if self.is_spent() && !view.is_empty() {
            return Found { spans: std::iter::once(0..view.len()).collect(), open: view.len() };
        }
        found.joined()
    }

    /// A reader of a view, whose work counts.
    pub(super) fn reader<'v>(&'v self, view: &'v [u8]) -> Reader<'v> {
        Reader::new(view, &self.steps)
    }

    /// Counts steps.
    pub(super) fn spend(&self, steps: u64) {
        self.steps.set(self.steps.get().saturating_sub(steps));
    }

    pub(super) fn is_spent(&self) -> bool {
        self.steps.get() == 0
    }

    /// Takes bytes from what may be unpacked, and adds the steps to search them. False: so many are not left.
    pub(super) fn may_unpack(&self, bytes: usize) -> bool {
        let Some(left) = self.unpacked.get().checked_sub(bytes as u64) else { return false };
        self.unpacked.set(left);
        self.steps.set(self.steps.get() + bytes as u64 * STEPS_PER_BYTE);
        true
    }

    /// Gives back bytes that were not unpacked, without their steps.
    pub(super) fn give_back(&self, bytes: usize) {
        self.unpacked.set(self.unpacked.get() + bytes as u64);
        self.spend(bytes as u64 * STEPS_PER_BYTE);
    }

    /// Finds keys whose characters are plain or escaped.
    fn spelled(&self, view: &[u8], found: &mut Found) {
        let reader = self.reader(view);
        let mut at = 0;
        while at < view.len() && !self.is_spent() {
            if !self.begins[usize::from(view[at])] {
                at += 1;
                continue;
            }
            let mut next = at + 1;
            for key in self.keys {
                match self.compare(&reader, at, key) {
                    Comparison::There(end) => {
                        found.spans.push(at..end);
                        next = next.max(end);
                    }
                    Comparison::Open => found.open = found.open.min(at),
                    Comparison::Other => {}
                }
            }
            at = next;
        }
    }

    /// Compares a key with a place. Every character may be written in several ways, so several ends are followed at once.
    fn compare(&self, reader: &Reader<'_>, at: usize, key: &[u8]) -> Comparison {
        let mut ends = Few::one(at);
        // One way to read the text may reach its end while another goes on for a while.
        let mut open = false;
        for (index, wanted) in key.iter().enumerate() {
            let mut next = Few::default();
            for start in ends.iter() {
                self.spend(1);
                // The first character stands where the key begins.
                let breaks = if index == 0 { 0 } else { BREAKS };
                open |= self.follow(reader, start, *wanted, breaks, &mut next) && index >= OPEN;
            }
            if next.is_empty() {
                return if open { Comparison::Open } else { Comparison::Other };
            }
            ends = next;
        }
        Comparison::There(ends.iter().max().unwrap_or(at))
    }

    /// Adds the places behind a character that is wanted at a place, or behind so many characters of line breaks there. Returns
    /// whether it may come behind the end of the view.
    fn follow(&self, reader: &Reader<'_>, start: usize, wanted: u8, breaks: u8, next: &mut Few<usize>) -> bool {
        let mut open = reader.is_cut(start);
        for (character, end) in reader.readings(start, LAYERS).iter() {
            if character.eq_ignore_ascii_case(&wanted) {
                next.add(end);
                // UTF-16 has a zero between two characters.
                if reader.byte(end) == Some(0) {
                    next.add(end + 1);
                }
            }
            // A line of quoted-printable that goes on ends with a sign.
            let breaks_here = is_line_end(character) || character == b'=' && reader.byte(end).is_some_and(is_line_end);
            if breaks > 0 && breaks_here {
                self.spend(1);
                open |= self.follow(reader, end, wanted, breaks - 1, next);
            }
        }
        open
    }
}
