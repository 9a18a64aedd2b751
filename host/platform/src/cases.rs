//! Test cases of flows: their format, the run of a case in virtual time, and the comparison with the expected outcome.
//!
//! | module | contents |
//! |---|---|
//! | [`addresses`] | the addresses of nodes in a case |
//! | [`file`] | the text of a file of cases |
//! | [`format`] | one case |
//! | [`fixtures`] | results of nodes, and replies to calls that leave the host |
//! | [`expected`] | the comparison of values |
//! | [`trial`] | the run of a case |

pub mod addresses;
pub mod expected;
pub mod file;
pub mod fixtures;
pub mod format;
pub mod trial;
