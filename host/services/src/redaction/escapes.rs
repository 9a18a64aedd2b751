//! The spellings of characters in texts: plain, escaped, or with escapes inside escapes.
//!
//! A place is an index in a view; [`search`](super::search) explains views. A reading is one way to read the bytes at a
//! place: a character, and the place after it. The start of an escape has several readings, because it may also be
//! plain text. A layer is one level of escapes inside escapes. `below` is the number of layers of escapes that the
//! characters of an escape may consist of.

use super::budget::Steps;

/// Maximum number of items in a [`Few`], such as the readings of one place. Further ones are dropped.
const MAX_ITEMS: usize = 16;

/// Maximum digits of the number in an HTML entity such as `&#47;`.
const MAX_ENTITY_DIGITS: usize = 8;

/// Maximum characters of an entity's name.
const MAX_ENTITY_NAME: usize = 16;

/// Names of HTML entities for ASCII characters.
const ENTITIES: [(&str, u8); 41] = [
    ("amp", b'&'),
    ("AMP", b'&'),
    ("apos", b'\''),
    ("ast", b'*'),
    ("bsol", b'\\'),
    ("colon", b':'),
    ("comma", b','),
    ("commat", b'@'),
    ("DiacriticalGrave", b'`'),
    ("dollar", b'$'),
    ("equals", b'='),
    ("excl", b'!'),
    ("grave", b'`'),
    ("gt", b'>'),
    ("GT", b'>'),
    ("Hat", b'^'),
    ("lbrace", b'{'),
    ("lbrack", b'['),
    ("lcub", b'{'),
    ("lowbar", b'_'),
    ("lpar", b'('),
    ("lsqb", b'['),
    ("lt", b'<'),
    ("LT", b'<'),
    ("midast", b'*'),
    ("num", b'#'),
    ("percnt", b'%'),
    ("period", b'.'),
    ("plus", b'+'),
    ("quest", b'?'),
    ("quot", b'"'),
    ("QUOT", b'"'),
    ("rbrace", b'}'),
    ("rbrack", b']'),
    ("rcub", b'}'),
    ("rpar", b')'),
    ("rsqb", b']'),
    ("semi", b';'),
    ("sol", b'/'),
    ("verbar", b'|'),
    ("vert", b'|'),
];

/// A small set without duplicates. It drops items beyond [`MAX_ITEMS`].
#[derive(Clone, Copy)]
pub(super) struct Few<T> {
    items: [T; MAX_ITEMS],
    length: usize,
}

impl<T: Copy + Default> Default for Few<T> {
    fn default() -> Few<T> {
        Few { items: [T::default(); MAX_ITEMS], length: 0 }
    }
}

impl<T: Copy + Default + PartialEq> Few<T> {
    /// Creates a set of one item.
    pub(super) fn one(item: T) -> Few<T> {
        let mut few = Few::default();
        few.add(item);
        few
    }

    /// Adds an item unless the set has it.
    pub(super) fn add(&mut self, item: T) {
        if self.length < MAX_ITEMS && !self.items[..self.length].contains(&item) {
            self.items[self.length] = item;
            self.length += 1;
        }
    }

    /// Iterates over the items in their order of addition.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.items[..self.length].iter().copied()
    }

    /// Returns true if the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// A character, and the place after it.
type Reading = (u8, usize);

/// Returns true if an escape begins with this byte.
pub(super) fn is_introducer(byte: u8) -> bool {
    matches!(byte, b'\\' | b'%' | b'&' | b'=')
}

/// Reads characters of a view.
pub(super) struct Reader<'a> {
    view: &'a [u8],
    steps: &'a Steps<'a>,
}

impl<'a> Reader<'a> {
    /// Creates a reader that counts its work against `steps`.
    pub(super) fn new(view: &'a [u8], steps: &'a Steps<'a>) -> Reader<'a> {
        Reader { view, steps }
    }

    /// Returns the byte at a place.
    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        self.view.get(at).copied()
    }

    /// Returns the possible characters at a place, each with the place after it. Undoes at most `layers` layers of
    /// escapes.
    pub(super) fn readings(&self, at: usize, layers: u8) -> Few<Reading> {
        let Some(byte) = self.byte(at) else { return Few::default() };
        let mut found = Few::one((byte, at + 1));
        if !is_introducer(byte) {
            return found;
        }
        for below in 0..layers {
            let known = found;
            for (character, end) in known.iter() {
                if self.steps.is_spent() {
                    return found;
                }
                self.steps.spend(1);
                match character {
                    b'\\' => self.add_backslash_readings(end, below, &mut found),
                    b'%' => self.add_percent_readings(end, below, &mut found),
                    b'&' => self.add_entity_readings(end, below, &mut found),
                    b'=' => self.add_number_readings(end, below, 16, 2..=2, &mut found),
                    _ => {}
                }
            }
        }
        found
    }

    /// Returns the reading at a place that takes the most bytes. `=` always stands for itself. Returns `None` at the
    /// end of the view.
    pub(super) fn deepest(&self, at: usize, layers: u8) -> Option<Reading> {
        match self.byte(at)? {
            byte if byte == b'=' || !is_introducer(byte) => Some((byte, at + 1)),
            _ => self.readings(at, layers).iter().max_by_key(|(_, end)| *end),
        }
    }

    /// Reads `\/`, `\n`, `\u002f`, `\u{2f}`, `\U0000002f`, `\x2f`, `\57`.
    fn add_backslash_readings(&self, at: usize, below: u8, found: &mut Few<Reading>) {
        self.add_number_readings(at, below, 8, 1..=3, found);
        for (character, end) in self.readings(at, below).iter() {
            match character {
                b'u' => {
                    self.add_number_readings(end, below, 16, 4..=4, found);
                    self.add_braced_readings(end, below, found);
                }
                b'U' => self.add_number_readings(end, below, 16, 8..=8, found),
                b'x' => {
                    self.add_number_readings(end, below, 16, 2..=2, found);
                    self.add_braced_readings(end, below, found);
                }
                b'n' => found.add((b'\n', end)),
                b'r' => found.add((b'\r', end)),
                b't' => found.add((b'\t', end)),
                _ if character.is_ascii_punctuation() => found.add((character, end)),
                _ => {}
            }
        }
    }

    /// Reads the digits in `{2f}` after `\u`.
    fn add_braced_readings(&self, at: usize, below: u8, found: &mut Few<Reading>) {
        for (_, start) in self.readings(at, below).iter().filter(|(character, _)| *character == b'{') {
            for (value, end, _) in self.digits(start, below, 16, 6).iter() {
                let closed = self.readings(end, below);
                closed.iter().filter(|(close, _)| *close == b'}').for_each(|(_, end)| add(found, value, end));
            }
        }
    }

    /// Reads `%2f`, `%u002f`.
    fn add_percent_readings(&self, at: usize, below: u8, found: &mut Few<Reading>) {
        self.add_number_readings(at, below, 16, 2..=2, found);
        for (_, end) in self.readings(at, below).iter().filter(|(character, _)| matches!(character, b'u' | b'U')) {
            self.add_number_readings(end, below, 16, 4..=4, found);
        }
    }

    /// Reads `&#47;`, `&#x2f;`, `&sol;`, with or without the semicolon.
    fn add_entity_readings(&self, at: usize, below: u8, found: &mut Few<Reading>) {
        for (_, sign) in self.readings(at, below).iter().filter(|(character, _)| *character == b'#') {
            self.digits(sign, below, 10, MAX_ENTITY_DIGITS)
                .iter()
                .for_each(|(value, end, _)| self.add_closed(value, end, below, found));
            for (_, start) in self.readings(sign, below).iter().filter(|(x, _)| matches!(x, b'x' | b'X')) {
                let digits = self.digits(start, below, 16, MAX_ENTITY_DIGITS);
                digits.iter().for_each(|(value, end, _)| self.add_closed(value, end, below, found));
            }
        }
        let (letters, ends) = self.letters(at, below);
        for (name, character) in ENTITIES.iter().filter(|(name, _)| letters.starts_with(name.as_bytes())) {
            self.add_closed(u32::from(*character), ends[name.len() - 1], below, found);
        }
    }

    /// Returns the ASCII letters that begin at the place `at`, at most [`MAX_ENTITY_NAME`] of them. The second list
    /// has, for each letter, the place after it.
    fn letters(&self, mut at: usize, below: u8) -> (Vec<u8>, Vec<usize>) {
        let (mut letters, mut ends) = (Vec::new(), Vec::new());
        while letters.len() < MAX_ENTITY_NAME {
            let readings = self.readings(at, below);
            let letter = readings.iter().filter(|(letter, _)| letter.is_ascii_alphabetic()).max_by_key(|(_, end)| *end);
            let Some((letter, end)) = letter else { break };
            letters.push(letter);
            ends.push(end);
            at = end;
        }
        (letters, ends)
    }

    /// Adds the character `value` of an entity. `end` is the place after the entity. If a semicolon follows there, also
    /// adds the reading that includes the semicolon.
    fn add_closed(&self, value: u32, end: usize, below: u8, found: &mut Few<Reading>) {
        add(found, value, end);
        for (_, end) in self.readings(end, below).iter().filter(|(character, _)| *character == b';') {
            add(found, value, end);
        }
    }

    /// Reads a number in this radix, and adds the character with this number. `digits` is the permitted count of
    /// digits.
    fn add_number_readings(
        &self,
        at: usize,
        below: u8,
        radix: u32,
        digits: std::ops::RangeInclusive<usize>,
        found: &mut Few<Reading>,
    ) {
        let numbers = self.digits(at, below, radix, *digits.end());
        numbers.iter().filter(|(.., count)| digits.contains(count)).for_each(|(value, end, _)| add(found, value, end));
    }

    /// Returns the numbers that the first digits at a place form: that of one digit, of two digits, and so on, up to
    /// `most`. Each number comes with the place after it and its count of digits.
    fn digits(&self, at: usize, below: u8, radix: u32, most: usize) -> Few<(u32, usize, usize)> {
        let mut found = Few::default();
        let mut open = Few::one((0, at));
        for count in 1..=most {
            let mut next = Few::default();
            for (value, at) in open.iter() {
                for (character, end) in self.readings(at, below).iter() {
                    if let Some(digit) = char::from(character).to_digit(radix) {
                        next.add((u32::saturating_mul(value, radix).saturating_add(digit), end));
                    }
                }
            }
            if next.is_empty() {
                break;
            }
            next.iter().for_each(|(value, end)| found.add((value, end, count)));
            open = next;
        }
        found
    }
}

/// Adds the character with the number `value` if it is ASCII. `end` is the place after it.
fn add(found: &mut Few<Reading>, value: u32, end: usize) {
    if let Some(character) = u8::try_from(value).ok().filter(u8::is_ascii) {
        found.add((character, end));
    }
}
