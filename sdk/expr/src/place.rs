//! Where an expression names a path.

use std::ops::Range;

use crate::path::Path;

/// A path that is read, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The path.
    pub path: Path,
    /// A JSON Pointer to the text that names it.
    pub pointer: String,
    /// Its bytes in that text.
    pub bytes: Option<Range<usize>>,
    /// Whether the value may be missing, because it is only tested: by `default`, `is defined`, `exists` or a comparison
    /// with null.
    pub is_tested: bool,
}

impl Place {
    /// The same place in a value that stands at a pointer.
    pub(crate) fn below(self, pointer: &str) -> Place {
        Place { pointer: format!("{pointer}{}", self.pointer), ..self }
    }
}
