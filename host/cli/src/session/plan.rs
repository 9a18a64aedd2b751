//! What a command that runs something was asked for.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use flowcell::{Host, Json, RunId};

use super::{
    answers::{self, Recorded},
    inputs,
};
use crate::{
    options::{PackArgs, StoreArgs, channels::ChannelArgs},
    problem::Problem,
    terminal::{Terminal, inert},
};

/// What a command that runs something was asked for. Each command makes it from its own arguments.
#[derive(Default)]
pub(crate) struct Plan {
    /// The flow's file.
    pub(crate) flow: PathBuf,
    /// Members of the input.
    pub(crate) input: Vec<(String, inputs::Member)>,
    /// A file with the input, below the members.
    pub(crate) input_file: Option<PathBuf>,
    /// A file for the events; `-` is standard output.
    pub(crate) events: Option<PathBuf>,
    /// A folder for the files among the outputs.
    pub(crate) out: Option<PathBuf>,
    /// One JSON object is printed for whatever comes of the run.
    pub(crate) json: bool,
    /// Nothing is said about the run's progress.
    pub(crate) quiet: bool,
    pub(crate) channels: ChannelArgs,
    pub(crate) packs: PackArgs,
    pub(crate) store: StoreArgs,
    pub(crate) run_id: Option<RunId>,
    /// Answers to gates, and to agents' calls, before they ask.
    pub(crate) answers: Vec<(String, String)>,
    pub(crate) total_timeout: Option<Duration>,
    /// Somebody talks with the run's agents.
    pub(crate) chat: bool,
    /// The run exists, and goes on.
    pub(crate) again: bool,
}

impl Plan {
    /// The answers, as questions take them.
    pub(crate) fn early_answers(&self) -> HashMap<String, Json> {
        self.answers.iter().map(|(gate, value)| (gate.clone(), answers::answer(value))).collect()
    }

    /// Tells of answers that the run has not used. It may go on without an answer.
    pub(crate) fn say_unused(&self, host: &Host, run: &RunId, terminal: Terminal) -> Result<(), Problem> {
        if !self.answers.is_empty() {
            for why in Recorded::read(host, run, &self.answers)?.unused(&self.answers) {
                terminal.say(&format!("{}: {}", terminal.paint().odd("warning"), inert(&why)));
            }
        }
        Ok(())
    }

    /// Whether something else than the outputs goes to standard output.
    pub(crate) fn events_to_stdout(&self) -> bool {
        if self.chat {
            return true;
        }
        self.events.as_deref().is_some_and(|path| path.as_os_str() == "-") || self.channels.writes_to_stdout()
    }
}
