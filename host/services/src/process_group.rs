//! Groups of processes that end together: an operator's program, and the processes that it starts.

/// The processes of a program that was started as the leader of its own process group. Dropping this value kills them.
/// If the host process ends before, the [watchdog](crate::watchdog) kills them.
pub(crate) struct ProcessGroup(
    #[cfg_attr(not(unix), allow(dead_code, reason = "the system has no process groups"))] Option<u32>,
);

impl ProcessGroup {
    /// Wraps the process group whose leader has the id `first`. `None`: the process has already ended.
    pub(crate) fn of(first: Option<u32>) -> ProcessGroup {
        if let Some(first) = first {
            crate::watchdog::begin(first);
        }
        ProcessGroup(first)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(first) = self.0 {
            crate::watchdog::kill(&[first]);
            crate::watchdog::end(first);
        }
    }
}
