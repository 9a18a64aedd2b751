//! Front ends of runs that are more than a function of this program: files, webhooks, and programs of the operator's.
//!
//! A [`Channel`] is told what happens and must be quick, so a webhook and a program have an [outbox](self#limits) between
//! them and the run: the run never waits for them, and none of their errors is its own. What goes wrong is told to whoever
//! opened the channel, as a [`Notice`].
//!
//! | channel | what it is told |
//! |---|---|
//! | [`JsonLines`] | every event as a line of JSON, when it happens |
//! | [`WebhookChannel`] | events in order, many in a body: `{ "v": 1, "runId", "events": [...] }` |
//! | [`ProgramChannel`] | events as lines of JSON; its lines are commands, see [`verb`] |
//!
//! All of them also get what is live, such as text while a model writes it: such an event has no `seq`, and is not told again.
//!
//! # Limits
//!
//! An outbox holds 10,000 lines and 16 MiB. What comes then is left out, and `{ "type": "lagged", "runId", "from", "to" }`
//! stands in its place, by the numbers of the events (`seq`); `flowcell runs events RUN --from SEQ` has them. Live events are
//! left out beyond 1,000 lines, without a word: what is recorded later has all of their text.

mod file;
mod outbox;
mod program;
pub mod verb;
mod webhook;

use std::{sync::Arc, time::Duration};

pub(crate) use self::outbox::Outbox;
pub use self::{file::JsonLines, program::ProgramChannel, verb::VerbError, webhook::WebhookChannel};

#[cfg(doc)]
use crate::Channel;

/// How long a channel may take after the end of its run, for what it has not told yet and for its own end.
pub const GRACE: Duration = Duration::from_secs(10);

/// What a channel tells whoever opened it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Something of it does not work.
    Trouble(String),
    /// A program wrote this about itself.
    Said {
        /// The program's name.
        program: String,
        /// A line.
        line: String,
    },
}

/// Takes notices. It is called from other threads and must be quick.
pub type Notices = Arc<dyn Fn(Notice) + Send + Sync>;
