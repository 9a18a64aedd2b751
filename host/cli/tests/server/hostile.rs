//! Attacks on the program. The name of each test begins with the id of its case in `tests/README.md`.

mod bodies;
mod crowd;
mod drain;
mod traced;
mod trees;
mod wire;
