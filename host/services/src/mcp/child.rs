//! MCP servers that are programs on this machine.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use flowcell_contract::Failure;
use tokio::{
    process::{ChildStderr, ChildStdin, ChildStdout, Command},
    sync::{oneshot, watch},
};

use super::{
    servers::{Program, Server},
    setting::readable,
};
use crate::{
    code,
    lines::{Line, Lines},
    process_group::ProcessGroup,
    redaction::{Redaction, SearchBudget, StreamRedactor, Unit},
    secret::{Environment, Key},
};

/// Maximum size in bytes of a line on a program's standard error. The remaining bytes of the line are skipped.
const MAX_LOG_LINE: usize = 4 * 1024;
/// Maximum lines of one program that are logged; later lines are skipped.
const MAX_LOG_LINES: u32 = 10_000;

/// A running program. Dropping this, or the end of this process, kills it and all processes that it started.
pub(super) struct Child {
    _stop: oneshot::Sender<()>,
}

/// The pipes of a program, and a channel that receives a description of its exit.
pub(super) struct Pipes {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) exit: watch::Receiver<Option<String>>,
}

/// Starts a program whose environment has only the configured variables. Adds the secrets among them to `keys`.
pub(super) async fn start(
    server: &Server,
    program: &Program,
    environment: &Environment,
    keys: &mut Vec<Key>,
) -> Result<(Child, Pipes, ChildStderr), Failure> {
    let cannot = |why: &str| Failure::new(code::MCP_CONNECT, format!("cannot start `{}`: {why}", program.command));
    let path = find_program(program, environment).ok_or_else(|| cannot("the program does not exist"))?;
    let mut command = Command::new(path);
    command.args(&program.args).env_clear().kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if !program.folder.as_os_str().is_empty() {
        if !program.folder.is_dir() {
            return Err(cannot("its folder does not exist"));
        }
        command.current_dir(&program.folder);
    }
    for (name, setting) in &program.environment {
        if let Some(value) = setting.value(name, environment, keys).await? {
            command.env(name, value);
        }
    }
    let spawned = ProcessGroup::spawn(&mut command);
    let (mut child, group) = spawned.map_err(|error| cannot(&error.to_string()))?;
    let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
    let ((input, output), errors) = pipes.ok_or_else(|| cannot("its pipes are missing"))?;
    let (stop, stopped) = oneshot::channel();
    let (tell, exit) = watch::channel(None);
    tracing::debug!(server = %server.name, "started an MCP server");
    tokio::spawn(async move {
        tokio::select! {
            ended = child.wait() => drop(tell.send(Some(describe_exit(ended)))),
            _ = stopped => {}
        }
        // Processes that the program started could outlive it. Right after its end its process id is not yet reused.
        drop(group);
        drop(child.wait().await);
    });
    Ok((Child { _stop: stop }, Pipes { input, output, exit }, errors))
}

fn describe_exit(ended: io::Result<std::process::ExitStatus>) -> String {
    ended.map_or_else(|error| error.kind().to_string(), |status| status.to_string())
}

/// Finds the program's file. A plain name is searched in the host's `PATH`, a path is relative to the program's
/// working folder.
fn find_program(program: &Program, environment: &Environment) -> Option<PathBuf> {
    let command = Path::new(&program.command);
    if command.components().count() > 1 {
        return Some(program.folder.join(command));
    }
    let path = environment("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(command)).find(|candidate| candidate.is_file())
}

/// Logs the standard error of a program at the level `debug`, until it ends.
pub(super) async fn log_errors(name: Arc<str>, errors: ChildStderr, redaction: Redaction) {
    let mut lines = Lines::new(errors, MAX_LOG_LINE);
    let mut left = MAX_LOG_LINES;
    while let Ok(Some(line)) = lines.next().await {
        if left == 0 {
            continue;
        }
        left -= 1;
        // Each line has its own budget, so that a hostile one does not withhold those after it.
        let redaction = redaction.with_budget(SearchBudget::default());
        let text = match line {
            Line::Whole(line) => String::from_utf8_lossy(&line).into_owned(),
            Line::Cut(line) => {
                // The last word of a cut line, which may be a part of a key, is left out.
                StreamRedactor::new(redaction.clone(), Unit::Word).add(&String::from_utf8_lossy(&line)).await
            }
        };
        tracing::debug!(server = %name, "{}", readable(&redaction, &text).await);
    }
}
