//! Regular expressions with a search time that is linear in the text.

mod chain;

use regex_lite::{Captures, Error, Match, Regex, RegexBuilder};

use self::chain::length_of_chain;
use crate::limits;

/// The size limit in bytes with which a pattern is compiled first. While the pattern is larger, the limit is doubled,
/// up to [`limits::PATTERN_PROGRAM_BYTES`].
const FIRST_SIZE_LIMIT: usize = 256;

/// A compiled pattern. It matches anywhere in a text; `^` and `$` anchor it.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// The size limit in bytes that sufficed to compile the pattern, a power of two. It stands for the pattern's size.
    size: usize,
    /// The result of [`length_of_chain`].
    chain: Option<usize>,
}

impl Pattern {
    /// Compiles a pattern; the error is a sentence.
    pub(crate) fn new(pattern: &str) -> Result<Pattern, String> {
        if pattern.len() > limits::PATTERN_BYTES {
            return Err(format!("a pattern is longer than {} bytes", limits::PATTERN_BYTES));
        }
        // The library does not return the size of a program. It only fails if the program exceeds a limit.
        let mut size = FIRST_SIZE_LIMIT;
        loop {
            match compile(pattern, size) {
                Ok(regex) => return Ok(Pattern { regex, size, chain: length_of_chain(pattern) }),
                Err(_) if size < limits::PATTERN_PROGRAM_BYTES => size *= 2,
                Err(error) => return Err(format!("the pattern is not valid: {error}")),
            }
        }
    }

    /// Returns the cost of searching a text, in units of [`limits::SEARCH_WORK`].
    pub(crate) fn cost(&self, text: &str) -> usize {
        text.len().saturating_mul(self.size)
    }

    /// Returns true if the pattern matches a part of the text. The error, a sentence, says that the text is too long.
    pub(crate) fn search(&self, text: &str) -> Result<bool, String> {
        self.check_length(text)?;
        Ok(self.regex.is_match(text))
    }

    /// Returns an error, a sentence, for a text that is too long for this pattern.
    pub(crate) fn check_length(&self, text: &str) -> Result<(), String> {
        if self.cost(text) > limits::SEARCH_WORK {
            let longest = limits::SEARCH_WORK / self.size;
            return Err(format!("the text is too long for this pattern, which can search at most {longest} bytes"));
        }
        Ok(())
    }

    /// Returns the first match that starts at byte `start` or later. The caller bounds the cost.
    pub(crate) fn find_at<'t>(&self, text: &'t str, start: usize) -> Option<Match<'t>> {
        self.regex.find_at(text, start)
    }

    /// Returns the groups of the first match that starts at byte `start` or later. The caller bounds the cost.
    pub(crate) fn captures_at<'t>(&self, text: &'t str, start: usize) -> Option<Captures<'t>> {
        self.regex.captures_at(text, start)
    }

    /// Returns the name of each group, the whole match first; `None` for groups without a name.
    pub(crate) fn group_names(&self) -> impl Iterator<Item = Option<&str>> {
        self.regex.capture_names()
    }

    /// Returns the size in bytes for which the pattern counts.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the maximum number of characters that each search reads a second time, if the searches for all matches in
    /// a text otherwise read it at most twice. `None` if each of them may read the whole text.
    pub(crate) fn read_again(&self) -> Option<usize> {
        self.chain.map(|length| length + 1)
    }
}

fn compile(pattern: &str, size: usize) -> Result<Regex, Error> {
    RegexBuilder::new(pattern).size_limit(size).nest_limit(32).build()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn larger_patterns_search_shorter_texts() {
        for (pattern, longest) in [("a+", 1 << 20), ("(a?){100}b", 8 << 10)] {
            let pattern = Pattern::new(pattern).unwrap();
            assert!(pattern.search(&"a".repeat(longest)).is_ok(), "{pattern:?}");
            assert!(pattern.search(&"a".repeat(longest + 1)).is_err(), "{pattern:?}");
        }
    }
}
