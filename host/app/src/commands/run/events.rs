//! `--events`: everything that happens, as JSON lines.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use flowcell::{Channel, Event};

use crate::problem::Problem;

/// Writes each event when it happens, so that a reader can follow.
pub(super) struct EventWriter {
    target: Mutex<Target>,
}

struct Target {
    name: String,
    /// None when nobody reads any more.
    out: Option<Box<dyn Write + Send>>,
    error: Option<io::Error>,
}

impl EventWriter {
    /// Opens a file, or standard output (`-`).
    pub(super) fn open(path: &Path) -> Result<EventWriter, Problem> {
        let name = path.display().to_string();
        let out: Box<dyn Write + Send> = if name == "-" {
            Box::new(io::stdout())
        } else {
            Box::new(
                File::create(path).map_err(|error| Problem::wrong(format!("cannot write {name}")).because(&error))?,
            )
        };
        Ok(EventWriter { target: Mutex::new(Target { name, out: Some(out), error: None }) })
    }

    /// Why not everything could be written.
    pub(super) fn problem(&self) -> Option<String> {
        let target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        target.error.as_ref().map(|error| format!("not all events could be written to {}: {error}", target.name))
    }
}

impl Channel for EventWriter {
    fn on_event(&self, event: &Event) {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(out) = &mut target.out else { return };
        let written = serde_json::to_vec(event).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            out.write_all(&line)
        });
        if let Err(error) = written {
            target.out = None;
            // A reader who has gone has read enough.
            if error.kind() != io::ErrorKind::BrokenPipe {
                target.error = Some(error);
            }
        }
    }
}
