//! Commands that are not for people: `flowcell compile` compiles the packs of strangers for another process of this program,
//! `flowcell watch-programs` ends the programs of another process of this program when that process ends.

use std::{io, path::PathBuf};

use flowcell::watchdog;

use crate::problem::{Exit, Problem};

/// This program, as it was started.
pub(crate) fn program() -> Option<PathBuf> {
    // The file may be replaced while this process runs; the link leads to what it was started from.
    let itself = PathBuf::from("/proc/self/exe");
    if itself.exists() { Some(itself) } else { std::env::current_exe().ok() }
}

/// Arms the watchdog, which is this program as well.
pub(crate) fn arm_watchdog() {
    if let Some(program) = program() {
        watchdog::arm(program, vec!["watch-programs".into()]);
    }
}

/// Ends the programs of a process that is gone.
pub(crate) fn watch_programs() -> Exit {
    watchdog::watch(io::stdin().lock());
    Exit::Good
}

/// Compiles a pack for the process that has started this one.
pub(crate) fn compile() -> Result<Exit, Problem> {
    flowcell::compile(io::stdin().lock(), io::stdout().lock()).map_err(|error| Problem::wrong(format!("{error:#}")))?;
    Ok(Exit::Good)
}
