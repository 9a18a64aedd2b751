//! Notifications: tells people outside that a run waits for them, has failed or cannot go on, and that the server has
//! trouble.
//!
//! The operator's file names the targets. Messages about runs are derived from the store: the runs by the last change of
//! their status. So a message is also made for an event of another process, and of a process that was killed.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | the operator's file |
//! | `looker` | the looks of a process, and the writes of documents |
//! | [`message`] | a message, its id, and its texts |
//! | `format` | the bodies of the formats |
//! | [`link`] | links that answer a gate |
//! | `look` | a look at a tenant |
//! | `scan` | the messages about the runs of a tenant |
//! | `watch` | the messages about quotas, tokens, refused posts and the store |
//! | [`present`] | the targets in force, and their replacement |
//! | `queue` | the messages that wait for targets |
//! | `record` | the documents of the store |
//! | `sender` | the tasks that send |
//! | `target` | sends a message to a target |
//! | [`worker`] | the main task of a process |
//!
//! **Each message is sent at least once, also if a process is killed.** The progress of a tenant and its waiting messages
//! are one document. The place in the list of runs and the messages before this place are stored together, so a process
//! that dies leaves both as they were. A message that was sent and not yet recorded is sent again, with the same id: the id
//! follows from the tenant, the run, the kind, the place in the run and the time of the event there.
//!
//! **One process at a time sends the messages of a shared store.** It holds a lease, and begins no message after it.
//!
//! **No target waits for another one, and no tenant for another one.** Each target has a task of its own, which takes the
//! tenants in turn. The messages of a tenant that wait for a target are bounded. Further ones are counted, and one message
//! has their number.

pub mod config;
mod format;
pub mod link;
mod look;
mod looker;
pub mod message;
pub mod present;
mod queue;
mod record;
mod scan;
mod sender;
mod target;
#[cfg(test)]
mod tests;
mod watch;
pub mod worker;

pub use self::{
    config::{MAX_NOTIFY_FILE_BYTES, NotifyFile},
    present::Notifications,
    worker::Notifier,
};
