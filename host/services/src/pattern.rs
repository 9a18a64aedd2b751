//! Matches texts against patterns in which `*` stands for any characters, including none.

/// Returns true if a pattern matches the whole text. The number of steps is at most the product of both lengths.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(begin) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    let mut left = text;
    for part in parts {
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_letters() {
        let table = [
            ("a/b", "a/b", true),
            ("a/b", "a/bc", false),
            ("a/*", "a/b/c", true),
            ("a/*", "a/", true),
            ("a/*", "b/a/", false),
            ("*", "", true),
            ("*/gpt-*-mini", "openai/gpt-5-mini", true),
            ("*/gpt-*-mini", "openai/gpt-5-mini-2", false),
            ("a*a", "a", false),
            ("a*b*b", "ab", false),
            ("a**b", "ab", true),
            ("", "a", false),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// Policies rely on this property: they match their pattern against the text of a grant, which may itself be a
    /// pattern.
    #[test]
    fn a_pattern_that_matches_a_pattern_matches_all_texts_of_it() {
        let words = |letters: &[char], most: usize| {
            let mut words = vec![String::new()];
            let mut from = 0;
            for _ in 0..most {
                let until = words.len();
                for word in from..until {
                    words.extend(letters.iter().map(|letter| format!("{}{letter}", words[word])).collect::<Vec<_>>());
                }
                from = until;
            }
            words
        };
        let (patterns, texts) = (words(&['a', '/', '*'], 4), words(&['a', '/'], 4));
        for policy in &patterns {
            for grant in patterns.iter().filter(|grant| matches(policy, grant)) {
                let reached = texts.iter().find(|text| matches(grant, text) && !matches(policy, text));
                assert_eq!(reached, None, "{policy} {grant}");
            }
        }
    }
}
