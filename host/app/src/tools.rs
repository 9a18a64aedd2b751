//! The capability `tools`: what an agent may call. A node type or a flow that is called as a tool is a run of its own, below
//! the run of the agent, whose id is made from the call's idempotency key: a call that is made again finds it.
//!
//! | room | what it is |
//! |---|---|
//! | `policy` | which tools are granted, and what may be called without asking |
//! | `shelf` | the tools there are, and what models call them |

mod policy;
mod shelf;

use std::sync::Arc;

use flowcell_contract::{
    Admission, Ask, Call, Caller, Capability, Effect, Failure, Json, Outgoing, RunId, Value, code,
};
use flowcell_runtime::{Hub, RunOptions, RunResult, RunStatus};
use futures_util::future::BoxFuture;

use crate::{Host, LoadedFlow, StartError, folder::Folder};
use policy::Action;
use shelf::Tool;

/// The name of the capability, in calls and in grants.
pub(crate) const INTERFACE: &str = "tools";
/// Milliseconds for which a question about a call stays open, where the config does not say.
const APPROVAL_MS: u64 = 24 * 3_600 * 1_000;
/// Characters of a tool's input that people are shown.
const SHOWN_CHARS: usize = 2_000;

/// The tools that the flows of a folder may have.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) host: Host,
    pub(crate) folder: Arc<Folder>,
}

/// A call of a tool.
struct Wish {
    tool: Tool,
    input: Json,
}

impl Tools {
    fn wish(&self, call: &Call, caller: &Caller) -> Result<Wish, Failure> {
        let args = call.args.json();
        let wrong = |why: &str| Failure::new(code::INVALID_INPUT, why);
        let name = args.get("tool").and_then(Json::as_str).ok_or_else(|| wrong("`tool` must name a tool"))?;
        let known = ["tool", "input", "toolUseId", "agentRunId"];
        let members = args.as_object().into_iter().flatten();
        if let Some((other, _)) = members.into_iter().find(|(member, _)| !known.contains(&&***member)) {
            return Err(wrong(&format!("a call of a tool has no member `{other}`; it has {}", known.join(", "))));
        }
        let input = args.get("input").cloned().unwrap_or_else(|| Json::object::<&str>([]));
        if input.as_object().is_none() {
            return Err(wrong("`input` must be an object"));
        }
        let tool = self.find(name).filter(|tool| policy::is_granted(caller, &tool.name));
        let tool = tool.ok_or_else(|| policy::not_granted(caller, name))?;
        Ok(Wish { tool, input })
    }

    /// Which of the tools are granted and not denied that the patterns name.
    fn offer(&self, call: &Call, caller: &Caller) -> Result<Value, Failure> {
        let patterns = call.args.json().get("patterns").and_then(Json::as_array).unwrap_or_default();
        let patterns: Vec<&str> = patterns.iter().filter_map(Json::as_str).collect();
        let named = |name: &str| patterns.iter().any(|pattern| shelf::matches(pattern, name));
        let none = Json::object::<&str>([]);
        let offered = self.all().into_iter().filter(|tool| named(&tool.name)).filter(|tool| {
            policy::is_granted(caller, &tool.name) && policy::action(caller, &tool.name, &none) != Action::Deny
        });
        let offered: Vec<_> = offered.map(|tool| tool.described()).collect();
        Ok(Value::from(Json::array(offered)))
    }

    async fn perform_call(self, outgoing: Outgoing) -> Result<Value, Failure> {
        let Wish { tool, input } = self.wish(&outgoing.call, &outgoing.caller)?;
        let flow = self.flow_of(&tool, &outgoing.caller)?;
        let run = RunId::from(format!("{}.tool-{}", outgoing.caller.run_id, outgoing.key));
        let options = RunOptions {
            session_id: Some(run),
            input,
            parent: Some(outgoing.caller.run_id.clone()),
            wait_for_answers: true,
            without_events: true,
            by_hand: true,
            ..RunOptions::default()
        };
        let runner = self.host.runner(&flow, options).map_err(|error| failed_to_start(&error))?;
        runner.start_session();
        // A call that nobody waits for any more takes its run with it.
        let mut running = Running { hub: Some(runner.hub()) };
        let result = runner.run().await;
        running.hub = None;
        output(result, matches!(tool.kind, shelf::Kind::Node(_)))
    }

    /// The flow that a call of a tool runs.
    fn flow_of(&self, tool: &Tool, caller: &Caller) -> Result<LoadedFlow, Failure> {
        let (source, name) = tool.source(caller);
        let loaded = match source {
            Some(source) => self.host.load_in(&source, self.folder.clone()),
            None => {
                let source = flowcell_flow::Files::flow(&*self.folder, name);
                let source = source.ok_or_else(|| policy::not_granted(caller, &tool.name))?;
                self.host.load_in(&source, self.folder.clone())
            }
        };
        loaded.map_err(|error| Failure::new(code::TOOL_NOT_FOUND, format!("`{}` cannot be used: {error}", tool.name)))
    }
}

impl Capability for Tools {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        if &*call.function == "find" {
            let about = Json::object([("patterns", call.args.json().get("patterns").cloned().unwrap_or_default())]);
            return Ok(Admission { effect: Effect::Idempotent, about, ask: None });
        }
        if !matches!(&*call.function, "call" | "start-call") {
            return Err(Failure::new(code::DENIED, format!("`tools` has no function `{}`", call.function)));
        }
        let Wish { tool, input } = self.wish(call, caller)?;
        let mut shown = input.to_text();
        if let Some((cut, _)) = shown.char_indices().nth(SHOWN_CHARS) {
            shown.truncate(cut);
            shown.push('…');
        }
        let ask = match policy::action(caller, &tool.name, &input) {
            Action::Allow => None,
            Action::Deny => {
                let message = format!("the permissions of this node deny `{}` with this input", tool.name);
                return Err(Failure::new(code::TOOL_DENIED, message));
            }
            Action::Ask => {
                let expires = caller.config.json().get("approvalTimeoutMs").and_then(Json::as_u64);
                let prompt = format!("May `{}` call `{}` with {shown}?", caller.node_id, tool.name);
                Some(Ask { prompt, expires_ms: expires.unwrap_or(APPROVAL_MS) })
            }
        };
        let about = Json::object([("tool", Json::from(tool.name.as_str())), ("input", Json::from(shown))]);
        Ok(Admission { effect: Effect::Idempotent, about, ask })
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        if &*outgoing.call.function == "find" {
            return Box::pin(std::future::ready(self.offer(&outgoing.call, &outgoing.caller)));
        }
        Box::pin(self.clone().perform_call(outgoing))
    }
}

/// Cancels the run of a tool when the call is dropped.
struct Running {
    hub: Option<Hub>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { hub.abort().await });
        }
    }
}

fn output(result: RunResult, is_node: bool) -> Result<Value, Failure> {
    match (result.status, result.error) {
        (RunStatus::Succeeded, _) => {
            let output =
                if is_node { result.outputs.get("output").cloned().unwrap_or_default() } else { result.outputs };
            Ok(Value::from(Json::object([("output", output)])))
        }
        (_, Some(error)) => Err(error.failure),
        (status, None) => Err(Failure::new(code::CANCELLED, format!("the run of the tool has ended as {status:?}"))),
    }
}

fn failed_to_start(error: &StartError) -> Failure {
    match error {
        StartError::Input(error) => Failure::new(code::INVALID_INPUT, error.to_string()),
        other => Failure::retryable(code::LOST_WORKER, other.to_string()),
    }
}
