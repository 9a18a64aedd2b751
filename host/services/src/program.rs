//! Programs on this machine that exchange lines with the host.
//!
//! Only the operator names a program. It inherits the operator's environment and folder. It leads its own process
//! group: Ctrl-C does not reach it, and all processes that it starts end with it. It also ends with the host. If the
//! host is killed, this needs an armed [watchdog](crate::watchdog).

use std::{env, ffi::OsStr, io, process::Stdio, time::Duration};

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

/// Runs a program with this text as its standard input, without a shell, and with no variable but `PATH`. What it
/// prints is dropped. After `limit` the program is killed with all processes that it has started. The error is a sentence
/// without the text.
pub async fn run_with_input(words: &[String], input: &[u8], limit: Duration) -> Result<(), String> {
    let Some((name, arguments)) = words.split_first() else {
        return Err("the name of the program is missing".to_owned());
    };
    let mut command = Command::new(name);
    command.args(arguments).env_clear().kill_on_drop(true);
    command.envs(env::var_os("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = ProcessGroup::spawn(&mut command);
    let (mut child, _group) = started.map_err(|error| format!("cannot start the program: {error}"))?;
    let pipe = child.stdin.take();
    let talk = async {
        let write = async {
            if let Some(mut pipe) = pipe {
                // A program may end without reading its input. Its exit code decides.
                let _ = pipe.write_all(input).await;
            }
        };
        tokio::join!(write, child.wait()).1
    };
    match tokio::time::timeout(limit, talk).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("the program ended with {status}")),
        Ok(Err(error)) => Err(format!("cannot wait for the program: {error}")),
        Err(_) => Err(format!("the program did not end within {} s and was killed", limit.as_secs())),
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

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::fs;

    use super::*;

    fn run(script: &str, folder: &std::path::Path, limit: Duration) -> Result<(), String> {
        let words = ["sh", "-c", script, "sh", folder.to_str().unwrap()].map(str::to_owned);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run_with_input(&words, b"the input", limit))
    }

    #[test]
    fn a_program_gets_its_input_and_no_variables_and_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let long = Duration::from_secs(60);
        run("env > \"$1/env\"; cat > \"$1/input\"", folder.path(), long).unwrap();
        assert_eq!(read("input"), "the input");
        let own = ["PATH=", "PWD=", "OLDPWD=", "SHLVL=", "_="];
        let variables = read("env");
        assert!(variables.lines().all(|line| own.iter().any(|name| line.starts_with(name))), "{variables}");
        assert!(run("exit 3", folder.path(), long).unwrap_err().contains("exit status: 3"));
        // The child has the pipe open until it ends, so the end of the pipe is the end of the child.
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (tell, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(fs::read_to_string(pipe).unwrap()));
        let told = run("exec 3> \"$1/pipe\"; echo open >&3; sleep 600 & wait", folder.path(), Duration::from_secs(1));
        assert!(told.unwrap_err().contains("was killed"));
        assert_eq!(ended.recv_timeout(long).unwrap(), "open\n");
        let words = vec!["/no/such/program".to_owned()];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert!(runtime.block_on(run_with_input(&words, b"", long)).unwrap_err().contains("cannot start"));
    }
}
