//! Verdicts on test cases, printed one by one and as a summary.

mod junit;

use std::{path::Path, time::Duration};

use crate::{
    cli_error::{CliError, Exit},
    terminal::{Terminal, counted, inert},
};

/// The verdict on one case.
pub(super) struct Verdict {
    /// The path of the flow's file, or in a test of a pack the node type.
    pub(super) of: String,
    /// The name of the case.
    pub(super) case: String,
    pub(super) took: Duration,
    /// The differences from the expected result. Empty if the case has passed.
    pub(super) wrong: Vec<String>,
}

/// The verdicts of one command.
#[derive(Default)]
pub(super) struct Verdicts(Vec<Verdict>);

impl Verdicts {
    /// Adds a verdict and prints it.
    pub(super) fn add(&mut self, verdict: Verdict, terminal: Terminal) {
        let paint = terminal.paint();
        let (of, case) = (inert(&verdict.of), inert(&verdict.case));
        let mark = if verdict.wrong.is_empty() { paint.success("ok") } else { paint.error("failed") };
        terminal.say(&format!("{of}  {}  {mark}", paint.name(&case)));
        for wrong in &verdict.wrong {
            terminal.say(&format!("  {}", inert(wrong)));
        }
        self.0.push(verdict);
    }

    /// Returns whether no case has run.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Prints the numbers of cases and failures, and writes the JUnit file if one is named. Fails if no case has run.
    pub(super) fn conclude(&self, junit: Option<&Path>, terminal: Terminal) -> Result<Exit, CliError> {
        if let Some(path) = junit {
            let written = std::fs::write(path, junit::report(&self.0));
            written.map_err(|error| CliError::wrong(format!("cannot write {}", path.display())).because(&error))?;
        }
        let failed = self.0.iter().filter(|verdict| !verdict.wrong.is_empty()).count();
        terminal.say(&format!("{}, {failed} failed", counted(self.0.len(), "case")));
        if self.0.is_empty() {
            return Err(
                CliError::wrong("no case has this name").hint("remove `--only`, or write a part of a case's name")
            );
        }
        Ok(if failed == 0 { Exit::Good } else { Exit::Failed })
    }
}
