//! Front ends of runs outside this program: files, webhooks, and the operator's programs.
//!
//! A [`Channel`] receives events and must return quickly. So a webhook and a program have an [outbox](self#limits)
//! between them and the run. The run never waits for them, and their errors do not fail it. The opener of the channel
//! receives errors as a [`Notice`].
//!
//! | channel | receives |
//! |---|---|
//! | [`JsonLines`] | every event as a line of JSON, when it happens |
//! | [`WebhookChannel`] | events in order, several in one request: `{ "v": 1, "runId", "events": [...] }` |
//! | [`ProgramChannel`] | events as lines of JSON; the lines that the program writes are commands, see [`command`] |
//!
//! All three channels also receive live events, such as text while a model writes it. A live event has no `seq` and is
//! not repeated.
//!
//! # Limits
//!
//! An outbox holds 10,000 lines and 16 MiB. It drops further events and puts `{ "type": "lagged", "runId", "from", "to"
//! }` in their place, with the numbers (`seq`) of the run's first and last dropped event. `flowcell runs events RUN
//! --from SEQ` reads the dropped events. An outbox with 1,000 lines or more drops live events without a `lagged` line,
//! since later recorded events contain their text.

pub mod command;
mod file;
mod outbox;
mod program;
mod webhook;

use std::{sync::Arc, time::Duration};

pub(crate) use self::outbox::Outbox;
pub use self::{command::CommandError, file::JsonLines, program::ProgramChannel, webhook::WebhookChannel};

#[cfg(doc)]
use crate::Channel;

/// Time that a channel has after the end of its run to send the remaining events and to end.
pub const GRACE: Duration = Duration::from_secs(10);

/// A message from a channel to its opener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An error of the channel, as a sentence.
    Trouble(String),
    /// A line that a program wrote to its standard error.
    Said {
        /// The program's name.
        program: String,
        /// The text of the line.
        line: String,
    },
}

/// Receives notices. Other threads call it, and it must return quickly.
pub type Notices = Arc<dyn Fn(Notice) + Send + Sync>;
