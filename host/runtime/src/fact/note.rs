//! Log lines and measurements of a component.

use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

/// A log line or a measurement of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Note {
    /// A line of text for people.
    Log {
        /// The level, from `trace` to `error`.
        level: String,
        /// The text of the line.
        message: String,
    },
    /// A measurement of the component.
    Metric {
        /// The name of the measurement.
        name: String,
        /// The measured value.
        value: Json,
        /// The tags that distinguish measurements of one name.
        tags: Json,
    },
}
