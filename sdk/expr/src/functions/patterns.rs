//! Functions for regular expressions.

use super::{Function, test};

pub(super) const FUNCTIONS: &[Function] = &[test(
    &["matches"],
    "x is matches(pattern)",
    "True for a text if the regular expression matches a part of it; false for a missing or null value.",
    (r"'AB-12' is matches('^[A-Z]+-\\d+$')", "true"),
)];
