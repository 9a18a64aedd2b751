//! Data on standard output, for programs and people.

use std::io::{self, Write};

use serde::Serialize;

use crate::{problem::Problem, terminal::inert_json};

/// Writes data to standard output. A reader who has gone is no error: it has all that it wanted.
pub(crate) fn put(text: &str) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Problem::internal("cannot write to standard output").because(&error))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON value over several lines to standard output.
pub(crate) fn put_json(value: &impl Serialize) -> Result<(), Problem> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Problem::internal("cannot write the result as JSON").because(&error))?;
    put(&format!("{}\n", inert_json(&text)))
}

/// Writes one line to standard output.
pub(crate) fn put_line(line: &str) -> Result<(), Problem> {
    put(&format!("{}\n", inert_json(line)))
}
