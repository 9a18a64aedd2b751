//! `flowcell compile`: what this program starts to compile the packs of strangers. It is not for people.

use std::{io, path::PathBuf};

use crate::problem::{Exit, Problem};

/// This program, as it was started.
pub(super) fn program() -> Option<PathBuf> {
    // The file may be replaced while this process runs; the link leads to what it was started from.
    let itself = PathBuf::from("/proc/self/exe");
    if itself.exists() { Some(itself) } else { std::env::current_exe().ok() }
}

pub(super) fn execute() -> Result<Exit, Problem> {
    flowcell::compile(io::stdin().lock(), io::stdout().lock()).map_err(|error| Problem::wrong(format!("{error:#}")))?;
    Ok(Exit::Good)
}
