//! Generates a text that matches a simple regular expression of characters, character classes and groups. It takes the
//! first of several alternatives, and repeats a part as rarely as the expression permits.

use std::{iter::Peekable, str::Chars};

/// Maximum repetitions of one part.
const MAX_REPETITIONS: usize = 256;
/// Maximum nesting of groups.
const MAX_DEPTH: usize = 16;

/// Returns a text that the pattern probably matches; `None` if the pattern is too complex. The caller must check the
/// text.
pub(super) fn text(pattern: &str) -> Option<String> {
    let mut letters = pattern.chars().peekable();
    let sample = alternatives(&mut letters, 0)?;
    letters.next().is_none().then_some(sample)
}

/// Returns a text for the first of the alternatives that `|` separates. It reads the other alternatives too, but does
/// not use them.
fn alternatives(letters: &mut Peekable<Chars<'_>>, depth: usize) -> Option<String> {
    if depth > MAX_DEPTH {
        return None;
    }
    let first = sequence(letters, depth)?;
    while letters.next_if_eq(&'|').is_some() {
        sequence(letters, depth)?;
    }
    Some(first)
}

fn sequence(letters: &mut Peekable<Chars<'_>>, depth: usize) -> Option<String> {
    let mut sample = String::new();
    while let Some(letter) = letters.next_if(|letter| !matches!(letter, '|' | ')')) {
        let part = match letter {
            '^' | '$' => continue,
            '.' => "a".to_owned(),
            '\\' => read_escape(letters.next()?)?.to_string(),
            '[' => class(letters)?.to_string(),
            '(' => group(letters, depth)?,
            '*' | '+' | '?' | '{' => return None,
            plain => plain.to_string(),
        };
        sample.push_str(&part.repeat(min_repetitions(letters)?));
    }
    Some(sample)
}

fn group(letters: &mut Peekable<Chars<'_>>, depth: usize) -> Option<String> {
    if letters.next_if_eq(&'?').is_some() {
        letters.next_if_eq(&':')?;
    }
    let sample = alternatives(letters, depth + 1)?;
    letters.next_if_eq(&')')?;
    Some(sample)
}

/// Reads the repetition after a part, such as `*` or `{2,3}`. Returns its minimum, or 1 without a repetition. `None`
/// if it is invalid or larger than [`MAX_REPETITIONS`].
fn min_repetitions(letters: &mut Peekable<Chars<'_>>) -> Option<usize> {
    let least = match letters.peek() {
        Some('*' | '?') => 0,
        Some('+') => 1,
        Some('{') => {
            letters.next();
            let mut inner = String::new();
            while let Some(letter) = letters.next_if(|letter| *letter != '}') {
                inner.push(letter);
            }
            inner.split(',').next()?.trim().parse().ok().filter(|least| *least <= MAX_REPETITIONS)?
        }
        _ => return Some(1),
    };
    letters.next()?;
    letters.next_if_eq(&'?');
    Some(least)
}

fn read_escape(letter: char) -> Option<char> {
    match letter {
        'd' => Some('0'),
        'w' => Some('a'),
        's' => Some(' '),
        letter if letter.is_alphanumeric() => None,
        letter => Some(letter),
    }
}

/// Returns the first character of a class such as `[a-z]`. For a negated class such as `[^a]`, returns a letter
/// or digit that is not written in the class; it may lie inside a range of the class, such as `b-y`, and then
/// does not match.
fn class(letters: &mut Peekable<Chars<'_>>) -> Option<char> {
    let negated = letters.next_if_eq(&'^').is_some();
    let mut members = Vec::new();
    loop {
        match letters.next()? {
            ']' if !members.is_empty() => break,
            '\\' => members.push(read_escape(letters.next()?)?),
            '[' => return None,
            letter => members.push(letter),
        }
    }
    if !negated {
        return members.first().copied();
    }
    // If the class has ranges, this letter may be in one of them. The caller checks the text.
    ('a'..='z').chain('0'..='9').chain('A'..='Z').rev().find(|letter| !members.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn samples_match_their_patterns() {
        let patterns = [
            "^abc$",
            "^[a-z]+$",
            "^[A-Z]{2}-\\d{4}$",
            "^(foo|bar)baz$",
            "^(?:a|b)(c(d|e)){2,3}$",
            "^a*b?c+$",
            "^\\w+@\\w+\\.\\w{2,}$",
            "^#[0-9a-fA-F]{6}$",
            "^[^/]+$",
            "^.{3,}$",
            "x|y",
            "",
            "^a+?$",
        ];
        for pattern in patterns {
            let sample = text(pattern).unwrap();
            assert!(regex_lite::Regex::new(pattern).unwrap().is_match(&sample), "{pattern} {sample:?}");
        }
    }

    #[test]
    fn unsupported_patterns_have_no_sample() {
        for pattern in ["(?=a)b", "\\p{L}", "[[:alpha:]]", "a{1000}", "(", "a)", "[", "*", "\\"] {
            assert_eq!(text(pattern), None, "{pattern}");
        }
        assert_eq!(text(&"(".repeat(10_000)), None);
    }
}
