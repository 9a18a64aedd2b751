//! Writes log lines for people into the events of the run. They do not change the results of a flow.

use std::fmt;

use crate::wit::flowcell::host::log;
pub use crate::wit::flowcell::host::log::Level;

/// Writes one line to the run's events.
pub fn write(level: Level, message: impl fmt::Display) {
    let message = message.to_string();
    let args = || serde_json::json!({ "level": format!("{level:?}").to_lowercase(), "message": message });
    // The host's function cannot fail, and neither can a script's.
    let _ = super::call("log.log", args, || {
        log::log(level, &message);
        Ok(())
    });
}

/// Writes one line at level `debug`.
pub fn debug(message: impl fmt::Display) {
    write(Level::Debug, message);
}

/// Writes one line at level `info`.
pub fn info(message: impl fmt::Display) {
    write(Level::Info, message);
}

/// Writes one line at level `warn`.
pub fn warn(message: impl fmt::Display) {
    write(Level::Warn, message);
}

/// Writes one line at level `error`.
pub fn error(message: impl fmt::Display) {
    write(Level::Error, message);
}
