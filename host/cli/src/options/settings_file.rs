//! Files of settings for a server that the operator names.

use std::path::Path;

use flowcell::settings_file::SettingsFile;

use crate::{
    cli_error::CliError,
    terminal::{Terminal, counted},
};

/// Reads a file, if one is given.
pub(super) fn read<F: SettingsFile>(path: Option<&Path>) -> Result<Option<F>, CliError> {
    let read = path.map(F::read).transpose();
    read.map_err(|error| CliError::wrong(error.to_string()).hint(error.help()))
}

/// Returns the error of a file whose secrets cannot be read.
pub(super) fn unopened(path: &Path, why: &str) -> CliError {
    CliError::wrong(format!("{}: {why}", path.display())).hint("set the variable, or write the file that is named")
}

/// Opens a file for a check, and says that its `count` parts were checked. `what` is such as `target` and `of notifications`.
/// Warns if there are none, with `consequence`.
pub(super) fn check<T>(
    open: impl Future<Output = Result<T, CliError>>,
    count: usize,
    (part, what): (&str, &str),
    consequence: &str,
    terminal: Terminal,
) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::internal("cannot start the runtime").because(&error))?;
    runtime.block_on(open)?;
    terminal.say(&format!("checked {} {what}", counted(count, part)));
    if count == 0 {
        terminal.warn(&format!("the file {what} has no {part}s, so {consequence}"));
    }
    Ok(())
}
