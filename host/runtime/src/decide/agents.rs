//! Agent runs: their reports, the messages to them, and their ends.

use std::sync::Arc;

use flowcell_contract::{BuiltIn, Failure, Value, code};

use super::Decider;
use crate::{
    agents::InboxMessage,
    call_log::Reply,
    command::HubError,
    fact::{AgentFact, CallRecord, Fact, Observed, TaskKey},
    limits::{MAX_INBOX_BYTES, MAX_INBOX_MESSAGES},
};

pub(super) fn record_agent_fact(decider: &mut Decider<'_>, task: TaskKey, agent_fact: AgentFact) {
    decider.emit(Fact::Agent { task, agent_fact: Box::new(agent_fact), before: Box::default() });
}

/// Records a component's report on its agent runs. Ignores a report that the journal already has.
pub(super) fn report(
    decider: &mut Decider<'_>,
    task: TaskKey,
    attempt: (u32, u32),
    mut report: AgentFact,
    before: Box<[Observed]>,
) {
    if !decider.state.is_running(task, attempt) {
        return;
    }
    let known = decider.state.task(task).agents.as_ref().map_or(0, |agents| agents.marks);
    let (AgentFact::Opened { mark, .. } | AgentFact::Told { mark, .. } | AgentFact::Closed { mark, .. }) = &report
    else {
        return;
    };
    if *mark <= known {
        return;
    }
    apply_messages(decider, task, &before);
    if let AgentFact::Closed { id, discarded, .. } = &mut report {
        *discarded = waiting_messages(decider, task, &id.clone());
    }
    decider.emit(Fact::Agent { task, agent_fact: Box::new(report), before });
}

fn waiting_messages(decider: &Decider<'_>, task: TaskKey, run: &str) -> Box<[Arc<str>]> {
    decider.state.task(task).agents.iter().flat_map(|agents| agents.waiting(run).cloned()).collect()
}

/// Records which messages the attempt has received: each message in `before` becomes an applied one. `before` has the
/// attempt's observations since its last recorded call or report.
pub(super) fn apply_messages(decider: &mut Decider<'_>, task: TaskKey, before: &[Observed]) {
    for observed in before {
        let agents = decider.state.task(task).agents.as_ref();
        let mut inbox = agents.iter().flat_map(|agents| &agents.inbox).filter(|entry| !entry.applied);
        let meant = match observed {
            Observed::Message(message) => inbox.find(|entry| entry.id.as_ref() == Some(message)),
            Observed::Closing(run) => inbox.find(|entry| entry.id.is_none() && entry.run == *run),
            _ => None,
        };
        if let Some(InboxMessage { run, id, .. }) = meant {
            let (id, message) = (run.clone(), id.clone());
            record_agent_fact(decider, task, AgentFact::Applied { id, message });
        }
    }
}

/// Handles the start of a call. Records which messages the attempt received before the call. If the call is a tool call
/// of an agent run, also records its start, and whether a person has to allow it.
pub(super) fn call_started(decider: &mut Decider<'_>, task: TaskKey, call: &CallRecord) {
    apply_messages(decider, task, &call.before);
    if let Some(agent) = call.agent.as_ref().filter(|_| *call.interface == *BuiltIn::Tools.name()) {
        record_agent_fact(decider, task, AgentFact::ToolStarted { id: agent.agent_run.clone(), ordinal: call.ordinal });
        if call.ask.is_some() {
            record_agent_fact(
                decider,
                task,
                AgentFact::ToolAsked { id: agent.agent_run.clone(), ordinal: call.ordinal },
            );
        }
    }
}

/// Records the end of a call of an agent run: the model's reply and its usage, or the tool's answer.
pub(super) fn call_ended(
    decider: &mut Decider<'_>,
    task: TaskKey,
    ordinal: u32,
    of: Option<(Arc<str>, bool)>,
    reply: &Reply,
) {
    let Some((id, is_tool)) = of else { return };
    if is_tool {
        return record_agent_fact(decider, task, AgentFact::ToolEnded { id, ordinal });
    }
    let Ok(reply) = reply else { return };
    record_agent_fact(decider, task, AgentFact::Spoke { id: id.clone(), ordinal });
    if let Some(usage) = reply.json().get("usage").cloned() {
        record_agent_fact(decider, task, AgentFact::Used { id, usage });
    }
}

/// Ends the open agent runs of a task, because their attempt ends. Their outcome is `failure`, by default
/// `cancelled`.
pub(super) fn end_all(decider: &mut Decider<'_>, task: TaskKey, failure: Option<&Failure>) {
    let Some(agents) = &decider.state.task(task).agents else { return };
    let open: Vec<_> = agents.runs.iter().filter(|run| run.is_open()).map(|run| run.id.clone()).collect();
    for id in open {
        let discarded = waiting_messages(decider, task, &id);
        let cancelled = || Failure::new(code::CANCELLED, "its task has ended");
        let outcome = Err(Box::new(failure.cloned().unwrap_or_else(cancelled)));
        record_agent_fact(decider, task, AgentFact::Closed { mark: 0, id, outcome, discarded });
    }
}

/// Records that an attempt waits only for people, until `due` at the latest. Ignores an attempt that is not the
/// running one, is already idle, or has calls in progress.
pub(super) fn attempt_idle(decider: &mut Decider<'_>, key: TaskKey, attempt: (u32, u32), due: Option<u64>) {
    let task = decider.state.find(key).filter(|_| decider.state.is_running(key, attempt));
    let Some(task) = task.filter(|task| !task.idle && !task.has_calls_in_progress()) else { return };
    let due = task.wait_until.or(due);
    decider.emit(Fact::TaskIdle { task: key, due });
}

pub(super) fn attempt_busy(decider: &mut Decider<'_>, key: TaskKey, attempt: (u32, u32)) {
    if decider.state.is_running(key, attempt) && decider.state.task(key).idle {
        decider.emit(Fact::TaskBusy { task: key });
    }
}

/// Writes to an agent run, named by its id or by the address of its task.
pub(super) fn write(
    decider: &mut Decider<'_>,
    to: &str,
    message: Option<String>,
    value: Value,
) -> Result<(), HubError> {
    let (task, id) = find_open_agent_run(decider, to).ok_or(HubError::AgentNotActive)?;
    let agents = decider.state.task(task).agents.as_ref();
    let Some((run, agents)) = agents.and_then(|agents| Some((agents.open(&id)?, agents))) else {
        return Err(HubError::AgentNotActive);
    };
    let message: Arc<str> = message.map_or_else(|| format!("m-{}", decider.state.events).into(), Into::into);
    if run.has_seen(&message) {
        return Ok(());
    }
    let capacity = run.capacity.filter(|_| !run.closing).ok_or(HubError::AgentNotActive)?;
    let capacity = u64::from(capacity).min(MAX_INBOX_MESSAGES);
    let fits = agents.waiting_bytes() + value.text().len() <= MAX_INBOX_BYTES;
    if agents.waiting(&id).count() as u64 >= capacity || !fits {
        return Err(HubError::InboxFull);
    }
    record_agent_fact(decider, task, AgentFact::Written { id, message, value });
    Ok(())
}

/// Asks an agent run to finish.
pub(super) fn close(decider: &mut Decider<'_>, to: &str) -> Result<(), HubError> {
    let (task, id) = find_open_agent_run(decider, to).ok_or(HubError::AgentNotActive)?;
    let agents = decider.state.task(task).agents.as_ref();
    if agents.and_then(|agents| agents.open(&id)).is_some_and(|run| !run.closing) {
        record_agent_fact(decider, task, AgentFact::Closing { id });
    }
    Ok(())
}

/// Returns the open agent run with this id, or the latest open agent run of the task at this address.
fn find_open_agent_run(decider: &Decider<'_>, recipient: &str) -> Option<(TaskKey, Arc<str>)> {
    if let Some(key) = decider.state.task_at(recipient) {
        let runs = &decider.state.task(key).agents.as_ref()?.runs;
        return runs.iter().rev().find(|run| run.is_open()).map(|run| (key, run.id.clone()));
    }
    let scopes = decider.state.scopes.iter();
    let mut tasks = scopes.flat_map(|(id, scope)| {
        scope
            .nodes(&decider.state.graph)
            .iter()
            .zip(&scope.tasks)
            .map(|(node, task)| (TaskKey { scope: *id, node: *node }, task))
    });
    tasks.find_map(|(key, task)| Some((key, task.agents.as_ref()?.open(recipient)?.id.clone())))
}
