//! Finds keys in hexadecimal and base64. The letters of these encodings stand in sequences, possibly with white space
//! between the letters. A [`Run`] is such a sequence; it has nothing to do with the run of a flow. [`search`](super)
//! explains views and blocks.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use super::{MAX_LAYERS, Search, Spans};

/// Number of letters that are decoded together. Longer sequences are decoded in overlapping pieces.
const WINDOW: usize = 1 << 20;

/// Letters of a sequence that count as one step when they are collected.
const LETTERS_PER_STEP: usize = 8;

/// Maximum number of letters that encode one character of a key: an escape such as `\u0041` has six characters, and
/// each is two hexadecimal digits.
const LETTERS: usize = 12;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The meaning of a character in a sequence of letters.
enum Class {
    /// A letter of the sequence: a hexadecimal digit, or a letter of base64, converted to the standard alphabet.
    Letter(u8),
    /// A separator between letters, without a meaning.
    Space,
    /// The character does not belong to the sequence, which ends before it.
    End,
}

/// A sequence of letters in a view, with the place of each letter.
struct Run {
    letters: Vec<u8>,
    /// The start and end of each letter, counted from the beginning of the sequence.
    places: Vec<(u32, u32)>,
    start: usize,
    end: usize,
}

fn base64_class(character: u8) -> Class {
    match character {
        b'-' => Class::Letter(b'+'),
        b'_' => Class::Letter(b'/'),
        b'+' | b'/' => Class::Letter(character),
        _ if character.is_ascii_alphanumeric() => Class::Letter(character),
        _ if character.is_ascii_whitespace() => Class::Space,
        _ => Class::End,
    }
}

fn hex_class(character: u8) -> Class {
    match character {
        _ if character.is_ascii_hexdigit() => Class::Letter(character),
        b':' | b'-' => Class::Space,
        _ if character.is_ascii_whitespace() => Class::Space,
        _ => Class::End,
    }
}

/// Finds keys in the bytes that the sequences of letters in a view encode.
pub(super) fn find(search: &Search<'_>, view: &[u8], depth: u8, found: &mut Spans) {
    for_each_run(search, view, base64_class, search.shortest * 4 / 3, found, |run, found| {
        for skipped in 0..4 {
            let letters = run.letters.get(skipped..).unwrap_or_default();
            // A single remaining letter encodes less than a byte.
            let whole = letters.len() - usize::from(letters.len() % 4 == 1);
            if let Ok(bytes) = BASE64.decode(&letters[..whole]) {
                let inside = search.view(&bytes, depth);
                run.add(inside, |byte| skipped + byte * 4 / 3, |byte| skipped + (byte * 4).div_ceil(3), found);
            }
        }
    });
    for_each_run(search, view, hex_class, search.shortest * 2, found, |run, found| {
        for skipped in 0..2 {
            let letters = run.letters.get(skipped..).unwrap_or_default();
            if let Ok(bytes) = hex::decode(&letters[..letters.len() / 2 * 2]) {
                let inside = search.view(&bytes, depth);
                run.add(inside, |byte| skipped + byte * 2, |byte| skipped + byte * 2, found);
            }
        }
    });
}

/// Calls `each` for every sequence of at least `least` letters.
fn for_each_run(
    search: &Search<'_>,
    view: &[u8],
    class: impl Fn(u8) -> Class,
    least: usize,
    found: &mut Spans,
    each: impl Fn(&Run, &mut Spans),
) {
    let overlap = search.longest * LETTERS;
    let window = WINDOW.max(overlap * 4);
    let mut at = 0;
    while at < view.len() && !search.is_spent() {
        let run = run_at(search, view, at, &class, window);
        if run.letters.len() >= least {
            each(&run, found);
        }
        at = match run.letters.len() == window {
            true => run.place(window - overlap).0,
            false => run.end.max(at) + 1,
        };
    }
}

/// Collects at most `most` letters of the sequence that begins at `start`. `class` tells the meaning of a character.
fn run_at(search: &Search<'_>, view: &[u8], start: usize, class: &impl Fn(u8) -> Class, most: usize) -> Run {
    let reader = search.reader(view);
    let mut run = Run { letters: Vec::new(), places: Vec::new(), start, end: start };
    while run.letters.len() < most {
        let Some((character, end)) = reader.deepest(run.end, MAX_LAYERS) else { break };
        match class(character) {
            Class::Letter(letter) => {
                run.letters.push(letter);
                run.places.push(((run.end - start) as u32, (end - start) as u32));
            }
            Class::Space if !run.letters.is_empty() => {}
            Class::Space | Class::End => break,
        }
        run.end = end;
    }
    search.spend((run.letters.len() / LETTERS_PER_STEP) as u64);
    run
}

impl Run {
    /// Returns the start and end of the letter with this index, as places in the view.
    fn place(&self, letter: usize) -> (usize, usize) {
        let (from, to) = self.places.get(letter).copied().unwrap_or_else(|| {
            let end = (self.end - self.start) as u32;
            (end, end)
        });
        (self.start + from as usize, self.start + to as usize)
    }

    /// Converts the places of keys in the decoded bytes (`inside`) to places in the view, and adds them to `found`.
    /// `first` converts the start of a key to the index of its first letter,
    /// `behind` converts its end to the index of the letter after it.
    fn add(&self, inside: Spans, first: impl Fn(usize) -> usize, behind: impl Fn(usize) -> usize, found: &mut Spans) {
        for span in inside.iter().filter(|span| !span.is_empty()) {
            let last = behind(span.end).min(self.letters.len()).saturating_sub(1);
            found.push(self.place(first(span.start)).0..self.place(last).1);
        }
    }
}
