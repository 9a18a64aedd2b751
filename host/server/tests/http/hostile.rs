//! Whoever means harm: cases of the catalogue of attacks, whose ids the names of the tests begin with. Beside each somebody else goes
//! on.

mod approvals;
mod bodies;
mod expressions;
mod flows;
mod household;
mod listeners;
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
