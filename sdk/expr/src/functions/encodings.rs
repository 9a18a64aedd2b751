//! Functions for encodings and digests.

use super::Function;

pub(super) const FUNCTIONS: &[Function] = &[];
