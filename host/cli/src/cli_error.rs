//! Errors of commands, and exit codes.

use std::{
    error::Error,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use flowcell::{Diagnostic, LoadError, OpenStoreError, packs::InstallError};

use crate::terminal::{Paint, Terminal, inert};

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command has succeeded.
    Good,
    /// The run or the host has failed.
    Failed,
    /// The flow or the arguments are wrong.
    Wrong,
    /// The run is parked, and waits for an answer, an event or a decision.
    Parked,
    /// The store could not be read or written.
    Unreadable,
    /// The user has interrupted the command.
    Interrupted,
    /// A signal has ended the command. Another process may drive the run.
    Stopped,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

impl Exit {
    /// Returns the exit code of the process.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Good => 0,
            Exit::Failed => 1,
            Exit::Wrong => 2,
            Exit::Parked => 3,
            Exit::Unreadable => 74,
            Exit::Interrupted => 130,
            Exit::Stopped => 143,
        }
    }
}

/// An error for people: the message, its causes, and hints to solve it.
#[derive(Debug)]
pub(crate) struct CliError {
    exit: Exit,
    message: String,
    causes: Vec<String>,
    notes: Vec<String>,
    hints: Vec<String>,
    /// The diagnostics of a flow, printed before the message.
    findings: Vec<Diagnostic>,
    /// True if the owner of the store has ended, or is about to, and the command may ask the next one.
    is_owner_gone: bool,
}

impl CliError {
    /// Creates an error with this outcome.
    pub(crate) fn ending(exit: Exit, message: impl Into<String>) -> CliError {
        CliError {
            exit,
            message: message.into(),
            causes: Vec::new(),
            notes: Vec::new(),
            hints: Vec::new(),
            findings: Vec::new(),
            is_owner_gone: false,
        }
    }

    /// Creates an error in the flow or the arguments, with exit code 2.
    pub(crate) fn wrong(message: impl Into<String>) -> CliError {
        CliError::ending(Exit::Wrong, message)
    }

    /// Creates an error by its stable code: of the store with exit code 74, otherwise like [`CliError::wrong`].
    pub(crate) fn by_code(code: &str, message: impl Into<String>) -> CliError {
        match code {
            "store_unavailable" => CliError::ending(Exit::Unreadable, message),
            _ => CliError::wrong(message),
        }
    }

    /// Creates an error of the host, with exit code 1.
    pub(crate) fn internal(message: impl Into<String>) -> CliError {
        CliError::ending(Exit::Failed, message)
    }

    /// Creates an error for a flow that cannot run, with its diagnostics and exit code 2.
    pub(crate) fn found(findings: Vec<Diagnostic>) -> CliError {
        let message = format!("the flow cannot run: {}", crate::terminal::count(&findings));
        CliError { findings, ..CliError::wrong(message) }
    }

    /// Adds a diagnostic, which is printed before the message.
    pub(crate) fn finding(mut self, finding: Diagnostic) -> CliError {
        self.findings.push(finding);
        self
    }

    /// Adds an error and the chain of its sources as causes.
    pub(crate) fn because(mut self, cause: &(dyn Error + 'static)) -> CliError {
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

    /// Adds a cause as text.
    pub(crate) fn cause(mut self, cause: &str) -> CliError {
        self.causes.push(cause.to_owned());
        self
    }

    /// Adds a note, which is printed between the causes and the hints.
    pub(crate) fn note(mut self, note: impl Into<String>) -> CliError {
        self.notes.push(note.into());
        self
    }

    /// Adds a hint to solve the problem.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> CliError {
        self.hints.push(hint.into());
        self
    }

    /// Replaces the hints by this one.
    pub(crate) fn hint_instead(mut self, hint: impl Into<String>) -> CliError {
        self.hints = vec![hint.into()];
        self
    }

    /// Returns the message and its causes on one line, for JSON.
    pub(crate) fn plain(&self) -> String {
        std::iter::once(&self.message).chain(&self.causes).map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// Marks an error as the end of the store's owner, which has not handled the request.
    pub(crate) fn by_gone_owner(self) -> CliError {
        CliError { is_owner_gone: true, ..self }
    }

    /// Returns true if the owner of the store has ended, or is about to, and the command may ask the next one.
    pub(crate) fn is_owner_gone(&self) -> bool {
        self.is_owner_gone
    }

    /// Returns the outcome of the command.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Writes the error to standard error.
    pub(crate) fn print(&self, terminal: Terminal) {
        terminal.fail(&self.render(terminal.paint()));
    }

    /// Returns the text for standard error.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            text.push_str(&crate::terminal::finding(finding, paint));
            text.push_str("\n\n");
        }
        // Writing to a string does not fail.
        let head = match self.exit {
            Exit::Parked => paint.warning("parked"),
            Exit::Interrupted => paint.warning("interrupted"),
            Exit::Stopped => paint.warning("stopped"),
            Exit::Good | Exit::Failed | Exit::Wrong | Exit::Unreadable => paint.error("error"),
        };
        let _ = write!(text, "{head}: {}", inert(&self.message));
        for cause in &self.causes {
            let _ = write!(text, "\nCaused by: {}", inert(cause));
        }
        for note in &self.notes {
            let _ = write!(text, "\n  {}", inert(note));
        }
        for hint in &self.hints {
            let _ = write!(text, "\n{}: {}", paint.success("help"), inert(hint));
        }
        text
    }
}

impl From<InstallError> for CliError {
    fn from(error: InstallError) -> CliError {
        let problem = match &error {
            InstallError::Outside(_) => CliError::internal(error.to_string()),
            _ => CliError::wrong(error.to_string()),
        };
        let problem = error.source().into_iter().fold(problem, CliError::because);
        let problem = match &error {
            InstallError::AsksMore { difference, .. } => difference.to_string().lines().fold(problem, CliError::note),
            _ => problem,
        };
        error.help().into_iter().fold(problem, CliError::hint)
    }
}

impl From<flowcell::Error> for CliError {
    fn from(error: flowcell::Error) -> CliError {
        let error = match error {
            flowcell::Error::Installed(error) => return error.into(),
            error => error,
        };
        let problem = match &error {
            flowcell::Error::Engine(_) => CliError::internal(error.to_string()),
            error if error.is_store_away() => CliError::ending(Exit::Unreadable, error.to_string()),
            _ => CliError::wrong(error.to_string()),
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
            flowcell::Error::Store(OpenStoreError::Owned { .. }) => problem
                .hint("this command needs exclusive access: stop that process first; until then it drives the runs"),
            _ => problem,
        }
    }
}

impl From<LoadError> for CliError {
    fn from(error: LoadError) -> CliError {
        match error {
            LoadError::Host(error) => error.into(),
            LoadError::Invalid(findings) => CliError::found(findings),
        }
    }
}

/// Returns the file in the same folder whose name is most similar to that of a missing file. Returns `None` if no name
/// is similar, or if the file exists.
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
    fn the_error_for_an_owned_store_has_a_hint() {
        let owned = OpenStoreError::Owned { path: "st".into(), owner: "process 7".into() };
        let hints = CliError::from(flowcell::Error::Store(owned)).hints;
        assert!(hints.iter().any(|hint| hint.contains("stop that process first")), "{hints:?}");
    }
}
