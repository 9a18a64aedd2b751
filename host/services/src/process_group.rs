//! Processes that were started together end together.

/// The processes of one group, by the number of the first. They are killed when this is dropped.
pub(crate) struct ProcessGroup(
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are no process groups"))] Option<u32>,
);

impl ProcessGroup {
    /// The group of a process that was started as the first of its own.
    pub(crate) fn of(first: Option<u32>) -> ProcessGroup {
        ProcessGroup(first)
    }
}

impl Drop for ProcessGroup {
    #[cfg(unix)]
    fn drop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};

        let id = self.0.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        // If they are gone already there is nothing to do.
        let _ = id.map(|id| kill_process_group(id, Signal::KILL));
    }

    #[cfg(not(unix))]
    fn drop(&mut self) {}
}
