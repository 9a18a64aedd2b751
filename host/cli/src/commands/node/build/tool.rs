//! Programs that build packs in other languages.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use crate::cli_error::{CliError, Exit};

/// A program that the user has to install.
pub(super) struct Tool {
    pub(super) program: &'static str,
    /// Folders of the project that are searched before `PATH`.
    pub(super) beside: &'static [&'static str],
    /// Instructions to install the program.
    pub(super) install: &'static str,
}

impl Tool {
    /// Returns a command that runs the program in a project's folder. Fails if the program is not installed.
    pub(super) fn command(&self, project: &Path) -> Result<Command, CliError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let beside = self.beside.iter().map(|folder| project.join(folder));
        let program = beside.chain(env::split_paths(&path)).find_map(|folder| self.find_in(&folder));
        let program = program.ok_or_else(|| {
            CliError::wrong(format!("`{}`, which builds this project, is missing", self.program)).hint(format!(
                "in {}: {}",
                project.display(),
                self.install
            ))
        })?;
        let mut command = Command::new(program);
        command.current_dir(project).stdin(Stdio::null());
        Ok(command)
    }

    fn find_in(&self, folder: &Path) -> Option<PathBuf> {
        let endings = if cfg!(windows) { &[".exe", ".cmd"][..] } else { &[""] };
        endings.iter().map(|ending| folder.join(format!("{}{ending}", self.program))).find(|file| file.is_file())
    }

    /// Runs a command. If the command fails, the error contains its output.
    pub(super) fn run(&self, command: Command) -> Result<(), CliError> {
        self.run_shown(command, |output| output.to_owned())
    }

    /// Runs a command. If the command fails, the error contains what `shown` makes of its output.
    pub(super) fn run_shown(&self, mut command: Command, shown: impl Fn(&str) -> String) -> Result<(), CliError> {
        let output = command.output().map_err(|error| self.start_error(&error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(self.failed(output.status).note(shown(&String::from_utf8_lossy(&said)).trim()))
    }

    /// Runs a command whose standard error goes to the terminal. Returns its standard output. `advice` returns the
    /// hint for a command that ends by itself and fails, if there is one.
    pub(super) fn output_of(
        &self,
        mut command: Command,
        advice: impl FnOnce() -> Option<String>,
    ) -> Result<String, CliError> {
        let output = command.stderr(Stdio::inherit()).output().map_err(|error| self.start_error(&error))?;
        if !output.status.success() {
            let failed = self.failed(output.status);
            return Err(match output.status.code().and_then(|_| advice()) {
                Some(advice) => failed.hint(advice),
                None => failed,
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn start_error(&self, error: &std::io::Error) -> CliError {
        CliError::internal(format!("cannot run `{}`", self.program)).because(error)
    }

    /// Returns the error of a command that has failed, or that a signal has ended.
    fn failed(&self, status: ExitStatus) -> CliError {
        if status.code().is_some() {
            return CliError::ending(Exit::Failed, format!("`{}` cannot build the project", self.program));
        }
        let shown = status.to_string();
        let signal = shown.strip_prefix("signal: ").unwrap_or(&shown);
        let message = format!("a signal ended `{}` before it had built the project: {signal}", self.program);
        CliError::ending(Exit::Failed, message).hint(match signal.contains("SIGKILL") {
            true => {
                "the system sends SIGKILL to a program when the machine or its container has no memory left: free some, \
                 then build again"
            }
            false => "build again; if the same signal comes again, run the program itself",
        })
    }
}
