//! The node `system.log`: writes a line for people.

use flowcell_sdk::{log, prelude::*};

#[derive(Deserialize)]
pub(crate) struct Input {
    level: Level,
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// Writes one line to the run's events.
pub(crate) fn run(_task: &Task, input: Input) -> Result<Step> {
    let level = match input.level {
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
        Level::Error => log::Level::Error,
    };
    log::write(level, input.message);
    Step::value(json!({ "ok": true }))
}
