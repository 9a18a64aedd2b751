//! The control socket beside a store. Through it, other processes send requests to the process that owns the store. A
//! request and its answer are one JSON line each. After the answer to a `watch` request, the events of the run follow,
//! one line each, until the run ends.

mod begin;
mod console;
mod listening;
mod reach;
mod request;
mod socket;
mod stop;
mod watch;

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    ops::ControlFlow,
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_runtime::{HubError, OpenError, QuestionRef, RunCommand, RunOptions, remote};
use tokio::time::Instant;

pub use self::{
    begin::{Driver, HandedOverRuns, QueueDriver},
    console::ConsoleAccess,
    listening::{Listening, listen},
    reach::Reach,
    request::{OwnerReply, OwnerRequest},
    stop::{NotCancelled, StoppedTenant, stop_tenant, stop_tenant_as},
    watch::{Events, watch_owner},
};
use self::{listening::Admittance, request::OWNER_STOPPING};
use crate::{
    Host, StartError,
    host::resolved,
    operate::documents::to_json,
    runs::waiting,
    tenants::{TenantError, Tenants, audit::Outcome},
};

/// Maximum size of a request line in bytes: the largest input, and some room for the other members.
const MAX_BYTES: u64 = 72 * 1024 * 1024;
/// Time that a client has to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for which a command to a run is sent again while the run is being unloaded, or while another thread of
/// this process has the run open and does not drive it yet.
const MAX_OPENING_TIME: Duration = Duration::from_secs(2);
/// Pause before a command to a run is sent again, see [`MAX_OPENING_TIME`].
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// A process that owns a store, and that has not answered a request.
#[derive(Debug, thiserror::Error)]
pub enum AskOwnerError {
    /// The process has ended, or is about to end. It has not handled the request, or the request may be sent again.
    #[error(transparent)]
    Gone(io::Error),
    /// The request failed, and the process may have handled it.
    #[error(transparent)]
    Failed(io::Error),
}

/// Sends a request to the process that owns the store in a folder, and returns the answer.
pub fn ask_owner(folder: &Path, ask: &OwnerRequest) -> Result<OwnerReply, AskOwnerError> {
    let stream = connect(folder)?;
    let told = exchange(stream, ask).map_err(|error| match ask.may_be_repeated() {
        true => AskOwnerError::Gone(error),
        false => AskOwnerError::Failed(error),
    })?;
    match told {
        OwnerReply::Refused { code, message } if code == OWNER_STOPPING => {
            Err(AskOwnerError::Gone(io::Error::other(message)))
        }
        told => Ok(told),
    }
}

fn exchange(mut stream: UnixStream, ask: &OwnerRequest) -> io::Result<OwnerReply> {
    let line = serde_json::to_string(ask).map_err(io::Error::other)?;
    writeln!(stream, "{line}")?;
    let mut answer = String::new();
    if BufReader::new(stream).take(MAX_BYTES).read_line(&mut answer)? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process ended before it answered"));
    }
    serde_json::from_str(&answer).map_err(io::Error::other)
}

/// Connects to the process that owns the store in a folder.
fn connect(folder: &Path) -> Result<UnixStream, AskOwnerError> {
    socket::connect(folder).map_err(|error| match error.kind() {
        // A process that was killed leaves its socket behind. One that has ended removes it.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound | io::ErrorKind::ConnectionReset => {
            AskOwnerError::Gone(error)
        }
        _ => AskOwnerError::Failed(error),
    })
}

/// Returns true if a process listens in the folder of a store. One that was killed leaves its socket behind.
pub fn is_listening(folder: &Path) -> bool {
    socket::connect(folder).is_ok()
}

fn serve_connection(host: &Host, stream: &UnixStream, owner: &dyn Driver, reach: &Reach, admittance: Admittance) {
    let _ = stream.set_read_timeout(Some(REQUEST_TIMEOUT));
    let mut line = String::new();
    if BufReader::new(stream).take(MAX_BYTES).read_line(&mut line).is_err() {
        return;
    }
    if admittance.is_refused() {
        return send_reply(stream, &refusal(OWNER_STOPPING, &"the process is stopping"));
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return send_reply(stream, &refusal("internal", &error)),
    };
    match serde_json::from_str(&line) {
        Ok(OwnerRequest::Watch { run }) => {
            let known = host.each_event(&run, 0, |_| ControlFlow::Break(()));
            let watched = known.map(|()| send_reply(stream, &OwnerReply::Done { run: run.clone() }));
            match watched.map_err(AskError::from) {
                Ok(()) => {
                    // The end of the process does not wait for watchers.
                    drop(admittance);
                    // The watcher may have disconnected.
                    let _ = watch::send_events(host, &run, stream, &runtime);
                }
                Err(error) => send_reply(stream, &refusal(error.code(), &error)),
            }
        }
        Ok(ask) => {
            let reply = runtime.block_on(handle_request(host, owner, reach, ask));
            // An operator's change may also make waiting runs ready.
            if matches!(reply, OwnerReply::Done { .. } | OwnerReply::Operated { .. }) {
                owner.notify_ready();
            }
            send_reply(stream, &reply);
        }
        Err(error) => send_reply(stream, &refusal("bad_request", &error)),
    }
}

fn send_reply(stream: &UnixStream, reply: &OwnerReply) {
    let text = serde_json::to_string(reply).unwrap_or_default();
    let mut stream = stream;
    // The client may have disconnected.
    let _ = writeln!(stream, "{text}");
}

async fn handle_request(host: &Host, owner: &dyn Driver, reach: &Reach, ask: OwnerRequest) -> OwnerReply {
    match ask {
        OwnerRequest::Command { run, command } => match send_command(host, &run, command).await {
            Ok(()) => OwnerReply::Done { run },
            Err(error) => refusal(error.code(), &error),
        },
        OwnerRequest::OfTenant { tenant, request } => {
            let OwnerRequest::Command { run, command } = *request else {
                return refusal("bad_request", &"a run of another tenant accepts only commands");
            };
            match command_as_operator(host, &tenant, &run, command).await {
                Ok(()) => OwnerReply::Done { run },
                Err(error) => refusal(error.code(), &error),
            }
        }
        OwnerRequest::StopTenant { name } => {
            let stopped = stop_tenant(host, &name).await;
            match stopped.and_then(|stopped| Ok(to_json("stopped", &stopped)?)) {
                Ok(result) => OwnerReply::Operated { result },
                Err(error) => refusal(error.code(), &error),
            }
        }
        OwnerRequest::Console { tenant, scopes } => console::answer(host, owner, tenant.as_deref(), &scopes),
        OwnerRequest::Reload => begin::reload(owner).await,
        OwnerRequest::Operate { operation } => match Tenants::of(host).operate(&operation) {
            Ok(result) => OwnerReply::Operated { result },
            Err(error) => refusal(error.code(), &error),
        },
        start => begin::begin(host, owner, reach, start).await,
    }
}

/// Sends an operator's command to a run of a tenant. For a tenant other than `local`, adds an audit entry.
pub async fn command_as_operator(
    host: &Host,
    tenant: &str,
    run: &RunId,
    command: RunCommand,
) -> Result<(), OperatorCommandError> {
    if Tenant::from(tenant) == Tenant::local() {
        return Ok(send_command(host, run, command).await?);
    }
    let (tenants, action) = (Tenants::of(host), format!("run.{}", command.verb()));
    send_command(&tenants.host(&Tenant::from(tenant))?, run, command).await?;
    Ok(tenants.note(tenant, &action, run.as_str(), Outcome::Done)?)
}

fn refusal(code: &str, why: &dyn std::fmt::Display) -> OwnerReply {
    OwnerReply::Refused { code: code.to_owned(), message: why.to_string() }
}

/// A failed command to a run.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The run refused the command.
    #[error(transparent)]
    Refused(#[from] HubError),
    /// The run cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A failed command of an operator.
#[derive(Debug, thiserror::Error)]
pub enum OperatorCommandError {
    /// The command failed.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The tenant does not exist, or its audit log cannot be written.
    #[error(transparent)]
    Tenant(#[from] TenantError),
}

impl OperatorCommandError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            OperatorCommandError::Ask(error) => error.code(),
            OperatorCommandError::Tenant(error) => error.code(),
        }
    }
}

impl AskError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            AskError::Refused(error) => error.code(),
            AskError::Start(StartError::Open(OpenError::Unknown(_))) => "run_not_found",
            AskError::Start(_) => "not_accepted",
        }
    }
}

/// Performs [`Host::ask`].
pub(crate) async fn send_command(host: &Host, run: &RunId, mut command: RunCommand) -> Result<(), AskError> {
    resolved::check(host, run, &command)??;
    let driven = || host.hubs().get(host.tenant(), run);
    let until = Instant::now() + MAX_OPENING_TIME;
    loop {
        if let Some(hub) = driven() {
            match hub.request(command.clone()).await {
                // A run that is being unloaded has not received the command, so it is sent again. A run that has
                // ended reports that when it is opened.
                Err(HubError::RunEnded) if Instant::now() < until => {
                    name_question(host, run, &mut command)?;
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
                told => return Ok(told?),
            }
        }
        match host.resume(run, RunOptions::default()) {
            Ok(mut runner) => {
                // The command may end the run.
                host.watch(&mut runner);
                return Ok(runner.ask(command).await?);
            }
            Err(StartError::Open(OpenError::Driven(_))) if driven().is_some() => {}
            // Another process drives the run.
            Err(StartError::Open(OpenError::Driven(_))) if host.inbox().is_shared() => {
                name_question(host, run, &mut command)?;
                let id = remote::new_message_id();
                let outcome = remote::ask(host.inbox(), host.tenant(), run, &id, &command).await;
                return Ok(outcome.map_err(|error| StartError::Open(OpenError::Store(error)))??);
            }
            // Another thread of this process has the run open and is about to drive or release it.
            Err(StartError::Open(OpenError::Driven(_))) if Instant::now() < until => {
                name_question(host, run, &mut command)?;
                tokio::time::sleep(RETRY_PAUSE).await
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// If the command is an answer that names no question, adds the question that is open now at the answer's gate. The
/// command may be handled later, and then must not answer a question that was asked after this moment. Fails if no
/// question is open at the gate.
fn name_question(host: &Host, run: &RunId, command: &mut RunCommand) -> Result<(), AskError> {
    let RunCommand::Reply { gate, question, .. } = command else { return Ok(()) };
    if question.digest.is_none() {
        let open = waiting::question(host, run, gate)?;
        let open = open.map(|open| QuestionRef::of_json(&Json::from(open)));
        let open = open.ok_or(HubError::GateClosed)?;
        question.check(&open).map_err(HubError::NotOpen)?;
        *question = open;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_flow::Source;
    use flowcell_runtime::RunStatus;

    use super::*;

    #[test]
    fn the_members_of_a_command_are_beside_its_run() {
        let table = [
            (r#"{"verb":"cancel","run":"r","later":1}"#, RunCommand::Cancel),
            (r#"{"verb":"send","run":"r","content":"x"}"#, RunCommand::Send { content: Json::from("x").into() }),
            (
                r#"{"verb":"reply","run":"r","gate":"g","answer":{"content":"yes"},"question":{"attempt":2}}"#,
                RunCommand::reply("g", Json::from("yes"), QuestionRef { attempt: Some(2), digest: None }),
            ),
        ];
        for (line, expected) in table {
            let ask: OwnerRequest = serde_json::from_str(line).unwrap();
            let written: OwnerRequest = serde_json::from_str(&serde_json::to_string(&ask).unwrap()).unwrap();
            for ask in [ask, written] {
                let OwnerRequest::Command { run, command } = ask else { panic!("{line}: {ask:?}") };
                assert_eq!((run.as_str(), command), ("r", expected.clone()), "{line}");
            }
        }
        let others = [r#"{"verb":"watch","run":"r"}"#, r#"{"verb":"resume","run":"r"}"#];
        assert!(
            others.iter().all(|line| !matches!(serde_json::from_str(line), Ok(OwnerRequest::Command { .. }) | Err(_)))
        );
    }

    #[test]
    fn w2_an_answer_that_has_to_wait_names_the_question_that_is_open_now() {
        let host = Host::builder().build().unwrap();
        let text = "flow: { name: asks }\n\
                    nodes: [{ id: ok, type: control.gate, input: { prompt: Well?, choices: [\"yes\"] } }]\n";
        let flow = host.load_source(Source { name: "asks.yaml".into(), text: text.into() }).unwrap();
        let options = RunOptions { run_id: Some("r".into()), ..RunOptions::default() };
        let runner = host.runner(&flow, options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(runner.run()).status, RunStatus::Parked);
        let reply = |gate: &str, question: QuestionRef| {
            let mut command = RunCommand::reply(gate, Json::Null, question);
            name_question(&host, &"r".into(), &mut command).map(|()| match command {
                RunCommand::Reply { question, .. } => question,
                other => panic!("{other:?}"),
            })
        };
        let named = reply("ok", QuestionRef::default()).unwrap();
        assert!(named.attempt == Some(1) && named.digest.is_some(), "{named:?}");
        assert_eq!(reply("ok", named.clone()).unwrap(), named);
        for (gate, attempt) in [("other", None), ("ok", Some(2))] {
            let refused = reply(gate, QuestionRef { attempt, digest: None }).unwrap_err();
            assert_eq!(refused.code(), "gate_closed", "{gate}: {refused}");
        }
    }
}
