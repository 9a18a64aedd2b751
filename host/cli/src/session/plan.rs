//! The options of a command that runs a flow.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use flowcell::{Host, Json, RunId, labels::Labels};

use super::{
    answers::{self, RecordedAnswers},
    inputs,
};
use crate::{
    cli_error::CliError,
    options::{PackArgs, StoreArgs, channels::ChannelArgs},
    terminal::{Terminal, inert},
};

/// The options of a command that runs a flow. Each command fills them from its own arguments.
#[derive(Default)]
pub(crate) struct Plan {
    /// The path of the flow.
    pub(crate) flow: PathBuf,
    /// The members of the input.
    pub(crate) input: Vec<(String, inputs::Member)>,
    /// A file with the input. The members in `input` replace those of the file.
    pub(crate) input_file: Option<PathBuf>,
    /// A file for the events. `-` is standard output.
    pub(crate) events: Option<PathBuf>,
    /// A folder for the files among the outputs.
    pub(crate) out: Option<PathBuf>,
    /// Prints the result as one JSON object, on success and on failure.
    pub(crate) json: bool,
    /// Hides the run's progress.
    pub(crate) quiet: bool,
    pub(crate) channels: ChannelArgs,
    pub(crate) packs: PackArgs,
    pub(crate) store: StoreArgs,
    /// The tenant of the run, unless it is `local`.
    pub(crate) tenant: Option<String>,
    pub(crate) run_id: Option<RunId>,
    /// Answers to gates, and to questions about agents' calls, as pairs of address and value.
    pub(crate) answers: Vec<(String, String)>,
    /// The labels of a new run.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) total_timeout: Option<Duration>,
    /// Starts a conversation with the run's agents.
    pub(crate) chat: bool,
    /// True for `flowcell chat`, which resumes an existing run and shows its past conversation.
    pub(crate) again: bool,
}

impl Plan {
    /// Returns the answers by address, as the values that gates receive.
    pub(crate) fn early_answers(&self) -> HashMap<String, Json> {
        self.answers.iter().map(|(gate, value)| (gate.clone(), answers::answer(value))).collect()
    }

    /// Returns the labels by name. Of two labels with the same name, the later one counts.
    pub(crate) fn run_labels(&self) -> Labels {
        self.labels.iter().cloned().collect()
    }

    /// Warns of answers that the run has not used.
    pub(crate) fn warn_of_unused_answers(&self, host: &Host, run: &RunId, terminal: Terminal) -> Result<(), CliError> {
        if !self.answers.is_empty() {
            for why in RecordedAnswers::read(host, run, &self.answers)?.unused(&self.answers) {
                terminal.warn(&inert(&why));
            }
        }
        Ok(())
    }

    /// Returns true if events or a conversation are written to standard output, which then does not get the outputs.
    pub(crate) fn events_to_stdout(&self) -> bool {
        if self.chat {
            return true;
        }
        self.events.as_deref().is_some_and(|path| path.as_os_str() == "-") || self.channels.writes_to_stdout()
    }
}
