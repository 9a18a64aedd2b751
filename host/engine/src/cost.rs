//! The cost of an attempt.

use std::time::Duration;

use crate::Profile;

/// The cost of one attempt, without the checks of schemas and the time that it waits for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The time that the host takes to make the instance.
    pub instantiation: Duration,
    /// The time of the call, with the replies to the calls of the guest.
    pub call: Duration,
    /// The time that the host takes to drop the instance.
    pub teardown: Duration,
    /// The bytes of linear memory at the end of the attempt, over all memories.
    pub memory: usize,
}

/// The measurement of one attempt.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The cost of the attempt.
    pub cost: Cost,
    /// The guest's stacks at each tick of 2 ms, if the attempt is profiled.
    pub profile: Option<Profile>,
}

impl Cost {
    /// Returns the time of the attempt.
    pub fn time(&self) -> Duration {
        self.instantiation + self.call + self.teardown
    }
}
