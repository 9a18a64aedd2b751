//! Runs the server.
fn main() {}
