//! The reason why a run is parked, and the first item that it waits for, in a form that fits into a row of a list.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a run is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// The run waits for people, events from outside, or a timer.
    Waiting,
    /// The run's process has died repeatedly, and the run made no progress.
    CrashLoop,
    /// A task of the run is blocked.
    NeedsAttention,
    /// The store was restored from an older copy. The later actions of the run are unknown.
    Restored,
    /// A quota of the tenant is used up. The run goes on by itself when the quota has renewed.
    QuotaExceeded,
}

/// The first item that a parked run waits for: a blocked task if there is one, else the wait whose address comes first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitsFor {
    /// The reason for the wait.
    pub reason: WaitReason,
    /// The address of the task that waits, such as `each[3].approve`. `None`: the whole run waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<str>>,
    /// The number of further waits of the run and of its child runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: u32,
}

/// The reason why a parked run waits. A run that waits only for a timer has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// A person has to answer a question.
    Gate,
    /// An agent run waits for a message.
    Message,
    /// A task waits for a named event.
    Event,
    /// A person has to decide about a call of unknown outcome.
    Ambiguous,
    /// A person has to decide about a component that did not repeat its recorded calls.
    Nondeterministic,
    /// A person has to decide about an undo that has failed.
    UndoFailed,
    /// The run's process has died repeatedly, and the run made no progress.
    CrashLoop,
    /// The store was restored from an older copy. The later actions of the run are unknown.
    Restored,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl WaitReason {
    /// All reasons.
    pub const ALL: [WaitReason; 8] = [
        WaitReason::Gate,
        WaitReason::Message,
        WaitReason::Event,
        WaitReason::Ambiguous,
        WaitReason::Nondeterministic,
        WaitReason::UndoFailed,
        WaitReason::CrashLoop,
        WaitReason::Restored,
    ];

    /// Returns the name in JSON, such as `crash_loop`.
    pub fn name(self) -> &'static str {
        match self {
            WaitReason::Gate => "gate",
            WaitReason::Message => "message",
            WaitReason::Event => "event",
            WaitReason::Ambiguous => "ambiguous",
            WaitReason::Nondeterministic => "nondeterministic",
            WaitReason::UndoFailed => "undo_failed",
            WaitReason::CrashLoop => "crash_loop",
            WaitReason::Restored => "restored",
        }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.reason.name())?;
        if let Some(task) = &self.task {
            write!(formatter, " {task}")?;
        }
        if self.others > 0 { write!(formatter, " and {} more", self.others) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_reasons_are_those_in_json() {
        for reason in WaitReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
    }
}
