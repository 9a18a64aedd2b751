//! Patterns of `matches`: regular expressions with a search time that is linear in the text.

use regex_lite::{Error, Regex, RegexBuilder};

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
                Ok(regex) => return Ok(Pattern { regex, size }),
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
        if self.cost(text) > limits::SEARCH_WORK {
            let longest = limits::SEARCH_WORK / self.size;
            return Err(format!("the text is too long for this pattern, which can search at most {longest} bytes"));
        }
        Ok(self.regex.is_match(text))
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
