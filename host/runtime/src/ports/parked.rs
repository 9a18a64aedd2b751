//! Numbers of parked runs.

/// The parked top runs of one flow that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParkedGroup {
    /// The name of the flow.
    pub flow: String,
    /// The name of a [`WaitReason`](crate::fact::WaitReason), `quota_exceeded`, or `timer` for runs that wait only for a
    /// timer. `unknown` if an older version has parked runs that need a person.
    pub reason: String,
    /// The number of runs.
    pub runs: u64,
    /// The time at which the first of them was parked, in milliseconds since 1970.
    pub since: u64,
}

/// The parked top runs of a tenant. A run counts once, by the first item that it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParkedRuns {
    /// The groups of the runs that were looked at.
    pub groups: Vec<ParkedGroup>,
    /// The number of parked runs that were not looked at.
    pub others: u64,
}
