//! Kills the programs of a host that has ended, for whatever reason.
//!
//! A killed process cannot end the programs that it has started. So a host starts a second process of its own, the
//! watchdog, and sends it the ids of the running programs over a pipe. When the host ends, the kernel closes the
//! pipe. The watchdog then kills these programs, the processes that they started, and all other processes in their
//! process groups. A process that left its group and whose parent has ended cannot be found, and survives. So does a
//! program whose host is killed between the start of the program and the line that reports it, which follows at once.
//!
//! The pipe carries lines: `+ID` when a program has started, `-ID` when it has ended. Without [`arm`] no watchdog runs.

#[cfg(unix)]
mod tree;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{BufRead, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::OnceLock,
};

use parking_lot::Mutex;

/// The watchdog of this process.
static WATCHDOG: OnceLock<Mutex<Watchdog>> = OnceLock::new();

/// A watchdog process, which is started with the first program.
struct Watchdog {
    program: PathBuf,
    arguments: Vec<OsString>,
    process: Option<(Child, ChildStdin)>,
}

/// Sets the command that runs [`watch`] on its standard input. Only the first call counts.
pub fn arm(program: PathBuf, arguments: Vec<OsString>) {
    // Another watchdog is armed already.
    let _ = WATCHDOG.set(Mutex::new(Watchdog { program, arguments, process: None }));
}

/// Runs this process as a watchdog: reads the ids of the running programs, and kills these programs when the input
/// ends.
pub fn watch(input: impl BufRead) {
    let mut running = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        match line.split_at_checked(1).map(|(sign, id)| (sign, id.parse::<u32>())) {
            Some(("+", Ok(id))) => _ = running.insert(id),
            Some(("-", Ok(id))) => _ = running.remove(&id),
            _ => {}
        }
    }
    kill(&running.into_iter().collect::<Vec<_>>());
}

/// Starts the watchdog if [`arm`] was called and no watchdog runs yet.
pub(crate) fn start() {
    send_line("", true);
}

/// Reports a started program to the watchdog, which kills it if this process ends first.
pub(crate) fn watch_program(id: u32) {
    send_line(&format!("+{id}\n"), true);
}

/// Reports an ended program to the watchdog, which then no longer kills it.
pub(crate) fn unwatch_program(id: u32) {
    send_line(&format!("-{id}\n"), false);
}

/// Kills programs, each the leader of its group, and all processes that they started.
#[cfg(unix)]
pub(crate) fn kill(programs: &[u32]) {
    tree::kill(programs);
}

#[cfg(not(unix))]
pub(crate) fn kill(_: &[u32]) {}

fn send_line(line: &str, start: bool) {
    let Some(watchdog) = WATCHDOG.get() else { return };
    let mut watchdog = watchdog.lock();
    if let Err(error) = watchdog.send_line(line, start) {
        tracing::warn!(
            "cannot start the watchdog, so the operator's programs continue if this process is killed: {error}"
        );
    }
}

impl Watchdog {
    /// Writes a line to the watchdog. If no watchdog runs, starts one if `start` is true, and otherwise does nothing.
    fn send_line(&mut self, line: &str, start: bool) -> std::io::Result<()> {
        if self.process.is_none() && start {
            let mut command = Command::new(&self.program);
            command.args(&self.arguments).env_clear().current_dir("/");
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            // Signals of the terminal to the host must not reach the watchdog.
            #[cfg(unix)]
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            let mut child = command.spawn()?;
            self.process = child.stdin.take().map(|input| (child, input));
        }
        match &mut self.process {
            Some((_, input)) => input.write_all(line.as_bytes()),
            None => Ok(()),
        }
    }
}
