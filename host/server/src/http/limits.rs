//! The limits of a server's connections and streams.

use std::time::Duration;

use super::intake::DEFAULT_BODY_TIME;

/// The maximum number of open connections.
pub(crate) const MAX_CONNECTIONS: usize = 4_096;
/// The time for the head of a request to arrive. Idle connections are closed after the same time.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(30);
/// The time for the handshake of TLS.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// The maximum number of handshakes of TLS in progress. Addresses share them as they share connections.
pub(crate) const MAX_HANDSHAKES: usize = 512;
/// The maximum number of open event streams. A fair semaphore divides them among tenants.
pub(crate) const MAX_SUBSCRIBERS: u64 = 4_000;
/// The maximum number of open WebSockets. Each may hold a message of 1 MiB in memory. A fair semaphore divides them
/// among tenants.
pub(crate) const MAX_SOCKETS: u64 = 1_024;
/// The interval between two comments that keep an idle stream alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// The limits of connections and streams. Tests lower them, and `flowcell serve` sets some of them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of open connections; 4,096 by default.
    pub connections: usize,
    /// The time for the head of a request to arrive; 30 s by default.
    pub head_time: Duration,
    /// The time for the handshake of TLS; 10 s by default.
    pub handshake_time: Duration,
    /// The maximum number of handshakes of TLS in progress; 512 by default.
    pub handshakes: usize,
    /// The time for the body of a request to arrive; 30 s by default.
    pub body_time: Duration,
    /// The maximum number of open event streams; 4,000 by default.
    pub subscribers: u64,
    /// The maximum number of open WebSockets; 1,024 by default.
    pub sockets: u64,
    /// The interval between two heartbeats of an event stream; 15 s by default. With each heartbeat, the server checks
    /// the subscriber's token again.
    pub heartbeat: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: MAX_CONNECTIONS,
            head_time: HEAD_TIME,
            handshake_time: HANDSHAKE_TIME,
            handshakes: MAX_HANDSHAKES,
            body_time: DEFAULT_BODY_TIME,
            subscribers: MAX_SUBSCRIBERS,
            sockets: MAX_SOCKETS,
            heartbeat: HEARTBEAT,
        }
    }
}
