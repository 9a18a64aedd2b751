//! Recognizes patterns of which all matches in a text are found in linear time.
//!
//! One search is linear in the text, but a search may read far beyond the match that it finds: `a.*z|a` reads to the end
//! of the line for each `a`. So the searches for all matches may take quadratic time. They do not for a chain: bounded
//! parts and loops of one character or class, in a row and without alternatives. Take the threads that are alive after
//! the last match of a search, in a loop that ends at some place. A later match that ends before this place would lead
//! these threads to a match as well, which the search would have found. So the next match ends beyond it, and every place
//! is read at most twice, apart from the bounded parts.

/// The thing that a quantifier applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Nothing, or something with a quantifier.
    Nothing,
    /// A character, a class or an assertion.
    Atom,
    /// A group without loops.
    Group,
    /// A group with loops.
    Loops,
}

/// A group that is not closed, or the whole pattern.
#[derive(Default)]
struct Open {
    has_alternatives: bool,
    has_loops: bool,
    /// Maximum number of characters that it matches outside of loops.
    length: usize,
}

/// Returns the maximum number of characters that a chain matches outside of its loops. Returns `None` for a pattern that
/// is no chain, and for some chains that are hard to recognize. The pattern must be valid.
pub(super) fn length_of_chain(pattern: &str) -> Option<usize> {
    // Flags such as `(?i)` change none of this, except `x`, which allows comments.
    let behind_flags = pattern.strip_prefix("(?").and_then(|rest| rest.split_once(')'));
    let is_known = |flags: &str| flags.bytes().all(|flag| b"imsU".contains(&flag));
    let body = behind_flags.filter(|(flags, _)| is_known(flags)).map_or(pattern, |(_, body)| body);
    read(body.as_bytes())
}

fn read(bytes: &[u8]) -> Option<usize> {
    let (mut open, mut last, mut at) = (vec![Open::default()], Last::Nothing, 0);
    // The length of the thing that a quantifier applies to.
    let mut length = 1;
    while at < bytes.len() {
        let sign = bytes[at];
        at += 1;
        let length_before = std::mem::replace(&mut length, 1);
        last = match sign {
            b'\\' => {
                at = end_of_escape(bytes, at)?;
                Last::Atom
            }
            b'[' => {
                at = end_of_class(bytes, at)?;
                Last::Atom
            }
            b'(' => {
                at = start_of_group(bytes, at)?;
                open.push(Open::default());
                Last::Nothing
            }
            b')' => {
                let group = open.pop()?;
                let around = open.last_mut()?;
                length = group.length;
                if group.has_loops && group.has_alternatives {
                    return None;
                }
                around.has_loops |= group.has_loops;
                if group.has_loops { Last::Loops } else { Last::Group }
            }
            b'|' => {
                open.last_mut()?.has_alternatives = true;
                Last::Nothing
            }
            b'?' | b'*' | b'+' | b'{' => {
                let (is_loop, times) = match sign {
                    b'{' => {
                        let end = at + bytes[at..].iter().position(|sign| *sign == b'}')?;
                        let counts = std::str::from_utf8(&bytes[at..end]).ok()?;
                        at = end + 1;
                        let largest = counts.trim_end_matches(',').rsplit(',').next()?;
                        (counts.ends_with(','), largest.trim().parse::<usize>().ok()?)
                    }
                    sign => (sign != b'?', 1),
                };
                let around = open.last_mut()?;
                match (last, is_loop) {
                    (Last::Atom, true) => around.has_loops = true,
                    (Last::Atom | Last::Group, false) => {}
                    _ => return None,
                }
                around.length = around.length.saturating_add(length_before.saturating_mul(times.saturating_sub(1)));
                // A second `?` makes the quantifier lazy.
                at += usize::from(bytes.get(at) == Some(&b'?'));
                Last::Nothing
            }
            _ => Last::Atom,
        };
        if matches!(last, Last::Atom | Last::Group | Last::Loops) {
            let around = open.last_mut()?;
            around.length = around.length.saturating_add(length);
        }
    }
    let whole = open.pop()?;
    (open.is_empty() && !(whole.has_loops && whole.has_alternatives)).then_some(whole.length)
}

/// Returns the end of an escape such as `\d` or `\x{41}`. `at` follows the backslash.
fn end_of_escape(bytes: &[u8], at: usize) -> Option<usize> {
    let behind = at + 1;
    if matches!(bytes.get(at)?, b'x' | b'u' | b'U' | b'b') && bytes.get(behind) == Some(&b'{') {
        return Some(behind + bytes[behind..].iter().position(|sign| *sign == b'}')? + 1);
    }
    Some(behind)
}

/// Returns the end of a class such as `[^a-z]`. `at` follows the bracket.
fn end_of_class(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + usize::from(bytes.get(at) == Some(&b'^'));
    // A first `]` is a character.
    at += usize::from(bytes.get(at) == Some(&b']'));
    loop {
        match bytes.get(at)? {
            b']' => return Some(at + 1),
            b'\\' => at += 2,
            // A class in a class, such as `[[:alpha:]_]`, is left to the other way of counting.
            b'[' => return None,
            _ => at += 1,
        }
    }
}

/// Returns the start of a group's content. `at` follows the parenthesis. Flags are not recognized, except a name.
fn start_of_group(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'?') {
        return Some(at);
    }
    let end = bytes[at..].iter().position(|sign| matches!(sign, b':' | b'>'))? + at;
    let flags = &bytes[at + 1..end];
    let is_name = flags.starts_with(b"<") || flags.starts_with(b"P<");
    (is_name || flags.is_empty()).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::length_of_chain;

    #[test]
    fn chains_are_recognized() {
        let chains = [
            (r"\s+", 1),
            (r"\s*,\s*", 3),
            ("<[^>]+>", 3),
            (r"(\w+)@(?P<host>\w+)", 3),
            (r"^\d{4}-(0[1-9]|1[0-2])-\d{2}$", 14),
            ("a.*?z", 3),
            ("[]]+x", 2),
            ("a|bc|d", 4),
            ("(?:ab)?c*", 3),
            ("(a{2}){3}", 6),
            ("(?is)<b>.*?</b>", 8),
        ];
        for (pattern, length) in chains {
            assert_eq!(length_of_chain(pattern), Some(length), "{pattern}");
        }
        let others = [
            "a.*z|a",
            "(a.*z)?a",
            "(a.*z|b)c",
            "(ab)+",
            "(a*)*",
            "((a|b*)c)",
            "(?i:a)+",
            "(?x)a # (\n+",
            "[[:alpha:]]+",
            "(a",
            "a)",
            "a{2,}|b",
            "(?:(?:a{1,}b))?b",
        ];
        for pattern in others {
            assert_eq!(length_of_chain(pattern), None, "{pattern}");
        }
    }
}
