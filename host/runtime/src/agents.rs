//! The agent runs of one task and their inboxes, folded from the facts of the task.
//!
//! An attempt numbers a component's reports on its agent runs. A repeated attempt sends them again with the same
//! numbers, and the decider ignores reports that are already recorded.

use std::sync::Arc;

use flowcell_contract::Value;
use sha2::{Digest, Sha256};

use crate::{
    fact::AgentFact,
    limits::{DEFAULT_INBOX_MESSAGES, MAX_REMEMBERED_MESSAGE_IDS},
};

/// The agent runs of one task.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Agents {
    /// Number of reports that this attempt has made on its agent runs: so far (`marks`), and up to its last checkpoint
    /// (`marks_before`).
    pub(crate) marks: u32,
    pub(crate) marks_before: u32,
    /// Number of agent runs that this attempt has opened: so far (`opened`), and up to its last checkpoint
    /// (`opened_before`).
    pub(crate) opened: u32,
    pub(crate) opened_before: u32,
    /// The agent runs that are open, or were open at the last checkpoint.
    pub(crate) runs: Vec<AgentRun>,
    /// The messages to the agent runs, in order, except those applied before the last checkpoint.
    pub(crate) inbox: Vec<InboxMessage>,
}

/// One agent run, with its inbox limits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentRun {
    pub(crate) id: Arc<str>,
    /// Maximum number of messages that may wait in the inbox. `None`: the agent run accepts no messages.
    pub(crate) capacity: Option<u32>,
    opened: u32,
    closed: Option<u32>,
    /// True after a command has asked the agent run to finish.
    pub(crate) closing: bool,
    /// The ids of the latest [`MAX_REMEMBERED_MESSAGE_IDS`] messages, by which a repeated message is recognised.
    seen: Vec<Arc<str>>,
}

/// An entry of an agent run's inbox: a message, or the request to finish.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InboxMessage {
    pub(crate) run: Arc<str>,
    /// The id of the message. `None`: the entry is the request to finish, and no messages follow.
    pub(crate) id: Option<Arc<str>>,
    pub(crate) value: Value,
    pub(crate) applied: bool,
}

impl AgentRun {
    pub(crate) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// Returns true if the agent run was open when the attempt had made this number of reports.
    pub(crate) fn was_open(&self, marks: u32) -> bool {
        self.opened <= marks && self.closed.is_none_or(|closed| closed > marks)
    }

    pub(crate) fn has_seen(&self, message: &str) -> bool {
        self.seen.iter().any(|seen| **seen == *message)
    }
}

impl Agents {
    /// Returns the open agent run with this id.
    pub(crate) fn open(&self, id: &str) -> Option<&AgentRun> {
        self.runs.iter().find(|run| *run.id == *id && run.is_open())
    }

    /// Returns the messages to an agent run that are not yet applied.
    pub(crate) fn waiting<'a>(&'a self, run: &'a str) -> impl Iterator<Item = &'a Arc<str>> {
        let inbox = self.inbox.iter().filter(move |entry| *entry.run == *run && !entry.applied);
        inbox.filter_map(|entry| entry.id.as_ref())
    }

    /// Returns the size of all messages that are not yet applied: the bytes of their JSON texts together.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.inbox.iter().filter(|entry| !entry.applied).map(|entry| entry.value.text().len()).sum()
    }

    /// Records a checkpoint: the attempt continues in another sandbox, and does not repeat its earlier steps. Forgets
    /// closed agent runs and applied messages.
    pub(crate) fn checkpoint(&mut self) {
        self.marks_before = self.marks;
        self.opened_before = self.opened;
        self.runs.retain(AgentRun::is_open);
        self.inbox.retain(|entry| !entry.applied);
    }

    pub(crate) fn apply(&mut self, fact: &AgentFact) {
        match fact {
            AgentFact::Opened { mark, id, about } => {
                self.marks = *mark;
                self.opened += 1;
                let inbox = about.get("inbox").filter(|inbox| !inbox.is_null());
                let capacity = |inbox: &flowcell_contract::Json| {
                    inbox.get("capacity").and_then(flowcell_contract::Json::as_u64).unwrap_or(DEFAULT_INBOX_MESSAGES)
                };
                let capacity = inbox.map(|inbox| u32::try_from(capacity(inbox)).unwrap_or(u32::MAX));
                let (id, opened) = (id.clone(), *mark);
                self.runs.push(AgentRun { id, capacity, opened, closed: None, closing: false, seen: Vec::new() });
            }
            AgentFact::Told { mark, .. } => self.marks = *mark,
            AgentFact::Closed { mark, id, .. } => {
                self.marks = self.marks.max(*mark);
                let closed = self.marks;
                self.change_each(id, |run| run.closed = Some(closed));
            }
            AgentFact::Written { id, message, value } => {
                self.change_each(id, |run| {
                    if run.seen.len() >= MAX_REMEMBERED_MESSAGE_IDS {
                        run.seen.remove(0);
                    }
                    run.seen.push(message.clone());
                });
                let (run, id) = (id.clone(), Some(message.clone()));
                self.inbox.push(InboxMessage { run, id, value: value.clone(), applied: false });
            }
            AgentFact::Closing { id } => {
                self.change_each(id, |run| run.closing = true);
                self.inbox.push(InboxMessage { run: id.clone(), id: None, value: Value::null(), applied: false });
            }
            AgentFact::Applied { id, message } => {
                let meant = |entry: &&mut InboxMessage| entry.run == *id && entry.id == *message;
                self.inbox.iter_mut().filter(meant).for_each(|entry| entry.applied = true);
            }
            AgentFact::Spoke { .. }
            | AgentFact::Used { .. }
            | AgentFact::ToolStarted { .. }
            | AgentFact::ToolAsked { .. }
            | AgentFact::ToolEnded { .. } => {}
        }
    }

    fn change_each(&mut self, id: &str, change: impl FnMut(&mut AgentRun)) {
        self.runs.iter_mut().filter(|run| *run.id == *id && run.is_open()).for_each(change);
    }
}

/// Returns the id of the n-th agent run that an attempt opens.
pub(crate) fn agent_run_id(run: &str, task: &str, attempt: u32, nth: u32) -> Arc<str> {
    let mut hasher = Sha256::new();
    for part in [run, task, &attempt.to_string(), &nth.to_string()] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    format!("agent-{}", hex::encode(&digest[..8])).into()
}
