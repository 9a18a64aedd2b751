//! The capability `tools`, which an agent calls. A node type or a flow that is called as a tool is a child run of the
//! agent's run. The id of the child run contains the call's idempotency key, so a repeated call finds the same run. A
//! tool of an MCP server is called on the server. Such a call is repeated only if the server declares that a repetition
//! is safe.
//!
//! | module | contents |
//! |---|---|
//! | `approval` | granted tools, and calls that a person must approve |
//! | `tool_list` | all tools, with their names for models |
//! | `shown` | the arguments of a call in a question to a person |

mod approval;
mod shown;
mod tool_list;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use flowcell_contract::{
    Admission, Ask, BuiltIn, Call, Caller, Capability, Catalog, Effect, Failure, Json, Outgoing, Tenant, Value, code,
};
use flowcell_engine::Permit;
use flowcell_flow::{Source, graph::Graph};
use flowcell_services::mcp::McpTools;
use futures_util::future::BoxFuture;

use crate::operate::usage::{Usage, shares::SharedServer};
use approval::Action;
use shown::Shown;
use tool_list::{Kind, Named, Tool};

/// The name of the capability, in calls and in grants.
pub(crate) const INTERFACE: &str = BuiltIn::Tools.name();
/// Default time in milliseconds that an approval question stays open.
const APPROVAL_MS: u64 = 24 * 3_600 * 1_000;

/// The prefix of a flow that an agent calls as a tool: `flow:report`.
pub(crate) const FLOW_TOOL: &str = "flow:";

/// Runs node types and flows as children of the agent's run.
pub(crate) trait RunFlows: Send + Sync {
    /// Returns the node types.
    fn catalog(&self) -> Arc<Catalog>;

    /// Returns the sorted names of the flows that the agent's run can call.
    fn names(&self) -> BTreeSet<String>;

    /// Returns whether the agent's run can call a flow of this name.
    fn has(&self, name: &str) -> bool;

    /// Returns the checked flow with this name. Returns `None` if no such flow exists, or if the flow cannot be used.
    fn graph(&self, name: &str) -> Option<Arc<Graph>>;

    /// Runs the flow with this name as a child run, and returns its outputs.
    fn run_flow<'a>(
        &'a self,
        name: &'a str,
        input: Json,
        outgoing: &'a Outgoing,
    ) -> BoxFuture<'a, Result<Json, Failure>>;

    /// Runs a flow that was made for this call as a child run, and returns its outputs.
    fn run_source<'a>(
        &'a self,
        source: &'a Source,
        input: Json,
        outgoing: &'a Outgoing,
    ) -> BoxFuture<'a, Result<Json, Failure>>;
}

/// The tools that runs with the same home can call.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) flows: Arc<dyn RunFlows>,
    pub(crate) usage: Usage,
    /// The tools of the operator's MCP servers.
    pub(crate) mcp: McpTools,
    /// True if stand-ins answer all calls.
    pub(crate) simulated: bool,
}

/// A parsed call of a tool.
struct ToolCall {
    tool: Tool,
    input: Json,
}

impl Tools {
    fn parse_call(&self, call: &Call, caller: &Caller) -> Result<ToolCall, Failure> {
        let args = call.args.json();
        let wrong = |why: &str| Failure::new(code::INVALID_INPUT, why);
        let name = args.get("tool").and_then(Json::as_str).ok_or_else(|| wrong("`tool` must name a tool"))?;
        let known = ["tool", "input", "toolUseId", "agentRunId"];
        let members = args.as_object().into_iter().flatten();
        if let Some((other, _)) = members.into_iter().find(|(member, _)| !known.contains(&&***member)) {
            return Err(wrong(&format!(
                "unknown member `{other}` in the call of a tool; the members are {}",
                known.join(", ")
            )));
        }
        let input = args.get("input").cloned().unwrap_or_else(|| Json::object::<&str>([]));
        if input.as_object().is_none() {
            return Err(wrong("`input` must be an object"));
        }
        // Grants and rules apply to the tool that was found, not to the name in the call.
        let tool = self.find(name).filter(|tool| approval::is_granted(caller, &tool.named));
        let tool = tool.ok_or_else(|| approval::not_granted(caller, name))?;
        Ok(ToolCall { tool, input })
    }

    /// Returns the granted tools that match the patterns and that the node's rules do not deny, as the reply of
    /// `tools.find`.
    async fn list_tools(self, outgoing: Outgoing) -> Result<Value, Failure> {
        let Outgoing { call, caller, .. } = outgoing;
        let patterns = call.args.json().get("patterns").and_then(Json::as_array).unwrap_or_default();
        let patterns: Vec<&str> = patterns.iter().filter_map(Json::as_str).collect();
        let wanted = |tool: &Named| {
            patterns.iter().any(|pattern| tool.fits(pattern))
                && approval::is_granted(&caller, tool)
                && approval::may_be_called(&caller, tool)
        };
        let near = |begin: &str| {
            patterns.iter().any(|pattern| approval::may_begin(pattern, begin))
                && approval::may_be_granted(&caller, begin)
        };
        self.offers(&caller.tenant, wanted, near).await.map(Value::from)
    }

    async fn perform_call(self, outgoing: Outgoing) -> Result<Value, Failure> {
        let ToolCall { tool, input } = self.parse_call(&outgoing.call, &outgoing.caller)?;
        if self.simulated {
            let told = [("simulated", Json::from(true)), ("tool", Json::from(tool.asked)), ("input", input)];
            return Ok(answer(Json::object(told)));
        }
        self.output(tool, input, &outgoing).await.map(answer)
    }

    /// Calls the tool with the name `name` without checking grants, and returns its output.
    pub(crate) async fn call_named(&self, name: &str, input: Json, outgoing: &Outgoing) -> Result<Json, Failure> {
        let missing = || Failure::new(code::TOOL_NOT_FOUND, format!("unknown tool `{name}`"));
        self.output(self.find(name).ok_or_else(missing)?, input, outgoing).await
    }

    async fn output(&self, tool: Tool, input: Json, outgoing: &Outgoing) -> Result<Json, Failure> {
        match tool.kind {
            Kind::Node(node) => {
                let source = tool_list::flow_of_node(&node, &outgoing.caller);
                let output = self.flows.run_source(&source, input, outgoing).await?;
                Ok(output.get("output").cloned().unwrap_or_default())
            }
            Kind::Flow(name) => self.flows.run_flow(&name, input, outgoing).await,
            Kind::Mcp { server, tool } => {
                let (tenant, within) = (&outgoing.caller.tenant, Duration::MAX);
                let _permit = self.permit(tenant, &server, &format!("mcp:{server}")).await?;
                self.mcp.call(tenant, &server, &tool, input, within, outgoing.progress.clone()).await
            }
        }
    }

    /// Waits for a permit of the MCP server `server`. `name` is the name under which the permits are counted:
    /// `mcp:SERVER` for calls of tools, and another one for lists of tools.
    async fn permit(&self, tenant: &Tenant, server: &str, name: &str) -> Result<Option<Permit>, Failure> {
        let Some((permits, within)) = self.mcp.limits(server) else { return Ok(None) };
        let server = SharedServer { name, permits, within, code: flowcell_services::code::MCP_CONNECT };
        self.usage.permit(tenant, server).await
    }

    /// Returns the effect of a call of the named tool. A call of an unknown tool is idempotent.
    pub(crate) fn effect_of(&self, name: &str) -> Effect {
        self.find(name).map_or(Effect::Idempotent, |tool| self.effect(&tool))
    }

    /// Returns the effect of a call. The effect decides whether the host repeats the call if its outcome is unknown.
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
            approval::check_any_grant(caller)?;
            let about = Json::object([("patterns", call.args.json().get("patterns").cloned().unwrap_or_default())]);
            return Ok(Admission::new(Effect::Idempotent, about));
        }
        if !matches!(&*call.function, "call" | "start-call") {
            return Err(Failure::new(code::DENIED, format!("`tools` has no function `{}`", call.function)));
        }
        let ToolCall { tool, input } = self.parse_call(call, caller)?;
        let Shown { text: shown, cuts } = Shown::new(&input);
        let ask = match approval::action(caller, &tool.named, &input) {
            Action::Allow => None,
            Action::Deny => {
                let message = format!("the permissions of this node deny `{}` with this input", tool.asked);
                return Err(Failure::new(code::TOOL_DENIED, message));
            }
            Action::Ask => {
                let expires = caller.config.json().get("approvalTimeoutMs").and_then(Json::as_u64);
                let prompt = format!("May `{}` call `{}` with {shown}?", caller.node_id, tool.asked);
                let arguments = (cuts > 0).then(|| input.clone());
                Some(Ask { prompt, expires_ms: expires.unwrap_or(APPROVAL_MS), arguments })
            }
        };
        let about = Json::object([("tool", Json::from(tool.asked.as_str())), ("input", Json::from(shown))]);
        Ok(Admission { ask, ..Admission::new(self.effect(&tool), about) })
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        match &*outgoing.call.function {
            "find" => Box::pin(self.clone().list_tools(outgoing)),
            _ => Box::pin(self.clone().perform_call(outgoing)),
        }
    }
}

fn answer(output: Json) -> Value {
    Value::from(Json::object([("output", output)]))
}
