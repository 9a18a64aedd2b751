//! How much a server takes at a time.

use std::time::Duration;

use super::intake::BODY_TIME;

/// Connections at a time.
pub(crate) const CONNECTIONS: usize = 4_096;
/// How long the head of a request may take, and how long a connection may be idle before it.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(30);
/// Streams of events at a time, of which no tenant has more than it leaves to others.
pub(crate) const SUBSCRIBERS: u64 = 4_000;
/// Time between two comments that say that the stream is still there.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Limits that tests make smaller.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// How long the head of a request may take.
    pub head_time: Duration,
    /// How long the body of a request may take.
    pub body_time: Duration,
    /// Live subscribers at a time.
    pub subscribers: u64,
    /// Time between two signs of life to a live subscriber. With each it is looked whether it may still hear the run.
    pub heartbeat: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: CONNECTIONS,
            head_time: HEAD_TIME,
            body_time: BODY_TIME,
            subscribers: SUBSCRIBERS,
            heartbeat: HEARTBEAT,
        }
    }
}
