//! Attacks on the program. The name of each test begins with the id of its case in the catalogue.

mod bodies;
mod crowd;
mod drain;
mod traced;
mod trees;
mod wire;
