//! Writes events as lines of JSON, to a file or standard output.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use flowcell_runtime::{Channel, Event, LiveEvent};
use parking_lot::Mutex;
use serde::Serialize;

use super::{Notice, Notices};

/// Writes each event when it happens, so that a reader can follow. Several runs may write to one `JsonLines`.
pub struct JsonLines {
    name: String,
    lives: bool,
    /// `None` once the reader has gone or a write has failed.
    out: Mutex<Option<Box<dyn Write + Send>>>,
    notices: Notices,
}

impl JsonLines {
    /// Creates or truncates a file, or opens standard output (`-`).
    pub fn open(path: &Path, notices: Notices) -> io::Result<JsonLines> {
        let name = path.display().to_string();
        let out: Box<dyn Write + Send> =
            if name == "-" { Box::new(io::stdout()) } else { Box::new(File::create(path)?) };
        Ok(JsonLines { name, lives: true, out: Mutex::new(Some(out)), notices })
    }

    /// Returns the same channel without live events, so that the output has exactly the events of the journal.
    pub fn recorded_only(self) -> JsonLines {
        JsonLines { lives: false, ..self }
    }

    fn write(&self, event: &impl Serialize) {
        let mut target = self.out.lock();
        let Some(out) = &mut *target else { return };
        let written = serde_json::to_vec(event).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            out.write_all(&line)
        });
        if let Err(error) = written {
            *target = None;
            // A reader that closes the pipe is not an error.
            if error.kind() != io::ErrorKind::BrokenPipe {
                let why = format!("cannot write all events to {}: {error}", self.name);
                (self.notices)(Notice::Trouble(why));
            }
        }
    }
}

impl Channel for JsonLines {
    fn on_event(&self, event: &Event) {
        self.write(event);
    }

    fn on_live(&self, event: &LiveEvent) {
        if self.lives {
            self.write(event);
        }
    }
}
