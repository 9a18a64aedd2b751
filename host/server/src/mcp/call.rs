//! A tool call that starts a run or answers a gate. Meanwhile the client gets progress notices and the questions of the
//! run's gates. The result of the tool call is the run's result.

use std::{collections::HashMap, time::Duration};

use flowcell_contract::{Json, RunId};
use flowcell_runtime::RunCommand;
use futures_util::{FutureExt, future::BoxFuture};
use rmcp::{
    RoleServer,
    model::{CallToolResult, ProgressNotificationParam},
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    calls::{Calls, cancel},
    gate::{self, Gate},
    outcome,
};
use crate::http::{
    api_error::ApiError,
    app::Request,
    broadcast::Frame,
    events::RunEvents,
    identity::Scope,
    runs::view,
    start::{MAX_WAIT, StartRun, admit, prepare},
    steer,
};

/// The longest time that a tool call waits for its run. After that, the tool call returns the run's current state, and
/// the run continues.
pub(crate) const MAX_CALL_TIME: Duration = Duration::from_secs(10 * 60);
/// The maximum number of refused answers per gate. After that, the tool call does not ask the user about the gate
/// again.
const MAX_REFUSED_ANSWERS: u32 = 3;

type PendingAnswer = BoxFuture<'static, (Gate, Option<Json>)>;

/// A tool call that waits for a run.
pub(super) struct Call<'a> {
    request: &'a Request,
    context: &'a RequestContext<RoleServer>,
    run: RunId,
    /// The number of nodes in the flow's root body, if it is known.
    nodes: Option<usize>,
    ended: usize,
    /// The number of refused answers, by the address of their gate. If the user declines a question, the number of its
    /// gate becomes [`MAX_REFUSED_ANSWERS`], so that the user is not asked about the gate again.
    refused_answers: HashMap<String, u32>,
    parked: bool,
}

/// Starts a run, and waits for it as [`Call::follow`] does. Returns the result of the tool.
pub(super) async fn start(
    request: &Request,
    body: StartRun,
    context: &RequestContext<RoleServer>,
    calls: &Calls,
) -> Result<CallToolResult, ApiError> {
    let (runner, flow) = prepare(request, body, None, None).await?;
    let run = runner.run_id().clone();
    let nodes = flow.graph().bodies.first().map(|body| body.nodes.len());
    admit(request, runner, false).await?;
    if !calls.set_run(&context.id, &run) {
        cancel(request, &run).await;
    }
    let watching = RunEvents::begin(request.clone(), run.clone(), 0).await?;
    Call::new(request, context, run, nodes).follow(watching).await
}

/// Sends `reply`, the answer to a gate, to the run. If the caller may see the run (scope `run:read`), then waits for
/// the run as [`Call::follow`] does, and returns the result of the tool. Otherwise returns at once.
pub(super) async fn answer_gate(
    request: &Request,
    run: RunId,
    reply: RunCommand,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ApiError> {
    if !request.caller.scopes.has(Scope::RunRead) {
        steer::send_command(request, &run, reply).await?;
        return Ok(outcome::of_value(json!({ "runId": run.as_str(), "accepted": true })));
    }
    let (_, next) = request.row(&run)?;
    // The subscription starts before the answer is sent, so that no event is missed.
    let watching = RunEvents::begin(request.clone(), run.clone(), next).await?;
    steer::send_command(request, &run, reply).await?;
    Call::new(request, context, run, None).follow(watching).await
}

impl<'a> Call<'a> {
    fn new(
        request: &'a Request,
        context: &'a RequestContext<RoleServer>,
        run: RunId,
        nodes: Option<usize>,
    ) -> Call<'a> {
        Call { request, context, run, nodes, ended: 0, refused_answers: HashMap::new(), parked: false }
    }

    /// Waits until the run has ended, until it is parked and this client cannot continue it, or until the longest
    /// time of [`Call::max_wait`] is over. Also stops waiting if the client disconnects or cancels the tool call, if
    /// its token becomes invalid, or if the server ends. Meanwhile asks the client's user the questions of open
    /// gates, if the client can ask and the caller has the scope `gate:decide`. Returns the result of the tool.
    async fn follow(mut self, mut watching: RunEvents) -> Result<CallToolResult, ApiError> {
        let asks = gate::can_ask_user(self.context) && self.request.caller.scopes.has(Scope::GateDecide);
        let until = Instant::now() + self.max_wait();
        let mut asking: Option<PendingAnswer> = None;
        loop {
            tokio::select! {
                frame = watching.next() => match frame {
                    None => break,
                    Some(frame) if !self.process(&frame).await => continue,
                    Some(_) => {}
                },
                (gate, answer) = next_answer(&mut asking) => {
                    asking = None;
                    self.send_answer(gate, answer).await?;
                }
                () = tokio::time::sleep_until(until) => break,
                // The client has disconnected. If it has cancelled the call, `on_cancelled` cancels the run.
                () = self.context.ct.cancelled() => break,
            }
            if asking.is_some() {
                continue;
            }
            let open = self.waiting().await?;
            if let Some(gate) = self.next_gate(&open).filter(|_| asks) {
                asking = Some(gate.ask(self.context.peer.clone()).boxed());
            } else if self.parked && self.cannot_continue(&open, until).await? {
                break;
            }
        }
        self.outcome().await
    }

    /// Returns the longest time that the tool call waits for its run: [`MAX_CALL_TIME`] if the client has a session,
    /// and otherwise [`MAX_WAIT`], as over HTTP.
    fn max_wait(&self) -> Duration {
        if self.context.meta.protocol_version().is_some() { MAX_WAIT } else { MAX_CALL_TIME }
    }

    /// Processes an event of the run. Returns true if a gate may be open now, or if the run may be parked.
    /// [`Call::follow`] then reads the open waits.
    async fn process(&mut self, frame: &Frame) -> bool {
        match &*frame.kind {
            "harness:parked" => self.parked = true,
            "harness:resumed" => self.parked = false,
            "task:paused" | "call:start" => return contains(&frame.text, b"\"question\""),
            "task:blocked" => return true,
            "task:complete" | "task:failed" | "task:skipped" | "task:cancelled" => {
                self.report_progress(frame).await;
                return false;
            }
            _ => return false,
        }
        self.parked
    }

    /// Sends a progress notice when a node of the root body has ended, if the client has asked for progress notices.
    async fn report_progress(&mut self, frame: &Frame) {
        let Some(progress_token) = self.context.meta.get_progress_token() else { return };
        let event: Value = serde_json::from_slice(&frame.text).unwrap_or_default();
        let (Some(_), None, Some(node)) = (frame.seq, event["scope"].as_str(), event["nodeId"].as_str()) else {
            return;
        };
        self.ended += 1;
        let what = frame.kind.strip_prefix("task:").unwrap_or_default();
        let mut progress = ProgressNotificationParam::new(progress_token, self.ended as f64);
        progress.total = self.nodes.map(|nodes| nodes as f64);
        progress.message = Some(format!("{node} {what}"));
        // If the client has disconnected, `follow` detects it.
        let _ = self.context.peer.notify_progress(progress).await;
    }

    async fn waiting(&self) -> Result<Vec<Value>, ApiError> {
        let run = self.run.clone();
        self.request.clone().reading(move |request| request.waiting(&run)).await
    }

    /// Returns the first open gate about which the user may still be asked: one with fewer than [`MAX_REFUSED_ANSWERS`]
    /// refused answers.
    fn next_gate(&self, open: &[Value]) -> Option<Gate> {
        let fresh =
            |gate: &Gate| self.refused_answers.get(&gate.address).is_none_or(|tries| *tries < MAX_REFUSED_ANSWERS);
        open.iter().filter_map(Gate::from_wait).find(fresh)
    }

    /// Sends the user's answer to its gate. If `answer` is `None`, the user has declined, and is not asked about this
    /// gate again.
    async fn send_answer(&mut self, gate: Gate, answer: Option<Json>) -> Result<(), ApiError> {
        let Some(answer) = answer else {
            self.refused_answers.insert(gate.address, MAX_REFUSED_ANSWERS);
            return Ok(());
        };
        let reply = RunCommand::reply(gate.address.as_str(), answer, gate.question.clone());
        match steer::send_command(self.request, &self.run, reply).await {
            Ok(()) => {
                self.parked = false;
                self.refused_answers.remove(&gate.address);
            }
            Err(error) if error.code() == "answer_refused" => {
                *self.refused_answers.entry(gate.address).or_default() += 1
            }
            // Another caller has answered already, or the answer is too late.
            Err(error) if error.code() == "gate_closed" => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns true if a parked run cannot continue without a command, or if its next timer is due only after `until`,
    /// the end of the time that the tool call may wait.
    async fn cannot_continue(&self, open: &[Value], until: Instant) -> Result<bool, ApiError> {
        let run = self.run.clone();
        let (row, _) = self.request.clone().blocking(move |request| request.row(&run)).await?;
        let left = until.saturating_duration_since(Instant::now()).as_millis() as u64;
        Ok(match (&*row.status, row.due) {
            ("needs_attention", _) => true,
            ("parked", Some(due)) => due > self.request.host.now() + left,
            // If nothing waits, an answer was sent and the run has not processed it yet.
            ("parked", None) => !open.is_empty(),
            _ => false,
        })
    }

    async fn outcome(&self) -> Result<CallToolResult, ApiError> {
        let run = view(self.request.clone(), self.run.clone()).await?;
        let run = serde_json::to_value(run).map_err(ApiError::internal)?;
        let over = ["succeeded", "failed", "cancelled"].iter().any(|status| run["status"] == *status);
        Ok(outcome::of_run(&run, if over { Vec::new() } else { self.waiting().await? }))
    }
}

async fn next_answer(asking: &mut Option<PendingAnswer>) -> (Gate, Option<Json>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
