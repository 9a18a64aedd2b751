//! The people and events that an idle run waits for.

use super::children::Children;
use crate::{
    decide::Input,
    outstanding::{Outstanding, outstanding},
    question,
    result::{Idle, Waiting},
    state::RunState,
};

/// Returns the input that parks an idle run.
pub(super) fn park(idle: &Idle) -> Input {
    let needs_attention = idle.waiting.iter().any(Waiting::needs_attention);
    Input::Park { due: idle.due, needs_attention, waits_for: idle.first_wait().map(Box::new) }
}

/// Returns the people and events that a run and its children wait for, in the order of the addresses.
pub(super) fn waiting(state: &RunState, children: &Children) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    for outstanding in outstanding(state) {
        match outstanding {
            Outstanding::Question { task, question } => {
                let asked = question::gate(state, task).map(|(_, _, asked)| asked).unwrap_or_default();
                waiting.push(Waiting::answer(state.address(task), question, asked));
            }
            Outstanding::Permission { task, ordinal, question } => {
                let asked = question::permission(state, task, ordinal).map(|(_, asked)| asked).unwrap_or_default();
                let address = format!("{}#{ordinal}", state.address(task));
                waiting.push(Waiting::answer(address, question, asked));
            }
            Outstanding::Messages { task, agent_run } => {
                waiting.push(Waiting::Message { address: state.address(task), agent_run });
            }
            Outstanding::Decision { task, reason } => {
                waiting.push(Waiting::Decision { address: state.address(task), reason: Box::new(reason) });
            }
            Outstanding::Event { task, name } => {
                waiting.push(Waiting::Event { address: state.address(task), name: name.to_string() });
            }
            _ => {}
        }
    }
    waiting.extend(children.waiting(|task| state.address(task)));
    waiting.sort_by(|a, b| a.address().cmp(b.address()));
    waiting
}
