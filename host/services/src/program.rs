//! Programs on this machine that are spoken with in lines.
//!
//! Only the operator names one. It inherits the operator's environment and folder, and is the first of a process group of its
//! own: Ctrl-C is not for it, and when it is ended, whatever it has started ends with it. It also ends with the host, even if that
//! is killed and a [watchdog](crate::watchdog) is armed.

use std::{ffi::OsStr, io, process::Stdio};

use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};

use crate::{lines::Lines, process_group::ProcessGroup};

/// A program that runs, and what it is spoken with over.
pub struct Program {
    /// What it reads.
    pub input: Input,
    /// What it writes.
    pub output: Lines<ChildStdout>,
    /// What it writes about itself.
    pub errors: Lines<ChildStderr>,
    /// How it ends.
    pub life: Life,
}

/// The standard input of a program. It ends when this is dropped.
pub struct Input(ChildStdin);

/// The processes of a program. They are killed when this is dropped.
pub struct Life {
    child: Child,
    _group: ProcessGroup,
}

impl Program {
    /// Starts a program. A name without a slash is looked for in the `PATH`. Lines that it writes are cut at `max_line` bytes,
    /// those about itself at `max_log_line`.
    pub fn start<S: AsRef<OsStr>>(
        words: &[S],
        environment: &[(&str, &str)],
        max_line: usize,
        max_log_line: usize,
    ) -> io::Result<Program> {
        let Some((name, arguments)) = words.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program is named"));
        };
        let mut command = Command::new(name);
        command.args(arguments).envs(environment.iter().copied()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let group = ProcessGroup::of(child.id());
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let ((input, output), errors) = pipes.ok_or_else(|| io::Error::other("it has no pipes"))?;
        Ok(Program {
            input: Input(input),
            output: Lines::new(output, max_line),
            errors: Lines::new(errors, max_log_line),
            life: Life { child, _group: group },
        })
    }
}

impl Input {
    /// Writes bytes, and waits until the program has room for them.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }
}

impl Life {
    /// Waits until the program has ended, and says how.
    pub async fn ended(&mut self) -> String {
        let ended = self.child.wait().await;
        ended.map_or_else(|error| error.kind().to_string(), |status| status.to_string())
    }
}
