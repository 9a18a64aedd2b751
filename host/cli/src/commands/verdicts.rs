//! What came of cases: told one by one, and all together.

mod junit;

use std::{path::Path, time::Duration};

use crate::{
    problem::{Exit, Problem},
    terminal::{Terminal, counted, inert},
};

/// What came of one case.
pub(super) struct Verdict {
    /// The file, or the node type, whose case it is.
    pub(super) of: String,
    /// What the case is about.
    pub(super) case: String,
    pub(super) took: Duration,
    /// What is not as expected.
    pub(super) wrong: Vec<String>,
}

/// What came of all of them.
#[derive(Default)]
pub(super) struct Verdicts(Vec<Verdict>);

impl Verdicts {
    /// Takes one in, and tells it.
    pub(super) fn add(&mut self, verdict: Verdict, terminal: Terminal) {
        let paint = terminal.paint();
        let (of, case) = (inert(&verdict.of), inert(&verdict.case));
        let mark = if verdict.wrong.is_empty() { paint.good("ok") } else { paint.bad("failed") };
        terminal.say(&format!("{of}  {}  {mark}", paint.name(&case)));
        for wrong in &verdict.wrong {
            terminal.say(&format!("  {}", inert(wrong)));
        }
        self.0.push(verdict);
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells how many failed, and writes all down for continuous integration if there is a file for it.
    pub(super) fn conclude(&self, junit: Option<&Path>, terminal: Terminal) -> Result<Exit, Problem> {
        if let Some(path) = junit {
            let written = std::fs::write(path, junit::report(&self.0));
            written.map_err(|error| Problem::wrong(format!("cannot write {}", path.display())).because(&error))?;
        }
        let failed = self.0.iter().filter(|verdict| !verdict.wrong.is_empty()).count();
        terminal.say(&format!("{}, {failed} failed", counted(self.0.len(), "case")));
        if self.0.is_empty() {
            return Err(
                Problem::wrong("there is no such case").hint("leave `--only` away, or write it as the case is called")
            );
        }
        Ok(if failed == 0 { Exit::Good } else { Exit::Failed })
    }
}
