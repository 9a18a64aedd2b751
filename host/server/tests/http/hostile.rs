//! Attacks on the server. The names of the tests begin with the ids of the cases in `tests/README.md`. In each test
//! another tenant continues to work.

mod approvals;
mod bodies;
mod expressions;
mod flows;
mod household;
mod listeners;
mod memory;
mod neighbours;
mod paths;
mod places;
mod routes;
mod rows;
mod schemas;
mod slow;
mod streams;
mod trees;
mod wire;
