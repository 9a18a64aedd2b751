//! The control socket beside a store: what other terminals ask of the process that owns it. One JSON line asks, one
//! answers; one that watches a run is then told its events, a line each, until the run ends.

mod begin;
mod reach;
mod socket;
mod watch;

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    ops::ControlFlow,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use flowcell_contract::{Json, RunId};
use flowcell_runtime::{Closed, HubError, OpenError, QuestionRef, RunCommand, RunOptions, remote};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use self::{
    begin::{Driven, Driver, Guests},
    reach::Reach,
    watch::{Events, watch_owner},
};
use crate::{
    Host, StartError,
    runs::waiting,
    tenants::{Tenants, operation::Operation},
};

/// More than the largest input is no question.
const MAX_BYTES: u64 = 72 * 1024 * 1024;
/// Somebody who connects and says nothing keeps nobody waiting for longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A run that somebody in this process has open without driving it is asked again for so long, and so often.
const OPENING: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(5);

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ask {
    /// Tell a run's events from the first, and what is live, until the run ends or whoever asks has gone.
    Watch {
        /// Which run.
        run: RunId,
    },
    /// Take a run in.
    Start {
        /// The flow's file, from the root.
        flow: PathBuf,
        /// Members that win over the flow's defaults.
        input: Json,
        /// The run's id; a new one if none is given.
        run: Option<RunId>,
        /// What wins over the flow's own.
        total_timeout_ms: Option<u64>,
        /// Answers to questions that are still to be asked, by address.
        #[serde(default)]
        answers: BTreeMap<String, Json>,
        /// What the caller lets its runs reach.
        #[serde(default)]
        reach: Reach,
        /// The caller follows the run: it is driven at once.
        #[serde(default)]
        follow: bool,
    },
    /// Run a flow of agents under a prefix, or go on with what its run before has left.
    Flow {
        /// The flow's file, from the root.
        flow: PathBuf,
        /// What the ids of its sessions begin with.
        prefix: String,
        /// Its arguments.
        args: Json,
        /// Remove the sessions and states of the prefix first.
        delete: bool,
        /// What wins over the flow's own.
        total_timeout_ms: Option<u64>,
        /// What the caller lets its runs reach.
        #[serde(default)]
        reach: Reach,
    },
    /// Go on with a run, by hand.
    Resume {
        /// Which run.
        run: RunId,
        /// What the caller lets its runs reach.
        #[serde(default)]
        reach: Reach,
    },
    /// Do again what a run did, as a new run.
    Retry {
        /// Which run.
        run: RunId,
        /// Only this node of the flow itself and what comes after it.
        from: Option<String>,
        /// Keep the answers of people that this depends on.
        keep_answers: bool,
        /// The new run's id; one is made if none is given.
        new: Option<RunId>,
        /// Answers to questions that are still to be asked, by address.
        #[serde(default)]
        answers: BTreeMap<String, Json>,
        /// What the caller lets its runs reach.
        #[serde(default)]
        reach: Reach,
    },
    /// Do something about tenants, tokens, secrets or the audit log.
    Operate {
        /// What.
        operation: Operation,
    },
    /// Give a run a command, whose verb and members stand beside the run.
    #[serde(untagged)]
    Command {
        /// The run.
        run: RunId,
        /// The command.
        #[serde(flatten)]
        command: RunCommand,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Told {
    /// It is on stable storage.
    Done {
        /// Which run.
        run: RunId,
    },
    /// What came of an operation.
    Operated {
        /// What it tells.
        result: Json,
    },
    /// It was not done.
    Refused {
        /// A stable code.
        code: String,
        /// Why.
        message: String,
    },
}

impl Ask {
    /// The run that it is about; none if a new one is to begin.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Ask::Command { run, .. } | Ask::Watch { run } | Ask::Resume { run, .. } => Some(run),
            Ask::Retry { new, .. } => new.as_ref(),
            Ask::Start { run, .. } => run.as_ref(),
            Ask::Flow { .. } | Ask::Operate { .. } => None,
        }
    }
}

/// Asks the process that owns the store in a folder.
pub fn ask_owner(folder: &Path, ask: &Ask) -> io::Result<Told> {
    let mut stream = socket::connect(folder)?;
    let line = serde_json::to_string(ask).map_err(io::Error::other)?;
    writeln!(stream, "{line}")?;
    let mut answer = String::new();
    BufReader::new(stream).take(MAX_BYTES).read_line(&mut answer)?;
    serde_json::from_str(&answer).map_err(io::Error::other)
}

/// Answers what other terminals ask, until the process ends. `owner` drives what is handed over, and is told after each thing
/// that was done; runs that are handed over may reach at most `reach`.
pub fn listen(host: &Host, folder: &Path, owner: Arc<dyn Driver>, reach: Reach) -> io::Result<()> {
    // The store's lock says that no other process listens here.
    let listener = socket::bind(folder)?;
    let host = host.clone();
    thread::Builder::new().name("flowcell-control".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let (host, owner, reach) = (host.clone(), owner.clone(), reach.clone());
            let answering = thread::Builder::new().name("flowcell-answer".into());
            // Without a thread for it, the question ends with its connection.
            let _ = answering.spawn(move || converse(&host, &stream, &*owner, &reach));
        }
    })?;
    Ok(())
}

fn converse(host: &Host, stream: &UnixStream, owner: &dyn Driver, reach: &Reach) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut line = String::new();
    if BufReader::new(stream).take(MAX_BYTES).read_line(&mut line).is_err() {
        return;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tell(stream, &refused("internal", &error)),
    };
    match serde_json::from_str(&line) {
        Ok(Ask::Watch { run }) => {
            let known = host.each_event(&run, 0, |_| ControlFlow::Break(()));
            let watched = known.map(|()| tell(stream, &Told::Done { run: run.clone() }));
            match watched.map_err(AskError::from) {
                // Whoever watched may be gone.
                Ok(()) => _ = watch::tell(host, &run, stream, &runtime),
                Err(error) => tell(stream, &refused(error.code(), &error)),
            }
        }
        Ok(ask) => {
            let told = runtime.block_on(answer(host, owner, reach, ask));
            // What an operator has changed may let runs go on, too.
            if matches!(told, Told::Done { .. } | Told::Operated { .. }) {
                owner.moved();
            }
            tell(stream, &told);
        }
        Err(error) => tell(stream, &refused("bad_request", &error)),
    }
}

fn tell(stream: &UnixStream, told: &Told) {
    let text = serde_json::to_string(told).unwrap_or_default();
    let mut stream = stream;
    // Whoever asked may be gone.
    let _ = writeln!(stream, "{text}");
}

async fn answer(host: &Host, owner: &dyn Driver, reach: &Reach, ask: Ask) -> Told {
    match ask {
        Ask::Command { run, command } => match host.ask(&run, command).await {
            Ok(()) => Told::Done { run },
            Err(error) => refused(error.code(), &error),
        },
        Ask::Operate { operation } => match Tenants::of(host).operate(&operation) {
            Ok(result) => Told::Operated { result },
            Err(error) => refused(error.code(), &error),
        },
        start => begin::begin(host, owner, reach, start).await,
    }
}

fn refused(code: &str, why: &dyn std::fmt::Display) -> Told {
    Told::Refused { code: code.to_owned(), message: why.to_string() }
}

/// Why nothing came of a question about a run.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The run refused.
    #[error(transparent)]
    Refused(#[from] HubError),
    /// The run cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl AskError {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            AskError::Refused(error) => error.code(),
            AskError::Start(StartError::Open(OpenError::Unknown(_))) => "run_not_found",
            AskError::Start(_) => "not_accepted",
        }
    }
}

impl Host {
    /// Gives a run a command: by its hub if this process drives it. Else the command is recorded for its next driver.
    pub async fn ask(&self, run: &RunId, mut command: RunCommand) -> Result<(), AskError> {
        let driven = || self.hubs().get(self.tenant(), run);
        let until = Instant::now() + OPENING;
        loop {
            if let Some(hub) = driven() {
                match hub.request(command.clone()).await {
                    // A run that is put away at this moment has not heard it; one that has ended says so when it is opened.
                    Err(HubError::RunEnded) if Instant::now() < until => {
                        self.name_question(run, &mut command)?;
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    }
                    told => return Ok(told?),
                }
            }
            match self.resume(run, RunOptions::default()) {
                Ok(runner) => return Ok(runner.ask(command).await?),
                Err(StartError::Open(OpenError::Driven(_))) if driven().is_some() => {}
                // Another process drives it.
                Err(StartError::Open(OpenError::Driven(_))) if self.inbox().is_shared() => {
                    self.name_question(run, &mut command)?;
                    let id = remote::new_message_id();
                    let outcome = remote::ask(self.inbox(), self.tenant(), run, &id, &command).await;
                    return Ok(outcome.map_err(|error| StartError::Open(OpenError::Store(error)))??);
                }
                // Somebody in this process has it open at this moment, and drives it in the next, or lets it go.
                Err(StartError::Open(OpenError::Driven(_))) if Instant::now() < until => {
                    self.name_question(run, &mut command)?;
                    tokio::time::sleep(AGAIN).await
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Names the question that is open now in an answer that names none. An answer that is taken in later must not count
    /// for a question that nobody had asked by now.
    fn name_question(&self, run: &RunId, command: &mut RunCommand) -> Result<(), AskError> {
        let RunCommand::Reply { gate, question, .. } = command else { return Ok(()) };
        if question.digest.is_none() {
            let open = waiting::question(self, run, gate)?;
            let open = open.map(|open| QuestionRef::of_json(&Json::from(open)));
            let open = open.ok_or(HubError::NotOpen(Closed::NotAsked))?;
            question.check(&open).map_err(HubError::NotOpen)?;
            *question = open;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_flow::Source;
    use flowcell_runtime::RunStatus;

    use super::*;

    #[test]
    fn a_command_stands_beside_its_run() {
        let table = [
            (r#"{"verb":"cancel","run":"r","later":1}"#, RunCommand::Cancel),
            (r#"{"verb":"send","run":"r","content":"x"}"#, RunCommand::Send { content: Json::from("x").into() }),
            (
                r#"{"verb":"reply","run":"r","gate":"g","answer":{"content":"yes"},"question":{"attempt":2}}"#,
                RunCommand::reply("g", Json::from("yes"), QuestionRef { attempt: Some(2), digest: None }),
            ),
        ];
        for (line, expected) in table {
            let ask: Ask = serde_json::from_str(line).unwrap();
            let written: Ask = serde_json::from_str(&serde_json::to_string(&ask).unwrap()).unwrap();
            for ask in [ask, written] {
                let Ask::Command { run, command } = ask else { panic!("{line}: {ask:?}") };
                assert_eq!((run.as_str(), command), ("r", expected.clone()), "{line}");
            }
        }
        let others = [r#"{"verb":"watch","run":"r"}"#, r#"{"verb":"resume","run":"r"}"#];
        assert!(others.iter().all(|line| !matches!(serde_json::from_str(line), Ok(Ask::Command { .. }) | Err(_))));
    }

    #[test]
    fn w2_an_answer_that_has_to_wait_names_the_question_that_is_open_now() {
        let host = Host::builder().build().unwrap();
        let text = "flow: { name: asks }\n\
                    nodes: [{ id: ok, type: control.gate, input: { prompt: Well?, choices: [\"yes\"] } }]\n";
        let flow = host.load_source(Source { name: "asks.yaml".into(), text: text.into() }).unwrap();
        let options = RunOptions { session_id: Some("r".into()), ..RunOptions::default() };
        let runner = host.runner(&flow, options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(runner.run()).status, RunStatus::Parked);
        let reply = |gate: &str, question: QuestionRef| {
            let mut command = RunCommand::reply(gate, Json::Null, question);
            host.name_question(&"r".into(), &mut command).map(|()| match command {
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
