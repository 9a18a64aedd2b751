//! `flowcell schema`: what editors need to help with flow files.

use crate::{
    problem::{Exit, Problem},
    terminal::put_json,
};

pub(super) fn execute() -> Result<Exit, Problem> {
    put_json(&flowcell::schema())?;
    Ok(Exit::Good)
}
