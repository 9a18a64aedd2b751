//! Pieces of an answer, told while it is made: the first at once, later ones together.

use std::{future, sync::Arc, time::Duration};

use flowcell_contract::{Json, Progress};
use futures_util::future::BoxFuture;

use super::clock::{Clock, Wait};
use crate::redaction::{Pieces, Redaction};

/// After a piece was told, the next ones wait this long for more.
const COALESCE: Duration = Duration::from_millis(50);

/// A piece of an answer that is told while it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delta {
    Text(String),
    Thinking(String),
}

/// Tells an answer's pieces.
pub(super) struct Telling {
    progress: Progress,
    clock: Arc<dyn Clock>,
    waiting: Vec<Delta>,
    /// What hides keys in texts that come in pieces.
    pieces: Pieces,
    /// The last piece was a thought.
    thinks: bool,
    /// The time in which nothing is told.
    quiet: Option<BoxFuture<'static, ()>>,
}

impl Telling {
    pub(super) fn new(progress: Progress, clock: Arc<dyn Clock>) -> Telling {
        let (pieces, thinks) = (Pieces::default(), false);
        Telling { progress, clock, waiting: Vec::new(), pieces, thinks, quiet: None }
    }

    /// Hides these keys in what is added from now on.
    pub(super) fn hide(&mut self, redaction: Redaction) {
        self.pieces = Pieces::new(redaction);
        self.thinks = false;
    }

    /// Tells a piece at once, or soon. Empty ones are nothing. What may be a part of a key waits for what follows.
    pub(super) fn add(&mut self, delta: Delta) {
        let (thinks, text) = match delta {
            Delta::Text(text) => (false, text),
            Delta::Thinking(text) => (true, text),
        };
        if thinks != self.thinks {
            self.settle();
            self.thinks = thinks;
        }
        let told = self.pieces.add(&text);
        self.add_settled(if thinks { Delta::Thinking(told) } else { Delta::Text(told) });
    }

    /// Adds what was kept back.
    fn settle(&mut self) {
        let rest = self.pieces.end();
        self.add_settled(if self.thinks { Delta::Thinking(rest) } else { Delta::Text(rest) });
    }

    fn add_settled(&mut self, delta: Delta) {
        let (Delta::Text(text) | Delta::Thinking(text)) = &delta;
        if text.is_empty() {
            return;
        }
        match (self.waiting.last_mut(), delta) {
            (Some(Delta::Text(last)), Delta::Text(more)) | (Some(Delta::Thinking(last)), Delta::Thinking(more)) => {
                last.push_str(&more);
            }
            (_, delta) => self.waiting.push(delta),
        }
        if self.quiet.is_none() {
            self.flush();
        }
    }

    /// Tells what waits, as soon as it may. Without anything to wait for it never ends. It may be dropped at any time.
    pub(super) async fn tick(&mut self) {
        match &mut self.quiet {
            Some(quiet) => quiet.await,
            None => future::pending().await,
        }
        self.quiet = None;
        self.flush();
    }

    /// Tells everything. Nothing follows.
    pub(super) fn end(&mut self) {
        self.settle();
        self.flush();
    }

    /// Tells what waits.
    fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.quiet = Some(self.clock.sleep(Wait::Coalesce, COALESCE));
        }
        for delta in self.waiting.drain(..) {
            let (kind, text) = match delta {
                Delta::Text(text) => ("agent:text", text),
                Delta::Thinking(text) => ("agent:thinking", text),
            };
            self.progress.tell(kind, Json::object([("delta", Json::from(text))]));
        }
    }

    /// Tells that what was told so far does not count, and that another attempt begins after a while.
    pub(super) fn retry(&mut self, attempt: u32, reason: &str, delay: Duration) {
        self.waiting.clear();
        self.pieces.end();
        self.quiet = None;
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let members =
            [("attempt", Json::from(attempt)), ("reason", Json::from(reason)), ("delayMs", Json::from(delay))];
        self.progress.tell("agent:retry", Json::object(members));
    }
}
