//! The limits of an agent run, and the part of them that it has used.

use flowcell_sdk::model::Usage;

use crate::settings::{Budget, Settings};

/// The limits of one agent run, with the counters of its turns, calls and costs.
pub(crate) struct Limits {
    /// Number of turns so far: 1 for the first messages, and 1 for each inbox message that was added to the
    /// conversation.
    pub(crate) turns: u32,
    /// Tokens and cost of the model calls so far.
    pub(crate) usage: Usage,
    calls: u32,
    max_turns: u32,
    max_calls: u32,
    budget: Budget,
}

impl Limits {
    /// Creates the limits of an agent run that is in its first turn and has made no calls.
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

    /// Returns the exhausted limit that forbids another model call, `budget` or `max_model_calls`; `None` if the agent
    /// may call the model.
    pub(crate) fn exhausted_limit(&self) -> Option<&'static str> {
        let cost = self.usage.cost_usd.unwrap_or_default();
        let spent = self.budget.usd.is_some_and(|usd| cost >= usd)
            || self.budget.tokens.is_some_and(|tokens| self.usage.tokens() >= tokens);
        if spent {
            return Some("budget");
        }
        (self.calls >= self.max_calls).then_some("max_model_calls")
    }

    /// Returns true if the agent may not add another user message to the conversation.
    pub(crate) fn has_no_turns_left(&self) -> bool {
        self.turns >= self.max_turns
    }
}
