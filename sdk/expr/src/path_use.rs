//! The paths that an expression contains, with their positions.

use std::ops::Range;

use crate::path::Path;

/// A path that an expression reads, with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct PathUse {
    /// The longest part of the path that is known before evaluation.
    pub path: Path,
    /// JSON Pointer to the text that contains the path.
    pub pointer: String,
    /// The path's byte range in the text at `pointer`.
    pub bytes: Option<Range<usize>>,
    /// True if the value may be missing because the expression only tests for it: with `default`, `is defined`,
    /// `exists` or a comparison with null.
    pub is_tested: bool,
    /// True if the value may be the key of `hmac`.
    pub is_key: bool,
}

impl PathUse {
    /// Puts `pointer` before the pointer of this use. `pointer` leads from a larger value to the one that contains the
    /// use.
    pub(crate) fn below(self, pointer: &str) -> PathUse {
        PathUse { pointer: format!("{pointer}{}", self.pointer), ..self }
    }
}

/// The paths in a value or a condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reads {
    /// Every path, as far as it is known before evaluation.
    pub paths: Vec<PathUse>,
    /// Longer forms of paths, which lead into the items of lists: a member after a filter or a computed index, and the
    /// attribute of a filter, as in `list | sort(attribute='x')`. Index 0 represents any item. Evaluation does not use
    /// these paths.
    pub item_paths: Vec<PathUse>,
}

impl Reads {
    /// Appends the paths of a value. `pointer` leads from the larger value to this one.
    pub(crate) fn add_below(&mut self, pointer: &str, other: Reads) {
        self.paths.extend(other.paths.into_iter().map(|path_use| path_use.below(pointer)));
        self.item_paths.extend(other.item_paths.into_iter().map(|path_use| path_use.below(pointer)));
    }
}
