//! Data on standard output, for programs and people.

use std::{
    io::{self, BufWriter, Stdout, Write},
    ops::ControlFlow,
};

use serde::Serialize;

use crate::{problem::Problem, terminal::inert_json};

/// Writes data to standard output. A reader who has gone is no error: it has all that it wanted.
pub(crate) fn put(text: &str) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    told(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// A reader who has gone is no error.
fn told(written: io::Result<()>) -> Result<(), Problem> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Problem::internal("cannot write to standard output").because(&error))
        }
        _ => Ok(()),
    }
}

/// Many JSON values on standard output, one a line, which leave many at a time.
pub(crate) struct Lines {
    out: BufWriter<Stdout>,
    written: io::Result<()>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { out: BufWriter::with_capacity(64 << 10, io::stdout()), written: Ok(()) }
    }
}

impl Lines {
    /// Writes one, and says whether more can be written.
    pub(crate) fn put(&mut self, value: &impl Serialize) -> ControlFlow<()> {
        let json = serde_json::to_writer(&mut self.out, value).map_err(io::Error::from);
        self.written = json.and_then(|()| self.out.write_all(b"\n"));
        if self.written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Writes what is left, and says whether everything was written or nobody reads it.
    pub(crate) fn end(mut self) -> Result<(), Problem> {
        told(std::mem::replace(&mut self.written, Ok(())).and_then(|()| self.out.flush()))
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
