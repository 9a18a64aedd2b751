//! Counts notifications. The names of the targets are in the operator's file, and bounded in number.

use super::{Metrics, number};

/// The outcome of a notification, or of an attempt to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeOutcome {
    /// The target has taken it.
    Sent,
    /// An attempt has failed, and another one follows.
    Failed,
    /// No attempt has succeeded in 24 hours.
    GivenUp,
    /// It was above the rate or the room of its target, and was counted in another message.
    LeftOut,
}

impl NoticeOutcome {
    /// Returns the value of the label.
    fn name(self) -> &'static str {
        match self {
            NoticeOutcome::Sent => "sent",
            NoticeOutcome::Failed => "failed",
            NoticeOutcome::GivenUp => "given_up",
            NoticeOutcome::LeftOut => "left_out",
        }
    }
}

impl Metrics {
    /// Counts notifications to a target of the operator's file.
    pub(crate) fn count_notices(&self, target: &str, outcome: NoticeOutcome, count: u64) {
        let labels = [("target", target.into()), ("outcome", outcome.name().into())];
        self.0.notices.get_or_create(&labels).inc_by(count);
    }

    /// Sets the number of notifications that wait for a target.
    pub(crate) fn set_notices_waiting(&self, target: &str, count: u64) {
        self.0.notices_waiting.get_or_create(&[("target", target.into())]).set(number(count));
    }
}
