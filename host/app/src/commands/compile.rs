//! `flowcell compile`: what this program starts to compile the packs of strangers. It is not for people.

use std::{io, path::PathBuf};

use flowcell::Compiler;

use crate::problem::{Exit, Problem};

/// This program as a compiler.
pub(super) fn compiler() -> Option<Compiler> {
    // The file may be replaced while this process runs; the link leads to what it was started from.
    let itself = PathBuf::from("/proc/self/exe");
    let program = if itself.exists() { itself } else { std::env::current_exe().ok()? };
    // The allocator would take a GiB of the compiler's memory at once.
    let environment = vec![("MIMALLOC_ARENA_RESERVE".into(), "65536".into())];
    Some(Compiler { program, arguments: vec!["compile".into()], environment })
}

pub(super) fn execute() -> Result<Exit, Problem> {
    flowcell::compile(io::stdin().lock(), io::stdout().lock()).map_err(|error| Problem::wrong(format!("{error:#}")))?;
    Ok(Exit::Good)
}
