//! Commands that a process of this program starts as child processes. `flowcell compile` compiles untrusted packs.
//! `flowcell watch-programs` kills the programs that its parent has started, after the parent's end.

use std::{io, path::PathBuf};

use flowcell::watchdog;

use crate::cli_error::{CliError, Exit};

/// Returns the executable file of this process.
pub(crate) fn program() -> Option<PathBuf> {
    // The file may be replaced while this process runs. On Linux this link still leads to the original file.
    let itself = PathBuf::from("/proc/self/exe");
    if itself.exists() { Some(itself) } else { std::env::current_exe().ok() }
}

/// Arms the watchdog: a child process that runs `flowcell watch-programs`.
pub(crate) fn arm_watchdog() {
    if let Some(program) = program() {
        watchdog::arm(program, vec!["watch-programs".into()]);
    }
}

/// Waits for the end of the parent process, then kills the programs that the parent has started.
pub(crate) fn watch_programs() -> Exit {
    watchdog::watch(io::stdin().lock());
    Exit::Good
}

/// Compiles a pack from standard input to standard output, for the parent process.
pub(crate) fn compile() -> Result<Exit, CliError> {
    flowcell::compile(io::stdin().lock(), io::stdout().lock())
        .map_err(|error| CliError::wrong(format!("{error:#}")))?;
    Ok(Exit::Good)
}
