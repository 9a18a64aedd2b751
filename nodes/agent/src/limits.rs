//! The limits of an agent run and the use so far.

use flowcell_sdk::model::Usage;

use crate::settings::{Budget, Settings};

/// The counters of one agent run.
pub(crate) struct Limits {
    /// User messages that were applied, including the first one.
    pub(crate) turns: u32,
    /// Tokens and cost of the model calls so far.
    pub(crate) usage: Usage,
    calls: u32,
    max_turns: u32,
    max_calls: u32,
    budget: Budget,
}

impl Limits {
    /// Starts in the first turn, with no calls made.
    pub(crate) fn new(settings: &Settings) -> Limits {
        Limits {
            turns: 1,
            usage: Usage::default(),
            calls: 0,
            max_turns: settings.max_turns,
            max_calls: settings.max_model_calls,
            budget: settings.budget.clone(),
        }
    }

    /// Counts a model call.
    pub(crate) fn count_call(&mut self) {
        self.calls += 1;
    }

    /// Returns the reason why the agent may not call the model again, or `None` if it may.
    pub(crate) fn used_up(&self) -> Option<&'static str> {
        let cost = self.usage.cost_usd.unwrap_or_default();
        let spent = self.budget.usd.is_some_and(|usd| cost >= usd)
            || self.budget.tokens.is_some_and(|tokens| self.usage.tokens() >= tokens);
        if spent {
            return Some("budget");
        }
        (self.calls >= self.max_calls).then_some("max_model_calls")
    }

    /// Returns true if the agent may not apply another user message.
    pub(crate) fn no_more_turns(&self) -> bool {
        self.turns >= self.max_turns
    }
}
