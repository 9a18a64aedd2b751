//! Programs on this machine that exchange lines with the host.
//!
//! Only the operator names a program. It inherits the operator's environment and folder. It leads its own process
//! group: Ctrl-C does not reach it, and all processes that it starts end with it. It also ends with the host. If the
//! host is killed, this needs an armed [watchdog](crate::watchdog).

use std::{ffi::OsStr, io, process::Stdio};

use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};

use crate::{lines::Lines, process_group::ProcessGroup};

/// A running program and its streams.
pub struct Program {
    /// The standard input.
    pub input: Input,
    /// The standard output, in lines.
    pub output: Lines<ChildStdout>,
    /// The standard error, in lines.
    pub errors: Lines<ChildStderr>,
    /// The processes of the program.
    pub life: ProcessGuard,
}

/// The standard input of a program. Dropping this value closes the stream.
pub struct Input(ChildStdin);

/// The processes of a program. Dropping this value kills them.
pub struct ProcessGuard {
    child: Child,
    _group: ProcessGroup,
}

impl Program {
    /// Starts a program. A name without a slash is searched in the `PATH`. Lines of its output are cut at `max_line`
    /// bytes, lines of its standard error at `max_log_line`.
    pub fn start<S: AsRef<OsStr>>(
        words: &[S],
        environment: &[(&str, &str)],
        max_line: usize,
        max_log_line: usize,
    ) -> io::Result<Program> {
        let Some((name, arguments)) = words.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of the program is missing"));
        };
        let mut command = Command::new(name);
        command.args(arguments).envs(environment.iter().copied()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, group) = ProcessGroup::spawn(&mut command)?;
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let ((input, output), errors) = pipes.ok_or_else(|| io::Error::other("its pipes are missing"))?;
        Ok(Program {
            input: Input(input),
            output: Lines::new(output, max_line),
            errors: Lines::new(errors, max_log_line),
            life: ProcessGuard { child, _group: group },
        })
    }
}

impl Input {
    /// Writes bytes, and waits until the program has room for them.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }
}

impl ProcessGuard {
    /// Waits until the program has ended, and describes its end.
    pub async fn wait_for_end(&mut self) -> String {
        let ended = self.child.wait().await;
        ended.map_or_else(|error| error.kind().to_string(), |status| status.to_string())
    }
}
