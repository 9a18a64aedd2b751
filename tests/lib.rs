//! Tests across crates. The tests of a single crate are in that crate.
