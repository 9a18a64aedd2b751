//! The calls by which a component opens, reports on and closes its agent runs.

use std::sync::Arc;

use flowcell_contract::{Call, Failure, Json, Value, code};

use super::AttemptCalls;
use crate::{
    agents::agent_run_id,
    decide::Input,
    fact::{AgentFact, ForAgent},
    limits::{MAX_AGENT_REPORT_BYTES, MAX_AGENT_RUNS, MAX_INBOX_MESSAGES},
};

/// Performs `agent.open`, `agent.tell` and `agent.close`.
pub(super) async fn answer(calls: &AttemptCalls, call: &Call) -> Result<Value, Failure> {
    let args = call.args.json();
    match &*call.function {
        "open" => open(calls, args).await,
        "tell" => report_on_agent(calls, args).await,
        "close" => close(calls, args).await,
        _ => Err(super::unknown(call)),
    }
}

async fn open(calls: &AttemptCalls, args: &Json) -> Result<Value, Failure> {
    let about = args.get("about").cloned().unwrap_or_default();
    check_size(&about)?;
    let inbox = about.get("inbox").filter(|inbox| !inbox.is_null());
    let capacity = inbox.and_then(|inbox| inbox.get("capacity")).filter(|capacity| !capacity.is_null());
    if capacity.is_some_and(|capacity| !capacity.as_u64().is_some_and(|most| (1..=MAX_INBOX_MESSAGES).contains(&most)))
    {
        let message = format!("`inbox.capacity` must be a whole number from 1 to {MAX_INBOX_MESSAGES}");
        return Err(Failure::new(code::INVALID_INPUT, message));
    }
    let (mark, id) = {
        let mut progress = calls.progress.lock();
        if progress.agents.len() >= MAX_AGENT_RUNS {
            let message = format!("an attempt may have at most {MAX_AGENT_RUNS} agent runs open");
            return Err(Failure::new(code::LIMIT_EXCEEDED, message));
        }
        progress.opened += 1;
        let (run, task) = (calls.site.run_id.as_str(), &calls.attempting.agent_address);
        let id = agent_run_id(run, task, calls.attempting.number.0, progress.opened);
        progress.agents.push((id.clone(), inbox.is_some()));
        (progress.mark(), id)
    };
    send_report(calls, AgentFact::Opened { mark, id: id.clone(), about }).await;
    Ok(Value::from(Json::from(id)))
}

async fn report_on_agent(calls: &AttemptCalls, args: &Json) -> Result<Value, Failure> {
    let id = open_agent_run(calls, args)?;
    let kind = super::inside::text(args, "kind")?;
    let named = kind.len() <= 64 && kind.contains('.') && kind.chars().all(|char| char.is_ascii_graphic());
    if kind != "state" && !named {
        let message = "the kind must be `state`, or a name of at most 64 characters with a dot, such as `acme.plan`";
        return Err(Failure::new(code::INVALID_INPUT, message));
    }
    let data = args.get("data").cloned().unwrap_or_default();
    check_size(&data)?;
    let mark = calls.progress.lock().mark();
    send_report(calls, AgentFact::Told { mark, id, kind: kind.into(), data }).await;
    Ok(Value::null())
}

async fn close(calls: &AttemptCalls, args: &Json) -> Result<Value, Failure> {
    let id = open_agent_run(calls, args)?;
    let outcome = match args.get("error").filter(|error| !error.is_null()) {
        Some(error) => Err(Box::new(crate::outcome::read_failure(Some(error)))),
        None => Ok(args.get("result").cloned().unwrap_or_default()),
    };
    let mark = {
        let mut progress = calls.progress.lock();
        progress.agents.retain(|(open, _)| *open != id);
        progress.mark()
    };
    send_report(calls, AgentFact::Closed { mark, id, outcome, discarded: Box::default() }).await;
    Ok(Value::null())
}

/// Returns the member `agentRunId` of a call's arguments. Fails with `invalid_input` if this attempt has no open agent
/// run with that id.
fn open_agent_run(calls: &AttemptCalls, args: &Json) -> Result<Arc<str>, Failure> {
    let id = super::inside::text(args, "agentRunId")?;
    let progress = calls.progress.lock();
    let open = progress.agents.iter().find(|(open, _)| **open == *id).map(|(open, _)| open.clone());
    open.ok_or_else(|| Failure::new(code::INVALID_INPUT, format!("no agent run `{id}` of this attempt is open")))
}

async fn send_report(calls: &AttemptCalls, report: AgentFact) {
    let before = calls.take_observations();
    let (task, attempt) = (calls.attempting.task, calls.attempting.number);
    calls.send_input(Input::AgentReport { task, attempt, report, before }).await;
}

/// Returns the agent run that makes a call. `None`: the arguments name none.
pub(super) fn agent_of(calls: &AttemptCalls, args: &Json) -> Result<Option<Box<ForAgent>>, Failure> {
    if args.get("agentRunId").is_none_or(Json::is_null) {
        return Ok(None);
    }
    let tool_use = args.get("toolUseId").and_then(Json::as_str).map(Arc::from);
    Ok(Some(Box::new(ForAgent { agent_run: open_agent_run(calls, args)?, tool_use })))
}

fn check_size(data: &Json) -> Result<(), Failure> {
    if data.to_text().len() > MAX_AGENT_REPORT_BYTES {
        let message = format!("one update of an agent run may have at most {MAX_AGENT_REPORT_BYTES} bytes");
        return Err(Failure::new(code::LIMIT_EXCEEDED, message));
    }
    Ok(())
}
