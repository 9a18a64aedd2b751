//! Why a command did not do what it was asked to, and how commands end.

use std::{
    error::Error,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use flowcell::{Diagnostic, LoadError, OpenStoreError, packs::InstallError};

use crate::terminal::{Paint, inert};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what it was asked to.
    Good,
    /// The run failed, or the host did.
    Failed,
    /// The flow or the call is wrong.
    Wrong,
    /// The run waits for somebody.
    Parked,
    /// Somebody interrupted it.
    Interrupted,
    /// It was told to end, and another process may go on.
    Stopped,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

impl Exit {
    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Good => 0,
            Exit::Failed => 1,
            Exit::Wrong => 2,
            Exit::Parked => 3,
            Exit::Interrupted => 130,
            Exit::Stopped => 143,
        }
    }
}

/// An error as a person sees it: what, why, and what to do about it.
#[derive(Debug)]
pub(crate) struct Problem {
    exit: Exit,
    message: String,
    causes: Vec<String>,
    notes: Vec<String>,
    hints: Vec<String>,
    /// Findings in a flow, which say all that themselves.
    findings: Vec<Diagnostic>,
}

impl Problem {
    /// A problem that ends the command so.
    pub(crate) fn ending(exit: Exit, message: impl Into<String>) -> Problem {
        Problem {
            exit,
            message: message.into(),
            causes: Vec::new(),
            notes: Vec::new(),
            hints: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// The call is wrong.
    pub(crate) fn wrong(message: impl Into<String>) -> Problem {
        Problem::ending(Exit::Wrong, message)
    }

    /// The host is to blame.
    pub(crate) fn internal(message: impl Into<String>) -> Problem {
        Problem::ending(Exit::Failed, message)
    }

    /// A flow with findings that keep it from running.
    pub(crate) fn found(findings: Vec<Diagnostic>) -> Problem {
        let message = format!("the flow cannot run: {}", crate::terminal::count(&findings));
        Problem { findings, ..Problem::wrong(message) }
    }

    /// Adds why.
    pub(crate) fn because(mut self, cause: &(dyn Error + 'static)) -> Problem {
        let mut next = Some(cause);
        while let Some(cause) = next {
            let text = cause.to_string();
            // Many errors repeat their source in their own text.
            if !self.causes.last().is_some_and(|last| last.contains(&text)) {
                self.causes.push(text);
            }
            next = cause.source();
        }
        self
    }

    /// Adds why, in words.
    pub(crate) fn cause(mut self, cause: &str) -> Problem {
        self.causes.push(cause.to_owned());
        self
    }

    /// Adds something worth knowing.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Problem {
        self.notes.push(note.into());
        self
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hints.push(hint.into());
        self
    }

    /// The message and its causes on one line, for JSON.
    pub(crate) fn plain(&self) -> String {
        std::iter::once(&self.message).chain(&self.causes).map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// How the command ends with it.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The text for standard error.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            text.push_str(&crate::terminal::finding(finding, paint));
            text.push_str("\n\n");
        }
        // Writing to a string does not fail.
        let head = match self.exit {
            Exit::Parked => paint.odd("parked"),
            Exit::Interrupted => paint.odd("interrupted"),
            Exit::Stopped => paint.odd("stopped"),
            Exit::Good | Exit::Failed | Exit::Wrong => paint.bad("error"),
        };
        let _ = write!(text, "{head}: {}", inert(&self.message));
        for cause in &self.causes {
            let _ = write!(text, "\nCaused by: {}", inert(cause));
        }
        for note in &self.notes {
            let _ = write!(text, "\n  {}", inert(note));
        }
        for hint in &self.hints {
            let _ = write!(text, "\n{}: {}", paint.good("help"), inert(hint));
        }
        text
    }
}

impl From<InstallError> for Problem {
    fn from(error: InstallError) -> Problem {
        let problem = match &error {
            InstallError::Outside(_) => Problem::internal(error.to_string()),
            _ => Problem::wrong(error.to_string()),
        };
        let problem = error.source().into_iter().fold(problem, Problem::because);
        let problem = match &error {
            InstallError::AsksMore { difference, .. } => difference.to_string().lines().fold(problem, Problem::note),
            _ => problem,
        };
        error.help().into_iter().fold(problem, Problem::hint)
    }
}

impl From<flowcell::Error> for Problem {
    fn from(error: flowcell::Error) -> Problem {
        let error = match error {
            flowcell::Error::Installed(error) => return error.into(),
            error => error,
        };
        let problem = match &error {
            flowcell::Error::Engine(_) => Problem::internal(error.to_string()),
            _ => Problem::wrong(error.to_string()),
        };
        let problem = match error.source() {
            Some(source) => problem.because(source),
            None => problem,
        };
        match &error {
            flowcell::Error::Read { path, .. } => match sibling(path) {
                Some(meant) => problem.hint(format!("did you mean {}?", meant.display())),
                None => problem,
            },
            flowcell::Error::Store(OpenStoreError::Owned { .. }) => problem.hint(
                "this command needs the store for itself: stop that process first; while it runs, it goes on with the runs",
            ),
            _ => problem,
        }
    }
}

impl From<LoadError> for Problem {
    fn from(error: LoadError) -> Problem {
        match error {
            LoadError::Host(error) => error.into(),
            LoadError::Invalid(findings) => Problem::found(findings),
        }
    }
}

/// The file that was probably meant instead of one that is not there.
fn sibling(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let meant = flowcell::similar(path.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    (!path.exists()).then(|| path.with_file_name(meant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_another_process_is_told_with_what_to_do() {
        let owned = OpenStoreError::Owned { path: "st".into(), owner: "process 7".into() };
        let hints = Problem::from(flowcell::Error::Store(owned)).hints;
        assert!(hints.iter().any(|hint| hint.contains("stop that process first")), "{hints:?}");
    }
}
