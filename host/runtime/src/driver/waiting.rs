//! The people and events that an idle run waits for.

use super::children::Children;
use crate::{
    outstanding::{Outstanding, outstanding},
    question,
    result::{Idle, Waiting},
    state::RunState,
};

/// Returns what an idle run waits for. `due` is the time of its own first timer.
pub(super) fn idle(state: &RunState, children: &Children, due: Option<u64>) -> Idle {
    Idle {
        waiting: waiting(state, children),
        due: children.due().into_iter().chain(due).min(),
        quota: state.paused_by().or(children.quota()).cloned(),
    }
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
