//! `flowcell schema`: what editors need to help with flow files.

use crate::{
    output::put_json,
    problem::{Exit, Problem},
};

pub(super) fn execute() -> Result<Exit, Problem> {
    put_json(&flowcell::schema())?;
    Ok(Exit::Good)
}
