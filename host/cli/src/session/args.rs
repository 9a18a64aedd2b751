//! The arguments of `flowcell run`, which other commands that run something make, too.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use clap::{Args, ValueHint};
use flowcell::{Host, Json, RunId};

use super::{
    answers::{self, Recorded},
    inputs,
};
use crate::{
    duration,
    options::{PackArgs, StoreArgs, channels::ChannelArgs},
    owner::run_id,
    problem::Problem,
    terminal::{Terminal, inert},
};

/// Arguments of `flowcell run`.
#[derive(Args, Default)]
pub(crate) struct RunArgs {
    /// The flow's file
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) flow: PathBuf,
    /// A member of the input; the value is JSON if it reads as JSON, else text; `@PATH` is a file; may be repeated
    #[arg(short, long = "input", value_name = "KEY=VALUE", value_parser = inputs::pair)]
    pub(crate) input: Vec<(String, inputs::Member)>,
    /// Read the input, a JSON object, from this file, or from standard input (-); `-i` wins over its members
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) input_file: Option<PathBuf>,
    /// Write the events as JSON lines to this file, or to standard output (-) in place of the outputs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) events: Option<PathBuf>,
    /// Write the files among the outputs to this folder
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["detach", "dry_run"])]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object for whatever comes of the run
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing about the run's progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) channels: ChannelArgs,
    #[command(flatten)]
    pub(crate) packs: PackArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The run's id. The same command with the same id goes on with the run, or prints again what came of it
    #[arg(long, value_name = "ID", value_parser = run_id)]
    pub(crate) run_id: Option<RunId>,
    /// Return once the run is accepted; `flowcell drive` runs it
    #[arg(long, conflicts_with_all = ["events", "channels", "dry_run"])]
    pub(crate) detach: bool,
    /// Answer a gate, or an agent's call as in assistant#3=allow, before it asks; may be repeated
    #[arg(long = "answer", value_name = "GATE=VALUE", value_parser = answers::pair)]
    pub(crate) answers: Vec<(String, String)>,
    /// End the run after this time: 500ms, 30s, 2m, 1h30m
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) total_timeout: Option<Duration>,
    /// Talk with the run's agents: what they say goes to standard output in place of the outputs, and lines that are typed go to
    /// them; /help shows the commands
    #[arg(long, conflicts_with_all = ["json", "detach", "answers", "dry_run"])]
    pub(crate) chat: bool,
    /// Goes on with a run that exists.
    #[arg(skip)]
    pub(crate) again: bool,
    /// Check everything and print what would run and what it may reach, without running it
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl RunArgs {
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
