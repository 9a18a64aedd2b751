//! Finds keys in streams of gzip and zlib inside other bytes.

use std::io::Read;

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::{BYTES_PER_STEP, Search, Spans};

/// Number of bytes that are decompressed and searched together.
const WINDOW: usize = 1 << 20;

/// Number of bytes at the end of a window, for each character of the longest key, that are searched again with the next
/// window. So the search also finds a key that begins in one window and ends in the next.
const OVERLAP: usize = 12;

/// The first bytes of a gzip stream.
const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];

/// Number of bytes that are unpacked to find out if a stream begins. Keys have at least as many.
const PROBED: usize = 4;

/// The flag of a zlib stream that needs a preset dictionary.
const DICTIONARY: u8 = 0x20;

/// Number of steps that starting to read a stream costs.
const STEPS_PER_STREAM: u64 = 1 << 12;

/// The result of searching a stream.
#[derive(PartialEq)]
enum Outcome {
    /// The content has a key.
    HasKey,
    /// The stream was read to its end and has no key.
    HasNone,
    /// The stream is damaged. The part that was read has no key.
    Broken,
}

/// Finds streams whose content has a key. Adds a span from the start of such a stream to the end of the view.
pub(super) fn find(search: &Search<'_>, view: &[u8], depth: u8, found: &mut Spans) {
    let mut at = 0;
    while !search.is_spent() {
        let Some(start) = next_stream(view, at) else { return };
        search.spend(STEPS_PER_STREAM);
        if search.is_spent() {
            return;
        }
        if search.is_inline() {
            if has_content(&view[start..]) {
                return search.interrupt();
            }
            at = start + 1;
            continue;
        }
        let mut rest = &view[start..];
        let outcome = match rest.starts_with(&GZIP) {
            true => unpack(search, MultiGzDecoder::new(&mut rest), depth),
            false => unpack(search, ZlibDecoder::new(&mut rest), depth),
        };
        let read = view.len() - start - rest.len();
        search.spend(read as u64 / BYTES_PER_STEP);
        at = start
            + match outcome {
                Outcome::HasKey => {
                    found.push(start..view.len());
                    return;
                }
                Outcome::HasNone => read.max(1),
                Outcome::Broken => 1,
            };
    }
}

/// Returns true if these bytes unpack to [`PROBED`] bytes at least. Others begin as a stream does by chance, or have too
/// little content for a key.
fn has_content(mut packed: &[u8]) -> bool {
    let mut content = [0; PROBED];
    match packed.starts_with(&GZIP) {
        true => MultiGzDecoder::new(&mut packed).read_exact(&mut content).is_ok(),
        false => ZlibDecoder::new(&mut packed).read_exact(&mut content).is_ok(),
    }
}

/// Searches the content of a stream, as far as it can be decompressed. If it is longer than the search may unpack, no step
/// of the search is left.
fn unpack(search: &Search<'_>, mut stream: impl Read, depth: u8) -> Outcome {
    let overlap = search.longest * OVERLAP;
    let mut window = Vec::new();
    while search.take_unpacked(WINDOW) {
        let before = window.len();
        let read = stream.by_ref().take(WINDOW as u64).read_to_end(&mut window);
        search.count_unpacked(WINDOW, window.len() - before);
        if window.len() > before && !search.view(&window, depth).is_empty() {
            return Outcome::HasKey;
        }
        match read {
            Ok(0) => return Outcome::HasNone,
            Ok(_) => drop(window.drain(..window.len().saturating_sub(overlap))),
            Err(_) => return Outcome::Broken,
        }
    }
    Outcome::Broken
}

/// Returns the next place at or after `from` where a stream of gzip or zlib may begin. A stream of zlib with a preset
/// dictionary, such as `x ` in a text, is none: nobody can unpack it without the dictionary.
fn next_stream(view: &[u8], from: usize) -> Option<usize> {
    let rest = view.get(from..)?;
    let is_zlib = |flags: u8| u16::from_be_bytes([0x78, flags]).is_multiple_of(31) && flags & DICTIONARY == 0;
    let begins = |two: &[u8]| two == &GZIP[..2] || (two[0] == 0x78 && is_zlib(two[1]));
    let is_stream = |at: &usize| rest[*at] == 0x78 || rest[*at..].starts_with(&GZIP);
    let places = rest.windows(2).enumerate().filter(|(_, two)| begins(two)).map(|(at, _)| at);
    places.filter(is_stream).map(|at| from + at).next()
}
