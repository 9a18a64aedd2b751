//! What an agent may use, and what it has used.

use flowcell_sdk::model::Usage;

use crate::settings::{Budget, Settings};

/// The counters of one agent run.
pub(crate) struct Limits {
    /// User messages that were applied; what it begins with is one.
    pub(crate) turns: u32,
    /// What the model's turns took.
    pub(crate) usage: Usage,
    calls: u32,
    max_turns: u32,
    max_calls: u32,
    budget: Budget,
}

impl Limits {
    /// Nothing is used but the first turn.
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

    /// Counts a call of the model.
    pub(crate) fn count_call(&mut self) {
        self.calls += 1;
    }

    /// Why the model may not be asked again; none: it may.
    pub(crate) fn used_up(&self) -> Option<&'static str> {
        let cost = self.usage.cost_usd.unwrap_or_default();
        let spent = self.budget.usd.is_some_and(|usd| cost >= usd)
            || self.budget.tokens.is_some_and(|tokens| self.usage.tokens() >= tokens);
        if spent {
            return Some("budget");
        }
        (self.calls >= self.max_calls).then_some("max_model_calls")
    }

    /// Whether no more user messages are applied.
    pub(crate) fn no_more_turns(&self) -> bool {
        self.turns >= self.max_turns
    }
}
