//! Which script is meant, and what it is given.

use flowcell_sdk::{Failure, Result, Task};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The name under which places of a script show that was written into its node.
const INLINE: &str = "source";

/// A script with its inputs.
pub(crate) struct Input {
    /// What its places are called by: the file's path.
    pub(crate) name: String,
    /// The script.
    pub(crate) text: String,
    /// What it is given, by id.
    pub(crate) inputs: Map<String, Value>,
}

#[derive(Deserialize)]
struct Raw {
    source: Option<String>,
    file: Option<File>,
    #[serde(default)]
    inputs: Map<String, Value>,
}

/// A file as the host hands it over, which has read it beside the flow.
#[derive(Deserialize)]
struct File {
    path: String,
    text: String,
}

impl Input {
    /// Reads the input of a task.
    pub(crate) fn read(task: &Task) -> Result<Input> {
        let Raw { source, file, inputs } = task.input()?;
        match (source, file) {
            (Some(text), None) => Ok(Input { name: INLINE.into(), text, inputs }),
            (None, Some(File { path, text })) => Ok(Input { name: path, text, inputs }),
            _ => Err(Failure::invalid_input("either `source` or `file` says which script it is")),
        }
    }
}
