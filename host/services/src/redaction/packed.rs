//! Streams of gzip and zlib inside bytes.

use std::io::Read;

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::search::{BYTES_PER_STEP, Found, Search};

/// Bytes that are unpacked and searched together.
const WINDOW: usize = 1 << 20;

/// Bytes that are searched again with those that follow, for each character of the longest key.
const OVERLAP: usize = 12;

/// A stream of gzip begins with these bytes.
const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];

/// Steps that it takes to begin with a stream.
const STEPS_PER_STREAM: u64 = 1 << 12;

/// What became of a stream.
#[derive(PartialEq)]
enum Outcome {
    /// Its content has a key.
    HasKey,
    /// It was read to its end, and has none.
    HasNone,
    /// It could not be read to its end, and what was read has none.
    Broken,
}

impl Search<'_> {
    /// Finds streams whose content has a key. Everything from the beginning of such a stream on is one span.
    pub(super) fn packed(&self, view: &[u8], depth: u8, found: &mut Found) {
        let mut at = 0;
        while let Some(start) = next_stream(view, at) {
            self.spend(STEPS_PER_STREAM);
            if self.is_spent() {
                return;
            }
            let mut rest = &view[start..];
            let outcome = match rest.starts_with(&GZIP) {
                true => self.unpack(MultiGzDecoder::new(&mut rest), depth),
                false => self.unpack(ZlibDecoder::new(&mut rest), depth),
            };
            let read = view.len() - start - rest.len();
            self.spend(read as u64 / BYTES_PER_STEP);
            at = start
                + match outcome {
                    Outcome::HasKey => {
                        found.spans.push(start..view.len());
                        return;
                    }
                    Outcome::HasNone => read.max(1),
                    Outcome::Broken => 1,
                };
        }
    }

    /// Searches the content of a stream, as far as it can be unpacked.
    fn unpack(&self, mut stream: impl Read, depth: u8) -> Outcome {
        let overlap = self.longest * OVERLAP;
        let mut window = Vec::new();
        while self.may_unpack(WINDOW) {
            let before = window.len();
            let read = stream.by_ref().take(WINDOW as u64).read_to_end(&mut window);
            self.give_back(WINDOW - (window.len() - before));
            if window.len() > before && !self.view(&window, depth).spans.is_empty() {
                return Outcome::HasKey;
            }
            match read {
                Ok(0) => return Outcome::HasNone,
                Ok(_) => drop(window.drain(..window.len().saturating_sub(overlap))),
                Err(_) => return Outcome::Broken,
            }
        }
        tracing::warn!("an answer has packed data that is too large to be searched for keys");
        Outcome::Broken
    }
}

/// Returns the next place from here on where a stream of gzip or zlib may begin.
fn next_stream(view: &[u8], from: usize) -> Option<usize> {
    let rest = view.get(from..)?;
    let begins =
        |two: &[u8]| two == &GZIP[..2] || (two[0] == 0x78 && u16::from_be_bytes([two[0], two[1]]).is_multiple_of(31));
    let is_stream = |at: &usize| rest[*at] == 0x78 || rest[*at..].starts_with(&GZIP);
    let places = rest.windows(2).enumerate().filter(|(_, two)| begins(two)).map(|(at, _)| at);
    places.filter(is_stream).map(|at| from + at).next()
}
