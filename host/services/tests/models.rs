//! Turns of models over real connections to a strict fake on this machine. The tests control the clock, so they never
//! wait. Ids such as `r20` in the names of tests are rows in the tables of `tests/README.md`.

mod aimock;
mod configuration;
mod conversations;
mod deltas;
mod kit;
mod refusals;
mod retries;
mod secrets;
mod simulated;
mod streams;
mod usage;
