//! Ends programs whose host is gone, however it ended.
//!
//! A process that is killed cannot end the programs that it has started. So a host starts a second process of its own, the
//! watchdog, and tells it over a pipe which programs run. When the host ends, the kernel closes the pipe, and the watchdog kills
//! these programs, what they have started, and the rest of their process groups. A process that left its group and whose
//! parent is gone cannot be found, and lives on.
//!
//! The pipe has lines: `+ID` when a program begins, `-ID` when it was ended. Without [`arm`] there is no watchdog.

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

/// A watchdog, which is started with the first program.
struct Watchdog {
    program: PathBuf,
    arguments: Vec<OsString>,
    process: Option<(Child, ChildStdin)>,
}

/// Names the command that does [`watch`] with its standard input. The first one that is named counts.
pub fn arm(program: PathBuf, arguments: Vec<OsString>) {
    // Another one is armed already.
    let _ = WATCHDOG.set(Mutex::new(Watchdog { program, arguments, process: None }));
}

/// Is a watchdog: reads which programs run, and kills them when its input ends.
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

/// Tells the watchdog that a program runs.
pub(crate) fn begin(id: u32) {
    tell(&format!("+{id}\n"), true);
}

/// Tells the watchdog that a program was ended.
pub(crate) fn end(id: u32) {
    tell(&format!("-{id}\n"), false);
}

/// Kills programs, each the first of its group, with what they have started.
#[cfg(unix)]
pub(crate) fn kill(programs: &[u32]) {
    tree::kill(programs);
}

#[cfg(not(unix))]
pub(crate) fn kill(_: &[u32]) {}

fn tell(line: &str, start: bool) {
    let Some(watchdog) = WATCHDOG.get() else { return };
    let mut watchdog = watchdog.lock();
    if let Err(error) = watchdog.tell(line, start) {
        tracing::warn!("no watchdog ends the operator's programs if this process is killed: {error}");
    }
}

impl Watchdog {
    /// Writes a line, and starts the process before if need be.
    fn tell(&mut self, line: &str, start: bool) -> std::io::Result<()> {
        if self.process.is_none() && start {
            let mut command = Command::new(&self.program);
            command.args(&self.arguments).env_clear().current_dir("/");
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            // What the terminal sends to the host is not for the watchdog.
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
