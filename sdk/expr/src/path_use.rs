//! The uses of paths in expressions.

use std::ops::Range;

use crate::path::Path;

/// A path that an expression reads, with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct PathUse {
    /// The longest part of the path that is known before evaluation.
    pub path: Path,
    /// JSON Pointer to the text that contains the path.
    pub pointer: String,
    /// The path's bytes in that text.
    pub bytes: Option<Range<usize>>,
    /// True if the value may be missing because the expression only tests for it: with `default`, `is defined`,
    /// `exists` or a comparison with null.
    pub is_tested: bool,
}

impl PathUse {
    /// Returns the same position in a value at a JSON Pointer.
    pub(crate) fn below(self, pointer: &str) -> PathUse {
        PathUse { pointer: format!("{pointer}{}", self.pointer), ..self }
    }
}
