//! Commands to runs, and the routes to resume and cancel them.

use std::collections::{BTreeMap, BTreeSet};

use axum::{Json, http::StatusCode};
use flowcell_contract::{Json as Value, RunId};
use flowcell_runtime::{
    HubError, OpenError, QuestionRef, RunCommand, RunOptions, fact::Resolution, ports::LabelChange,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    answers,
    api_error::{ApiError, ErrorBody},
    app::{Request, finish_detached},
    intake::{Body, PathParam, parse_path_id},
    runs::{RunView, view},
    start,
};
use flowcell_platform::StartError;

/// An accepted command; it is on stable storage.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Accepted {
    run_id: String,
    /// Always true; a refused command is an error.
    accepted: bool,
}

impl Accepted {
    pub(crate) fn new(run: &RunId) -> Accepted {
        Accepted { run_id: run.to_string(), accepted: true }
    }
}

/// A message to a run.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Message {
    /// The content of the message.
    #[schema(value_type = serde_json::Value)]
    content: Value,
    /// Not accepted: only messages to agents have ids.
    #[schema(ignore)]
    message_id: Option<serde::de::IgnoredAny>,
}

/// A message to an agent.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgentMessage {
    /// A text, or an object with a member `content`.
    #[schema(value_type = serde_json::Value)]
    content: Value,
    /// The id of the message; an agent run accepts messages with the same id once.
    message_id: Option<String>,
}

/// An answer to a gate.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// The answer: a text, or `{ "content", "choice"? }`.
    #[schema(value_type = serde_json::Value)]
    answer: Value,
    /// The `attempt` of the answered question. If the node is at another attempt, the server answers 409 `gate_closed`.
    attempt: Option<u32>,
    /// The `digest` of the answered question. If another question is open, the server answers 409 `gate_closed`.
    digest: Option<String>,
}

/// A named event.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Emitted {
    /// The payload of the event.
    #[serde(default)]
    #[schema(value_type = serde_json::Value)]
    payload: Value,
}

/// The decision about a blocked task: exactly one of these.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Decision {
    /// The call did not happen: make it again.
    Repeat(bool),
    /// The call happened, and this is its reply.
    #[schema(value_type = serde_json::Value)]
    Reply(Value),
    /// The task is done, and this is its output.
    #[schema(value_type = serde_json::Value)]
    Output(Value),
    /// The task fails, for this reason.
    Fail(String),
}

impl Message {
    fn command(self) -> Result<RunCommand, ApiError> {
        match self.message_id {
            None => Ok(RunCommand::Send { content: self.content.into() }),
            Some(_) => Err(ApiError::bad_request(
                "a message to a run has no `messageId`: send it to an agent by `POST …/nodes/{node}/send` or \
                 `POST …/agents/{agentRunId}/send`, which take each id once",
            )),
        }
    }
}

impl AgentMessage {
    fn command(self, to: String) -> RunCommand {
        RunCommand::Write { to, message: self.message_id, value: self.content.into() }
    }
}

impl Answer {
    fn command(self, gate: String) -> RunCommand {
        let question = QuestionRef { attempt: self.attempt, digest: self.digest.map(Into::into) };
        RunCommand::reply(gate, self.answer, question)
    }
}

impl Emitted {
    fn command(self, name: String) -> RunCommand {
        RunCommand::Emit { name, payload: self.payload.into() }
    }
}

/// Parses the body of a decision. Returns 400 unless it has exactly one of the four members.
fn parse_decision(body: serde_json::Map<String, serde_json::Value>) -> Result<Resolution, ApiError> {
    let one =
        || ApiError::bad_request("the body must have exactly one of `repeat: true`, `reply`, `output` and `fail: WHY`");
    let decision = (body.len() == 1).then(|| serde_json::from_value(serde_json::Value::Object(body)).ok()).flatten();
    match decision.ok_or_else(one)? {
        Decision::Repeat(true) => Ok(Resolution::Repeat),
        Decision::Repeat(false) => Err(one()),
        Decision::Reply(reply) => Ok(Resolution::Reply(reply.into())),
        Decision::Output(output) => Ok(Resolution::Output(output.into())),
        Decision::Fail(why) => Ok(Resolution::Fail(why.into())),
    }
}

/// An empty object.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Sends a command to a run and wakes the supervisor, since the run may be ready now. A reply to a gate is also
/// written to the audit log. Returns once the command is on stable storage. The error of a reply that comes too late says
/// who was first.
pub(crate) async fn send_command(request: &Request, run: &RunId, command: RunCommand) -> Result<(), ApiError> {
    request.row(run)?;
    let answer = answered_gate(&command);
    let (request, run) = (request.clone(), run.clone());
    finish_detached(async move {
        match (perform(&request, &run, command).await, answer) {
            (Err(error), Some(gate)) if error.status() == StatusCode::CONFLICT => {
                Err(answers::explain(request, run, gate, error).await)
            }
            (performed, _) => performed,
        }
    })
    .await
}

/// Sends a command to a run, as [`send_command`], without the name of the person who was first. The caller must let it
/// end ([`finish_detached`]).
pub(crate) async fn perform(request: &Request, run: &RunId, command: RunCommand) -> Result<(), ApiError> {
    let decided = answered_gate(&command).map(|gate| answers::audit_subject(run, &gate));
    let may_end = command == RunCommand::Cancel;
    request.host.ask(run, command).await?;
    request.app.admission.ready_signal().notify_one();
    // No driver reports the end of a run that was parked.
    if may_end
        && let Ok((row, _)) = request.row(run)
        && row.status == "cancelled"
    {
        request.app.triggers.report_end(request.tenant(), row.into());
    }
    match decided {
        Some(subject) => request.write_audit_entry(answers::REPLY, subject).await,
        None => Ok(()),
    }
}

/// Returns the address of the gate that a command answers.
fn answered_gate(command: &RunCommand) -> Option<String> {
    match command {
        RunCommand::Reply { gate, .. } => Some(gate.clone()),
        _ => None,
    }
}

async fn send_to_run(request: &Request, id: &str, command: RunCommand) -> Result<Json<Accepted>, ApiError> {
    let run = parse_path_id(id)?;
    send_command(request, &run, command).await?;
    Ok(Json(Accepted::new(&run)))
}

/// Send a message to a run
#[utoipa::path(post, path = "/v1/runs/{id}/send", tag = "steering", params(("id" = String, Path,)),
    request_body = Message, responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn send(
    request: Request,
    PathParam(id): PathParam<String>,
    Body(body): Body<Message>,
) -> Result<Json<Accepted>, ApiError> {
    send_to_run(&request, &id, body.command()?).await
}

/// Send a message to the latest open agent run of the node at an address
#[utoipa::path(post, path = "/v1/runs/{id}/nodes/{node}/send", tag = "steering",
    params(("id" = String, Path,), ("node" = String, Path,)),
    request_body = AgentMessage, responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn send_to_node(
    request: Request,
    PathParam((id, to)): PathParam<(String, String)>,
    Body(body): Body<AgentMessage>,
) -> Result<Json<Accepted>, ApiError> {
    send_to_run(&request, &id, body.command(to)).await
}

/// Send a message to an agent run
#[utoipa::path(post, path = "/v1/runs/{id}/agents/{agentRunId}/send", tag = "steering",
    params(("id" = String, Path,), ("agentRunId" = String, Path,)),
    request_body = AgentMessage, responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn send_to_agent(
    request: Request,
    PathParam((id, to)): PathParam<(String, String)>,
    Body(body): Body<AgentMessage>,
) -> Result<Json<Accepted>, ApiError> {
    send_to_run(&request, &id, body.command(to)).await
}

/// Ask an agent run to finish
#[utoipa::path(post, path = "/v1/runs/{id}/agents/{agentRunId}/close", tag = "steering",
    params(("id" = String, Path,), ("agentRunId" = String, Path,)),
    request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn close_agent(
    request: Request,
    PathParam((id, to)): PathParam<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Accepted>, ApiError> {
    send_to_run(&request, &id, RunCommand::CloseAgent { to }).await
}

/// Answer the gate at an address
#[utoipa::path(post, path = "/v1/runs/{id}/gates/{gate}/reply", tag = "steering",
    params(("id" = String, Path,), ("gate" = String, Path,)),
    request_body = Answer, responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn reply(
    request: Request,
    PathParam((id, gate)): PathParam<(String, String)>,
    Body(body): Body<Answer>,
) -> Result<Json<Accepted>, ApiError> {
    send_to_run(&request, &id, body.command(gate)).await
}

/// Send a named event; it wakes a waiting node, or is stored for a later wait
#[utoipa::path(post, path = "/v1/runs/{id}/events/{name}", tag = "steering",
    params(("id" = String, Path,), ("name" = String, Path,)),
    request_body(content = Emitted, description = "optional"),
    responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn emit(
    request: Request,
    PathParam((id, name)): PathParam<(String, String)>,
    Body(body): Body<Emitted>,
) -> Result<Json<Accepted>, ApiError> {
    send_to_run(&request, &id, body.command(name)).await
}

/// Decide the blocked task at an address
#[utoipa::path(post, path = "/v1/runs/{id}/tasks/{task}/resolve", tag = "steering",
    params(("id" = String, Path,), ("task" = String, Path,)),
    request_body = Decision, responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn resolve(
    request: Request,
    PathParam((id, task)): PathParam<(String, String)>,
    Body(body): Body<serde_json::Map<String, serde_json::Value>>,
) -> Result<Json<Accepted>, ApiError> {
    send_to_run(&request, &id, RunCommand::Resolve { task, resolution: parse_decision(body)? }).await
}

/// Cancel a run
#[utoipa::path(post, path = "/v1/runs/{id}/cancel", tag = "runs", params(("id" = String, Path,)),
    request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn cancel(
    request: Request,
    PathParam(id): PathParam<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Accepted>, ApiError> {
    send_to_run(&request, &id, RunCommand::Cancel).await
}

/// Cancel a run, like `/cancel`; `abort` is the name of this command in channels
#[utoipa::path(post, path = "/v1/runs/{id}/abort", tag = "steering", params(("id" = String, Path,)),
    request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn abort(
    request: Request,
    PathParam(id): PathParam<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Accepted>, ApiError> {
    send_to_run(&request, &id, RunCommand::Cancel).await
}

/// Resume a parked run, also one that was parked because its process ended repeatedly
///
/// Without the scope `run:read` the answer has only `runId`, `status` and `withheld`.
#[utoipa::path(post, path = "/v1/runs/{id}/resume", tag = "runs", params(("id" = String, Path,)),
    request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = RunView), (status = "default", body = ErrorBody)))]
pub(crate) async fn resume(
    request: Request,
    PathParam(id): PathParam<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<RunView>, ApiError> {
    let run = parse_path_id(&id)?;
    request.row(&run)?;
    request.app.require_store()?;
    let options = RunOptions { by_hand: true, without_events: true, ..RunOptions::default() };
    let found = run.clone();
    let prepared = request.clone().reading(move |request| Ok(request.host.resume(&found, options))).await?;
    match prepared {
        Ok(runner) if runner.ended().is_some() => Err(HubError::RunEnded.into()),
        Ok(runner) => start::admit(&request, runner, false).await.map(drop),
        // Another driver has the run already.
        Err(StartError::Open(OpenError::Driven(_))) => Ok(()),
        Err(error) => Err(error.into()),
    }?;
    let caller = request.caller.clone();
    Ok(Json(view(request, run).await?.for_caller(&caller)))
}

/// A change of the labels of a run. It sets or removes at least one label.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Relabel {
    /// The labels that the run gets. They replace labels with the same names.
    #[serde(default)]
    set: BTreeMap<String, String>,
    /// The names of the labels that the run loses.
    #[serde(default)]
    remove: BTreeSet<String>,
}

/// Set and remove labels of a run, also of an ended one
///
/// Without the scope `run:read` the answer has only `runId`, `status` and `withheld`.
#[utoipa::path(post, path = "/v1/runs/{id}/labels", tag = "runs", operation_id = "label_run",
    params(("id" = String, Path,)),
    request_body = Relabel,
    responses((status = 200, body = RunView), (status = "default", body = ErrorBody)))]
pub(crate) async fn label(
    request: Request,
    PathParam(id): PathParam<String>,
    Body(Relabel { set, remove }): Body<Relabel>,
) -> Result<Json<RunView>, ApiError> {
    let run = parse_path_id(&id)?;
    request.row(&run)?;
    finish_detached(async move {
        let (changed, change) = (run.clone(), LabelChange { set, remove });
        request.clone().reading(move |request| Ok(request.host.label_run(&changed, &change)?)).await?;
        request.write_audit_entry("run.label", run.to_string()).await?;
        let caller = request.caller.clone();
        Ok(Json(view(request, run).await?.for_caller(&caller)))
    })
    .await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_request_body_gives_the_same_command_as_a_channel_message() {
        let bodies = [
            (
                from_value::<Message>(json!({ "content": "x" })).unwrap().command().unwrap(),
                json!({ "verb": "send", "content": "x" }),
            ),
            (
                from_value::<AgentMessage>(json!({ "content": "x", "messageId": "m" })).unwrap().command("a".into()),
                json!({ "verb": "sendTo", "node": "a", "content": "x", "messageId": "m" }),
            ),
            (
                from_value::<Answer>(json!({ "answer": "yes", "attempt": 2, "digest": "d" }))
                    .unwrap()
                    .command("g".into()),
                json!({ "verb": "reply", "gate": "g", "answer": "yes", "attempt": 2, "digest": "d" }),
            ),
            (from_value::<Emitted>(json!({})).unwrap().command("e".into()), json!({ "verb": "emit", "name": "e" })),
        ];
        for (command, verb) in bodies {
            assert_eq!(command, from_value(verb).unwrap());
        }
    }
}
