//! Tests of the whole: what holds across crates. Tests of one crate stand in that crate.
