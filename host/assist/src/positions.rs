//! Converts between byte offsets and the positions of editors, which count lines from 0 and UTF-16 units in a line or
//! in the whole text.

/// A position as editors count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 0.
    pub line: u32,
    /// The number of UTF-16 units before the position in its line.
    pub character: u32,
}

/// The starts of the lines of a text.
#[derive(Clone, Debug)]
pub struct LineIndex {
    starts: Vec<usize>,
}

impl LineIndex {
    /// Finds the lines of a text.
    pub fn new(text: &str) -> LineIndex {
        LineIndex { starts: std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect() }
    }

    /// Returns the byte offset of a position in `text`, the text of this index. A position beyond the end of its line
    /// is at the end of the line, one beyond the last line at the end of the text, and one inside of a character at its
    /// start.
    pub fn offset(&self, text: &str, position: Position) -> usize {
        let Some(start) = self.starts.get(position.line as usize).copied() else { return text.len() };
        let end = self.starts.get(position.line as usize + 1).map_or(text.len(), |next| next - 1);
        let line = text.get(start..end).unwrap_or_default();
        let line = line.strip_suffix('\r').unwrap_or(line);
        let mut units = 0;
        for (at, sign) in line.char_indices() {
            units += sign.len_utf16() as u32;
            if units > position.character {
                return start + at;
            }
        }
        start + line.len()
    }

    /// Returns the position of a byte offset in `text`, the text of this index. An offset inside of a character counts
    /// as its start.
    pub fn position(&self, text: &str, offset: usize) -> Position {
        let offset = text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|start| *start <= offset) - 1;
        let before = &text[self.starts[line]..offset];
        Position { line: line as u32, character: before.encode_utf16().count() as u32 }
    }

    /// Returns the byte offset of a line and a column that count from 1, in characters, as diagnostics do.
    pub fn offset_of_column(&self, text: &str, line: usize, column: usize) -> usize {
        let Some(start) = self.starts.get(line.saturating_sub(1)).copied() else { return text.len() };
        let rest = &text[start..];
        let end = rest.find('\n').unwrap_or(rest.len());
        let column = rest[..end].char_indices().nth(column.saturating_sub(1));
        start + column.map_or(end, |(at, _)| at)
    }
}

/// A text as browsers count it: in UTF-16 units from its start, line breaks included.
#[derive(Clone, Debug)]
pub struct UnitIndex {
    lines: LineIndex,
    /// The number of units before each line.
    units: Vec<usize>,
}

impl UnitIndex {
    /// Counts the units of a text.
    pub fn new(text: &str) -> UnitIndex {
        let lines = LineIndex::new(text);
        let mut sum = 0;
        let before = |(start, end): (usize, usize)| {
            let before = sum;
            sum += text[start..end].encode_utf16().count();
            before
        };
        let ends = lines.starts.iter().skip(1).copied().chain([text.len()]);
        let units = lines.starts.iter().copied().zip(ends).map(before).collect();
        UnitIndex { lines, units }
    }

    /// Returns the lines of the text.
    pub fn lines(&self) -> &LineIndex {
        &self.lines
    }

    /// Returns the byte offset of a number of units in `text`, the text of this index. A number beyond the text is its
    /// end. One inside of a line break is before it, and one inside of a character at its start.
    pub fn offset(&self, text: &str, units: usize) -> usize {
        let line = self.units.partition_point(|before| *before <= units).saturating_sub(1);
        let character = units.saturating_sub(self.units[line]);
        let position = Position { line: line as u32, character: u32::try_from(character).unwrap_or(u32::MAX) };
        self.lines.offset(text, position)
    }

    /// Returns the number of units before a position that the lines of this index have returned.
    pub fn units(&self, position: Position) -> usize {
        self.units.get(position.line as usize).copied().unwrap_or_default() + position.character as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_counted_over_the_whole_text() {
        let text = "a😀b\r\né\n\nz";
        let index = UnitIndex::new(text);
        let units_of = |offset| index.units(index.lines().position(text, offset));
        for (units, offset) in [(0, 0), (1, 1), (3, 5), (4, 6), (6, 8), (7, 10), (8, 11), (9, 12), (10, 13)] {
            assert_eq!((index.offset(text, units), units_of(offset)), (offset, units));
        }
        assert_eq!((index.offset(text, 2), index.offset(text, 5)), (1, 6), "inside of a character and of a line break");
        assert_eq!((index.offset(text, usize::MAX), units_of(usize::MAX)), (text.len(), 10));
        let empty = UnitIndex::new("");
        assert_eq!((empty.offset("", 7), empty.units(Position::default())), (0, 0));
    }

    #[test]
    fn positions_count_utf_16_units() {
        let text = "a😀b\r\né\n";
        let index = LineIndex::new(text);
        for (line, character, offset) in [(0, 0, 0), (0, 1, 1), (0, 3, 5), (0, 4, 6), (1, 0, 8), (1, 1, 10), (2, 0, 11)]
        {
            let position = Position { line, character };
            assert_eq!(index.offset(text, position), offset, "{position:?}");
            assert_eq!(index.position(text, offset), position);
        }
    }

    #[test]
    fn positions_that_do_not_exist_are_moved_into_the_text() {
        let text = "a😀b\r\né";
        let index = LineIndex::new(text);
        let at = |line, character| index.offset(text, Position { line, character });
        assert_eq!(at(0, 2), 1, "inside of a pair of surrogates");
        assert_eq!((at(0, 99), at(1, u32::MAX), at(u32::MAX, 0)), (6, text.len(), text.len()));
        assert_eq!(index.position(text, 3), Position { line: 0, character: 1 });
        assert_eq!(index.position(text, usize::MAX), Position { line: 1, character: 1 });
        assert_eq!(index.offset_of_column(text, 1, 3), 5);
        assert_eq!(index.offset_of_column(text, 9, 9), text.len());
    }
}
