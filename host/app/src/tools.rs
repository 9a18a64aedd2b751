//! The capability `tools`: what an agent may call. A node type or a flow that is called as a tool is a run of its own, below
//! the run of the agent, whose id is made from the call's idempotency key: a call that is made again finds it. A tool of an
//! MCP server is called where it is, and never twice, unless the server has said that this does no harm.
//!
//! | room | what it is |
//! |---|---|
//! | `policy` | which tools are granted, and what may be called without asking |
//! | `shelf` | the tools there are, and what models call them |

mod policy;
mod shelf;

use std::{sync::Arc, time::Duration};

use flowcell_contract::{
    Admission, Ask, Call, Caller, Capability, Effect, Failure, Json, Outgoing, RunId, Value, code,
};
use flowcell_flow::Source;
use flowcell_runtime::{RunOptions, RunResult, RunStatus};
use flowcell_services::mcp::McpTools;
use futures_util::future::BoxFuture;

use crate::{Host, StartError, folder::Folder};
use policy::Action;
use shelf::{Kind, Tool};

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
    /// Those of the operator's servers.
    pub(crate) mcp: McpTools,
    /// Calls get a stand-in for an answer.
    pub(crate) simulated: bool,
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
        let tool = policy::is_granted(caller, name).then(|| self.find(name)).flatten();
        let tool = tool.ok_or_else(|| policy::not_granted(caller, name))?;
        Ok(Wish { tool, input })
    }

    /// Which of the tools are granted and not denied that the patterns name.
    async fn offer(self, outgoing: Outgoing) -> Result<Value, Failure> {
        let Outgoing { call, caller, .. } = outgoing;
        let patterns = call.args.json().get("patterns").and_then(Json::as_array).unwrap_or_default();
        let patterns: Vec<&str> = patterns.iter().filter_map(Json::as_str).collect();
        let none = Json::object::<&str>([]);
        let wanted = |name: &str| {
            patterns.iter().any(|pattern| shelf::matches(pattern, name))
                && policy::is_granted(&caller, name)
                && policy::action(&caller, name, &none) != Action::Deny
        };
        let near = |begin: &str| {
            patterns.iter().any(|pattern| policy::may_begin(pattern, begin)) && policy::may_be_granted(&caller, begin)
        };
        self.offers(wanted, near).await.map(Value::from)
    }

    async fn perform_call(self, outgoing: Outgoing) -> Result<Value, Failure> {
        let Wish { tool, input } = self.wish(&outgoing.call, &outgoing.caller)?;
        if self.simulated {
            let told = [("simulated", Json::from(true)), ("tool", Json::from(tool.name)), ("input", input)];
            return Ok(answer(Json::object(told)));
        }
        self.output(tool, input, &outgoing).await.map(answer)
    }

    /// Calls the tool of a name, whoever may, and answers its output.
    pub(crate) async fn call_named(&self, name: &str, input: Json, outgoing: &Outgoing) -> Result<Json, Failure> {
        let missing = || Failure::new(code::TOOL_NOT_FOUND, format!("there is no tool `{name}`"));
        self.output(self.find(name).ok_or_else(missing)?, input, outgoing).await
    }

    async fn output(&self, tool: Tool, input: Json, outgoing: &Outgoing) -> Result<Json, Failure> {
        match tool.kind {
            Kind::Node(node) => {
                let output = self.run(&shelf::flow_of_node(&node, &outgoing.caller), input, outgoing).await?;
                Ok(output.get("output").cloned().unwrap_or_default())
            }
            Kind::Flow(source) => self.run(&source, input, outgoing).await,
            Kind::Mcp { server, tool } => {
                let (tenant, within) = (&outgoing.caller.tenant, Duration::MAX);
                self.mcp.call(tenant, &server, &tool, input, within, outgoing.progress.clone()).await
            }
        }
    }

    /// Runs a flow below the agent's run, and answers its outputs.
    async fn run(&self, source: &Source, input: Json, outgoing: &Outgoing) -> Result<Json, Failure> {
        let flow = self.host.load_in(source, self.folder.clone()).map_err(|error| {
            Failure::new(code::TOOL_NOT_FOUND, format!("the flow `{}` cannot be used: {error}", source.name))
        })?;
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
        // If nobody waits for it any more, it ends with the agent's run.
        outputs(runner.run().await)
    }

    /// The same of the tool of a name, if there is one.
    pub(crate) fn effect_of(&self, name: &str) -> Effect {
        self.find(name).map_or(Effect::Idempotent, |tool| self.effect(&tool))
    }

    /// What becomes of a call that may have been made when nobody knows how it ended.
    fn effect(&self, tool: &Tool) -> Effect {
        match &tool.kind {
            Kind::Mcp { server, tool } if !self.simulated && !self.mcp.may_be_repeated(server, tool) => Effect::Once,
            _ => Effect::Idempotent,
        }
    }
}

impl Capability for Tools {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        if &*call.function == "find" {
            policy::check_any(caller)?;
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
        Ok(Admission { effect: self.effect(&tool), about, ask })
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        match &*outgoing.call.function {
            "find" => Box::pin(self.clone().offer(outgoing)),
            _ => Box::pin(self.clone().perform_call(outgoing)),
        }
    }
}

fn outputs(result: RunResult) -> Result<Json, Failure> {
    match (result.status, result.error) {
        (RunStatus::Succeeded, _) => Ok(result.outputs),
        (_, Some(error)) => Err(error.failure),
        (status, None) => Err(Failure::new(code::CANCELLED, format!("the run of the tool has ended as {status:?}"))),
    }
}

fn answer(output: Json) -> Value {
    Value::from(Json::object([("output", output)]))
}

fn failed_to_start(error: &StartError) -> Failure {
    match error {
        StartError::Input(error) => Failure::new(code::INVALID_INPUT, error.to_string()),
        other => Failure::retryable(code::LOST_WORKER, other.to_string()),
    }
}
