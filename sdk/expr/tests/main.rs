//! Tests expressions.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod calls;
mod captured;
mod comparisons;
mod dates;
mod files;
mod functions;
mod hostile;
mod hostile_functions;
mod lexing;
mod random;
mod reads;
mod strict;
mod tables;
mod world;
