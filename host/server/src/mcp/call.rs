//! A run as the call of a tool: progress while it goes on, its gates as questions, and its end.

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
    app::Request,
    events::Watching,
    fault::Fault,
    identity::Scope,
    live::Told,
    runs::view,
    start::{StartRun, WAIT, enter, prepare},
    steer,
};

/// A call waits for its run at most so long; the run goes on.
pub(crate) const CALL: Duration = Duration::from_secs(10 * 60);
/// A person is asked so often, if the answers are none for the gate.
const TRIES: u32 = 3;

type Asking = BoxFuture<'static, (Gate, Option<Json>)>;

/// One who waits for a run.
pub(super) struct Call<'a> {
    request: &'a Request,
    context: &'a RequestContext<RoleServer>,
    run: RunId,
    /// The nodes of the flow itself, if they are known, and how many have ended.
    nodes: Option<usize>,
    ended: usize,
    /// How often each gate was asked about in vain.
    vain: HashMap<String, u32>,
    parked: bool,
}

/// Starts a run and waits for it.
pub(super) async fn start(
    request: &Request,
    body: StartRun,
    context: &RequestContext<RoleServer>,
    calls: &Calls,
) -> Result<CallToolResult, Fault> {
    let (runner, flow) = prepare(request, body, None, None).await?;
    let run = runner.run_id().clone();
    let nodes = flow.graph().bodies.first().map(|body| body.nodes.len());
    enter(request, runner, false).await?;
    if !calls.runs(&context.id, &run) {
        cancel(request, &run).await;
    }
    let watching = Watching::begin(request.clone(), run.clone(), 0).await?;
    Call::new(request, context, run, nodes).follow(watching).await
}

/// Answers a gate and, if the caller may see the run, waits for it.
pub(super) async fn answer_gate(
    request: &Request,
    run: RunId,
    reply: RunCommand,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, Fault> {
    if !request.caller.scopes.has(Scope::RunRead) {
        steer::tell(request, &run, reply).await?;
        return Ok(outcome::of_value(json!({ "runId": run.as_str(), "accepted": true })));
    }
    let (_, next) = request.row(&run)?;
    // Whoever watches before the answer is there misses nothing that follows from it.
    let watching = Watching::begin(request.clone(), run.clone(), next).await?;
    steer::tell(request, &run, reply).await?;
    Call::new(request, context, run, None).follow(watching).await
}

impl<'a> Call<'a> {
    fn new(
        request: &'a Request,
        context: &'a RequestContext<RoleServer>,
        run: RunId,
        nodes: Option<usize>,
    ) -> Call<'a> {
        Call { request, context, run, nodes, ended: 0, vain: HashMap::new(), parked: false }
    }

    /// Waits until the run has ended, or rests and nobody here can move it.
    async fn follow(mut self, mut watching: Watching) -> Result<CallToolResult, Fault> {
        let asks = gate::may_ask(self.context) && self.request.caller.scopes.has(Scope::GateDecide);
        let until = Instant::now() + self.patience();
        let mut asking: Option<Asking> = None;
        loop {
            tokio::select! {
                told = watching.next() => match told {
                    None => break,
                    Some(told) if !self.hear(&told).await => continue,
                    Some(_) => {}
                },
                (gate, answer) = answered(&mut asking) => {
                    asking = None;
                    self.take(gate, answer).await?;
                }
                () = tokio::time::sleep_until(until) => break,
                // Whoever asked has gone. A call that was taken back is cancelled elsewhere.
                () = self.context.ct.cancelled() => break,
            }
            if asking.is_some() {
                continue;
            }
            let open = self.waiting().await?;
            if let Some(gate) = self.next_gate(&open).filter(|_| asks) {
                asking = Some(gate.ask(self.context.peer.clone()).boxed());
            } else if self.parked && self.rests(&open, until).await? {
                break;
            }
        }
        self.outcome().await
    }

    /// Requests without a session are answered like those that wait elsewhere.
    fn patience(&self) -> Duration {
        if self.context.meta.protocol_version().is_some() { WAIT } else { CALL }
    }

    /// Takes an event in. Answers whether there may be something to ask, or nothing more to wait for.
    async fn hear(&mut self, told: &Told) -> bool {
        match &*told.kind {
            "harness:parked" => self.parked = true,
            "harness:resumed" => self.parked = false,
            "task:paused" | "call:start" => return contains(&told.text, b"\"question\""),
            "task:blocked" => return true,
            "task:complete" | "task:failed" | "task:skipped" | "task:cancelled" => {
                self.progress(told).await;
                return false;
            }
            _ => return false,
        }
        self.parked
    }

    /// Tells of a node of the flow itself that has ended, if the client wants to know.
    async fn progress(&mut self, told: &Told) {
        let Some(progress_token) = self.context.meta.get_progress_token() else { return };
        let event: Value = serde_json::from_slice(&told.text).unwrap_or_default();
        let (Some(_), None, Some(node)) = (told.seq, event["scope"].as_str(), event["nodeId"].as_str()) else { return };
        self.ended += 1;
        let what = told.kind.strip_prefix("task:").unwrap_or_default();
        let mut progress = ProgressNotificationParam::new(progress_token, self.ended as f64);
        progress.total = self.nodes.map(|nodes| nodes as f64);
        progress.message = Some(format!("{node} {what}"));
        // A client that has gone is noticed elsewhere.
        let _ = self.context.peer.notify_progress(progress).await;
    }

    async fn waiting(&self) -> Result<Vec<Value>, Fault> {
        let run = self.run.clone();
        self.request.clone().reading(move |request| request.waiting(&run)).await
    }

    /// A gate that nobody here has been asked about.
    fn next_gate(&self, open: &[Value]) -> Option<Gate> {
        let fresh = |gate: &Gate| self.vain.get(&gate.address).is_none_or(|tries| *tries < TRIES);
        open.iter().filter_map(Gate::of).find(fresh)
    }

    /// Hands an answer to its gate. Whoever declines is not asked again.
    async fn take(&mut self, gate: Gate, answer: Option<Json>) -> Result<(), Fault> {
        let Some(answer) = answer else {
            self.vain.insert(gate.address, TRIES);
            return Ok(());
        };
        let reply = RunCommand::reply(gate.address.as_str(), answer, gate.question.clone());
        match steer::tell(self.request, &self.run, reply).await {
            Ok(()) => {
                self.parked = false;
                self.vain.remove(&gate.address);
            }
            Err(fault) if fault.code() == "answer_refused" => *self.vain.entry(gate.address).or_default() += 1,
            // Somebody else has answered, or it was too late.
            Err(fault) if fault.code() == "gate_closed" => {}
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Whether a run that is parked will not move before somebody has to do something, or for longer than anybody waits.
    async fn rests(&self, open: &[Value], until: Instant) -> Result<bool, Fault> {
        let run = self.run.clone();
        let (row, _) = self.request.clone().blocking(move |request| request.row(&run)).await?;
        let left = until.saturating_duration_since(Instant::now()).as_millis() as u64;
        Ok(match (&*row.status, row.due) {
            ("needs_attention", _) => true,
            ("parked", Some(due)) => due > self.request.host.now() + left,
            // An answer that has just come is still to be taken in.
            ("parked", None) => !open.is_empty(),
            _ => false,
        })
    }

    async fn outcome(&self) -> Result<CallToolResult, Fault> {
        let run = view(self.request.clone(), self.run.clone()).await?;
        let run = serde_json::to_value(run).map_err(Fault::internal)?;
        let over = ["succeeded", "failed", "cancelled"].iter().any(|status| run["status"] == *status);
        Ok(outcome::of_run(&run, if over { Vec::new() } else { self.waiting().await? }))
    }
}

async fn answered(asking: &mut Option<Asking>) -> (Gate, Option<Json>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
