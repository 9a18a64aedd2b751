//! Groups of processes that end together: an operator's program, and the processes that it starts.

use std::io;

use tokio::process::{Child, Command};

/// The processes of a program that was started as the leader of its own process group. Dropping this value kills them.
/// If the host process ends without dropping the value, the [watchdog](crate::watchdog) kills them.
pub(crate) struct ProcessGroup(
    #[cfg_attr(not(unix), allow(dead_code, reason = "the system has no process groups"))] Option<u32>,
);

impl ProcessGroup {
    /// Starts a program as the leader of its own process group, and reports the program to the watchdog if that is
    /// armed. The watchdog runs already when the program starts, so the report follows at once. If the host is killed
    /// between the start and the report, the program survives.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<(Child, ProcessGroup)> {
        #[cfg(unix)]
        command.process_group(0);
        crate::watchdog::start();
        let child = command.spawn()?;
        // Without an id, the program has already ended.
        let first = child.id();
        if let Some(first) = first {
            crate::watchdog::watch_program(first);
        }
        Ok((child, ProcessGroup(first)))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(first) = self.0 {
            crate::watchdog::kill(&[first]);
            crate::watchdog::unwatch_program(first);
        }
    }
}
