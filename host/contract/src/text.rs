//! Characters that make a text look like a different text.

/// Returns true if a reader cannot see the character `letter`, or if it makes the characters around it appear in
/// another order. `before` and `after` are its neighbours; `None` at an end of the text.
///
/// | characters | deceptive |
/// |---|---|
/// | bidirectional embeddings, overrides and isolates, zero-width spaces, soft hyphens, invisible operators | always |
/// | line and paragraph separators, interlinear annotations, tags | always |
/// | Hangul fillers of keyboards, inherent vowels of Khmer | always |
/// | zero-width joiners and non-joiners, marks of direction | unless a neighbour is not ASCII (other scripts) |
/// | fillers of old Hangul, variation selectors, grapheme joiners, the empty cell of Braille | the same |
pub fn is_deceptive(before: Option<char>, letter: char, after: Option<char>) -> bool {
    match letter {
        '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => true,
        '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        '\u{61c}'
        | '\u{200c}'..='\u{200f}'
        | '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{180b}'..='\u{180f}'
        | '\u{2800}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{e0100}'..='\u{e01ef}' => [before, after].into_iter().flatten().all(|letter| letter.is_ascii()),
        _ => false,
    }
}

/// Returns true if a reader may overlook this character: it is invisible or blank, or it only changes the character or
/// the direction beside it. This covers all characters of [`is_deceptive`] and more. Use this function for texts that a
/// person approves and that may contain escapes.
pub fn is_hidden(letter: char) -> bool {
    is_deceptive(None, letter, None)
        || matches!(letter, '\u{7f}'..='\u{a0}' | '\u{fff0}'..='\u{fff8}' | '\u{e0080}'..='\u{e0fff}')
}

/// Returns the characters of a text, each with a flag: true if the character is deceptive.
pub fn judged(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut before = None;
    let mut letters = text.chars().peekable();
    std::iter::from_fn(move || {
        let letter = letters.next()?;
        let deceptive = is_deceptive(before, letter, letters.peek().copied());
        before = Some(letter);
        Some((letter, deceptive))
    })
}

/// Returns whether a text contains a deceptive character.
pub fn has_deceptive(text: &str) -> bool {
    !text.is_ascii() && judged(text).any(|(_, deceptive)| deceptive)
}

/// Returns the text with each deceptive character written as `\u{…}`, so that a reader sees it.
pub fn revealed(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (letter, deceptive) in judged(text) {
        if deceptive { shown.extend(letter.escape_unicode()) } else { shown.push(letter) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deceptive_characters_are_found_and_shown() {
        for (text, shown) in [
            ("plain", "plain"),
            ("pay \u{202e}001$", "pay \\u{202e}001$"),
            ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
            ("pay\u{200b}pal", "pay\\u{200b}pal"),
            ("pay\u{200d}pal", "pay\\u{200d}pal"),
            ("a\u{200e}", "a\\u{200e}"),
            ("\u{feff}a\u{2060}b\u{ad}c", "\\u{feff}a\\u{2060}b\\u{ad}c"),
            ("a\u{e0041}\u{e007f}", "a\\u{e0041}\\u{e007f}"),
            ("one\u{2028}two", "one\\u{2028}two"),
            ("\u{3164}a\u{ffa0}", "\\u{3164}a\\u{ffa0}"),
            ("pay\u{2800}pal\u{fe0f}", "pay\\u{2800}pal\\u{fe0f}"),
            // A family, Persian with a non-joiner, Hebrew with a mark, a red heart, and a picture of Braille cells.
            ("\u{2764}\u{fe0f}", "\u{2764}\u{fe0f}"),
            ("\u{28ff}\u{2800}\u{2801}", "\u{28ff}\u{2800}\u{2801}"),
            ("\u{1f469}\u{200d}\u{1f467}", "\u{1f469}\u{200d}\u{1f467}"),
            ("\u{645}\u{6cc}\u{200c}\u{62e}", "\u{645}\u{6cc}\u{200c}\u{62e}"),
            ("\u{5d0}\u{200f}!", "\u{5d0}\u{200f}!"),
        ] {
            assert_eq!(revealed(text), shown);
            assert_eq!(has_deceptive(text), text != shown, "{shown}");
        }
    }

    #[test]
    fn always_deceptive_characters_are_hidden() {
        let all = || (0..=u32::from(char::MAX)).filter_map(char::from_u32);
        assert!(all().filter(|letter| is_deceptive(None, *letter, None)).all(is_hidden));
        assert!(all().filter(char::is_ascii_graphic).all(|letter| !is_hidden(letter)) && !is_hidden(' '));
        assert!("\u{34f}\u{3164}\u{fe0f}\u{e0100}".chars().all(is_hidden) && !"üя中\u{1f469}".chars().any(is_hidden));
    }
}
