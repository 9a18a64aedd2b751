//! Processes that end together: a program of the operator's, and what it has started.

/// The processes of a program, which was started as the first of a group of its own. They are killed when this is dropped, and
/// by the [watchdog](crate::watchdog) if this process ends before.
pub(crate) struct ProcessGroup(
    #[cfg_attr(not(unix), allow(dead_code, reason = "there are no process groups"))] Option<u32>,
);

impl ProcessGroup {
    /// The group of a process that was started as the first of its own.
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
