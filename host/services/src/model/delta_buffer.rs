//! Reports the pieces of an answer as events while the model writes: the first piece at once, later ones together.

use std::{future, sync::Arc, time::Duration};

use flowcell_contract::{Json, Progress};
use futures_util::future::BoxFuture;

use super::clock::{Clock, Wait};
use crate::redaction::{Redaction, StreamRedactor, Unit};

/// The minimum time between two reports. Pieces that arrive within it are collected and reported together.
const COALESCE_TIME: Duration = Duration::from_millis(50);

/// A piece of an answer that is reported while the model writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delta {
    Text(String),
    Thinking(String),
}

/// Reports the pieces of an answer.
pub(super) struct DeltaBuffer {
    progress: Progress,
    clock: Arc<dyn Clock>,
    waiting: Vec<Delta>,
    /// Redacts secrets in texts that arrive in pieces.
    pieces: StreamRedactor,
    /// True if the last piece was part of the model's thoughts.
    thinks: bool,
    /// Resolves when the next report is due; `None` if the next piece is reported at once.
    quiet: Option<BoxFuture<'static, ()>>,
}

impl DeltaBuffer {
    pub(super) fn new(progress: Progress, clock: Arc<dyn Clock>) -> DeltaBuffer {
        let (pieces, thinks) = (StreamRedactor::default(), false);
        DeltaBuffer { progress, clock, waiting: Vec::new(), pieces, thinks, quiet: None }
    }

    /// Sets the redaction for the pieces that are added from now on. Its budget is that of the stream.
    pub(super) fn set_redaction(&mut self, redaction: Redaction) {
        self.pieces = StreamRedactor::new(redaction, Unit::Word);
        self.thinks = false;
    }

    /// Adds a piece. Reports it at once if [`COALESCE_TIME`] has passed since the last report, otherwise later together
    /// with others. Ignores empty pieces. With secrets to redact, the last word is held back until it ends.
    pub(super) async fn add(&mut self, delta: Delta) {
        let (thinks, text) = match delta {
            Delta::Text(text) => (false, text),
            Delta::Thinking(text) => (true, text),
        };
        if thinks != self.thinks {
            self.release_held_text().await;
            self.thinks = thinks;
        }
        let told = self.pieces.add(&text).await;
        self.add_released(if thinks { Delta::Thinking(told) } else { Delta::Text(told) });
    }

    /// Moves the text that was held back to the waiting text. Called when the text ends, or changes between the reply
    /// and thoughts.
    async fn release_held_text(&mut self) {
        let rest = self.pieces.end().await;
        self.add_released(if self.thinks { Delta::Thinking(rest) } else { Delta::Text(rest) });
    }

    fn add_released(&mut self, delta: Delta) {
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

    /// Waits until the next report is due, and reports the waiting text. If the next piece would be reported at once,
    /// the future never ends. The caller may drop the future at any time.
    pub(super) async fn flush_when_due(&mut self) {
        match &mut self.quiet {
            Some(quiet) => quiet.await,
            None => future::pending().await,
        }
        self.quiet = None;
        self.flush();
    }

    /// Reports all text that is not yet reported. The caller must add no piece afterwards.
    pub(super) async fn finish(&mut self) {
        self.release_held_text().await;
        self.flush();
    }

    /// Reports the waiting text. If there was some, also starts the time until the next report.
    fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.quiet = Some(self.clock.sleep(Wait::Coalesce, COALESCE_TIME));
        }
        for delta in self.waiting.drain(..) {
            let (kind, text) = match delta {
                Delta::Text(text) => ("agent:text", text),
                Delta::Thinking(text) => ("agent:thinking", text),
            };
            self.progress.send(kind, Json::object([("delta", Json::from(text))]));
        }
    }

    /// Reports that the pieces so far do not count, and that the attempt with the number `attempt` begins after
    /// `delay`. Drops all text that is not reported yet.
    pub(super) fn retry(&mut self, attempt: u32, reason: &str, delay: Duration) {
        self.waiting.clear();
        self.pieces.clear();
        self.quiet = None;
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let members =
            [("attempt", Json::from(attempt)), ("reason", Json::from(reason)), ("delayMs", Json::from(delay))];
        self.progress.send("agent:retry", Json::object(members));
    }
}
