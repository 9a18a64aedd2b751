//! Patterns of `matches`: regular expressions whose search time grows with the text, never faster.

use regex_lite::{Error, Regex, RegexBuilder};

use crate::limits;

/// The bytes that a small compiled pattern fits into.
const SMALLEST_PROGRAM: usize = 256;

/// One compiled pattern. It searches anywhere in a text; `^` and `$` tie it to the ends.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// Bytes that the compiled pattern fits into, a power of two.
    size: usize,
}

impl Pattern {
    /// Compiles a pattern; the error is a sentence.
    pub(crate) fn new(pattern: &str) -> Result<Pattern, String> {
        if pattern.len() > limits::PATTERN_BYTES {
            return Err(format!("a pattern is longer than {} bytes", limits::PATTERN_BYTES));
        }
        // The library tells only whether a program fits into a size.
        let mut size = SMALLEST_PROGRAM;
        loop {
            match compile(pattern, size) {
                Ok(regex) => return Ok(Pattern { regex, size }),
                Err(_) if size < limits::PATTERN_PROGRAM_BYTES => size *= 2,
                Err(error) => return Err(format!("the pattern is not valid: {error}")),
            }
        }
    }

    /// What searching a text costs, in units of [`limits::SEARCH_WORK`].
    pub(crate) fn cost(&self, text: &str) -> usize {
        text.len().saturating_mul(self.size)
    }

    /// Searches a text; the error is a sentence.
    pub(crate) fn search(&self, text: &str) -> Result<bool, String> {
        if self.cost(text) > limits::SEARCH_WORK {
            let longest = limits::SEARCH_WORK / self.size;
            return Err(format!("this pattern searches no text longer than {longest} bytes"));
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
    fn the_larger_the_pattern_the_shorter_the_text() {
        for (pattern, longest) in [("a+", 1 << 20), ("(a?){100}b", 8 << 10)] {
            let pattern = Pattern::new(pattern).unwrap();
            assert!(pattern.search(&"a".repeat(longest)).is_ok(), "{pattern:?}");
            assert!(pattern.search(&"a".repeat(longest + 1)).is_err(), "{pattern:?}");
        }
    }
}
