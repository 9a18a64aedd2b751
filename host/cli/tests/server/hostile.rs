//! Attacks on the program: cases of the catalogue, whose ids the names of the tests begin with.

mod bodies;
mod crowd;
mod drain;
mod traced;
mod wire;
