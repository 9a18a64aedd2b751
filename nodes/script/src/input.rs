//! The input of the nodes: a script and its inputs.

use flowcell_sdk::{Failure, Result, Task};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The name that error messages show in place of a file name for a script whose text stands in the flow itself.
const INLINE: &str = "source";

/// A script with its inputs.
pub(crate) struct Input {
    /// The name of the script in error messages: the path of its file, or [`INLINE`].
    pub(crate) name: String,
    /// The script.
    pub(crate) text: String,
    /// The inputs, by id.
    pub(crate) inputs: Map<String, Value>,
    /// The facts about the run; null if the host has not added them.
    pub(crate) facts: Value,
}

#[derive(Deserialize)]
struct Raw {
    source: Option<String>,
    file: Option<File>,
    #[serde(default)]
    inputs: Map<String, Value>,
    #[serde(default)]
    facts: Value,
}

/// A file beside the flow, read by the host.
#[derive(Deserialize)]
struct File {
    path: String,
    text: String,
}

impl Input {
    /// Reads the input of a task.
    pub(crate) fn read(task: &Task) -> Result<Input> {
        let Raw { source, file, inputs, facts } = task.input()?;
        match (source, file) {
            (Some(text), None) => Ok(Input { name: INLINE.into(), text, inputs, facts }),
            (None, Some(File { path, text })) => Ok(Input { name: path, text, inputs, facts }),
            _ => Err(Failure::invalid_input("give either `source` or `file`")),
        }
    }
}
