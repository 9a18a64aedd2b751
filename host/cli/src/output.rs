//! Writes data to standard output, for programs and people.

use std::{
    fs::{self, File},
    io::{self, BufWriter, IsTerminal, Stdout, Write},
    ops::ControlFlow,
    path::Path,
};

use serde::Serialize;

use crate::{
    cli_error::CliError,
    terminal::{guarded, inert_json},
};

/// Writes text for people to standard output, with terminal commands escaped. A closed pipe is not an error.
pub(crate) fn put(text: &str) -> Result<(), CliError> {
    write(&guarded(text))
}

/// Writes text to standard output byte for byte. If standard output is a terminal, escapes terminal commands like
/// [`put`].
pub(crate) fn put_exactly(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() { put(text) } else { write(text) }
}

fn write(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    ignore_closed_pipe(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Converts the result of a write to standard output to the result of the command. A closed pipe is not an error, since
/// the reader wants no more.
fn ignore_closed_pipe(written: io::Result<()>) -> Result<(), CliError> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::internal("cannot write to standard output").because(&error))
        }
        _ => Ok(()),
    }
}

/// Writes JSON values to standard output, one on each line, in large blocks.
pub(crate) struct JsonLines {
    out: BufWriter<Stdout>,
    /// Set if standard output is a terminal.
    is_watched: bool,
    written: io::Result<()>,
}

impl Default for JsonLines {
    fn default() -> JsonLines {
        let is_watched = io::stdout().is_terminal();
        JsonLines { out: BufWriter::with_capacity(64 << 10, io::stdout()), is_watched, written: Ok(()) }
    }
}

impl JsonLines {
    /// Writes one value. Returns `Break` if the write failed, so that the caller stops.
    pub(crate) fn put(&mut self, value: &impl Serialize) -> ControlFlow<()> {
        let json = match self.is_watched {
            true => serde_json::to_string(value).map(|text| self.out.write_all(inert_json(&text).as_bytes())),
            false => serde_json::to_writer(&mut self.out, value).map(Ok),
        };
        self.written = json.map_err(io::Error::from).flatten().and_then(|()| self.out.write_all(b"\n"));
        if self.written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Writes the buffered lines. Fails if any write has failed. A closed pipe is not an error.
    pub(crate) fn end(mut self) -> Result<(), CliError> {
        ignore_closed_pipe(std::mem::replace(&mut self.written, Ok(())).and_then(|()| self.out.flush()))
    }
}

/// Writes one JSON value over several lines to standard output.
pub(crate) fn put_json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| CliError::internal("cannot write the result as JSON").because(&error))?;
    put(&format!("{}\n", inert_json(&text)))
}

/// Writes one line to standard output.
pub(crate) fn put_line(line: &str) -> Result<(), CliError> {
    put(&format!("{}\n", inert_json(line)))
}

/// Writes a file completely or not at all: writes a temporary file beside it, and renames that once it is complete. An
/// existing file keeps its permissions, and a link to it stays a link.
pub(crate) fn replace_file(
    file: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut beside = target.as_os_str().to_owned();
    beside.push(".part");
    let unwritable = |error: io::Error| unwritable(file, &error);
    let mut out = BufWriter::new(File::create(&beside).map_err(unwritable)?);
    let kept = match fs::metadata(&target) {
        Ok(old) => fs::set_permissions(&beside, old.permissions()).map_err(unwritable),
        Err(_) => Ok(()),
    };
    let written = kept.and_then(|()| write(&mut out)).and_then(|()| out.flush().map_err(unwritable));
    drop(out);
    let placed = written.and_then(|()| fs::rename(&beside, &target).map_err(unwritable));
    placed.inspect_err(|_| _ = fs::remove_file(&beside))
}

/// Returns the error of a file that cannot be written.
pub(crate) fn unwritable(file: &Path, error: &io::Error) -> CliError {
    CliError::wrong(format!("cannot write {}", file.display())).because(error)
}
