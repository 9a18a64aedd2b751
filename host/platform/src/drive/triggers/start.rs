//! One start: which id its run has, what its input is, and what may keep it from beginning.

use flowcell_contract::{Json, RunId};
use flowcell_flow::triggers::MEMBER;
use flowcell_runtime::{OpenError, RunOptions};
use sha2::{Digest, Sha256};

use super::{
    Owners,
    live::Live,
    rate::{CHAINED_A_SECOND, CHAINED_AT_ONCE},
};
use crate::{
    FlowLibrary, Host, LibraryError, StartError,
    drive::driving::{AdmitError, PATIENCE},
    operate::quota::QuotaError,
};

/// What has become of a start.
#[derive(Debug)]
pub enum Outcome {
    /// The run is on stable storage.
    Started(RunId),
    /// The run was there before, or had been.
    Known(RunId),
    /// It may be tried again.
    Later(Problem),
    /// It is of no use to try again.
    Never(Problem),
}

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The flow is not there, or has errors.
    #[error(transparent)]
    Flow(#[from] LibraryError),
    /// The tenant has used up what it may.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The run cannot begin.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The run is not admitted now.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The ends of triggered runs have started as many runs as they may for now.
    #[error(
        "the ends of runs that triggers have started may start {CHAINED_AT_ONCE} runs of a tenant at once and \
         {CHAINED_A_SECOND} a second after that; it starts later"
    )]
    Rate,
    /// Nobody can say.
    #[error("{0}")]
    Store(String),
}

/// What starts a run.
pub(super) struct Start {
    /// The run's id.
    pub(super) run: RunId,
    /// What the member `trigger` of the input has beside `id`.
    pub(super) about: Vec<(&'static str, Json)>,
    /// The digest of what has come, by which the same is recognised.
    pub(super) request: Option<Box<str>>,
}

/// The id of the run that something starts: of the kind of what it is, the flow, the trigger, and what tells it from others of
/// its kind. Neither flows nor triggers have points in their names.
pub(super) fn run_id(kind: &str, live: &Live, what: &str) -> RunId {
    RunId::from(format!("{kind}.{}.{}.{what}", live.flow, live.trigger.id))
}

/// Something of any length as a part of an id.
pub(super) fn short(what: &str) -> String {
    hex::encode(&Sha256::digest(what.as_bytes())[..16])
}

/// Starts the flow of a trigger, unless that was done before.
pub(super) async fn start(owners: &dyn Owners, host: &Host, live: &Live, start: Start) -> Outcome {
    let (library, run) = (owners.library(host.tenant()), start.run.clone());
    let (blocking, flow) = (host.clone(), live.flow.clone());
    let input = input(live, start.about);
    let options = RunOptions {
        session_id: Some(start.run),
        input,
        request: start.request,
        without_events: true,
        patience: Some(PATIENCE),
        ..RunOptions::default()
    };
    let prepared = tokio::task::spawn_blocking(move || prepare(&blocking, &library, &flow, options)).await;
    let runner = match prepared {
        Ok(Ok(runner)) => runner,
        Ok(Err(outcome)) => return outcome,
        Err(error) => return Outcome::Later(Problem::Store(error.to_string())),
    };
    match owners.admit(host.tenant().clone(), runner).await {
        Ok(()) => Outcome::Started(run),
        Err(AdmitError::Open(error)) => told(run, error.into()),
        Err(error) => Outcome::Later(error.into()),
    }
}

type Runner = flowcell_runtime::FlowRunner;

fn prepare(host: &Host, library: &FlowLibrary, flow: &str, options: RunOptions) -> Result<Runner, Outcome> {
    let run = options.session_id.clone().unwrap_or_else(|| RunId::from(""));
    match host.knows(&run) {
        Ok(false) => {}
        Ok(true) => return Err(Outcome::Known(run)),
        Err(error) => return Err(Outcome::Later(Problem::Store(error.to_string()))),
    }
    let flow = library.load(host, flow, None).map_err(|error| match error {
        LibraryError::Folder { .. } => Outcome::Later(error.into()),
        error => Outcome::Never(error.into()),
    })?;
    let runner = host.runner(&flow, options).map_err(|error| told(run.clone(), error))?;
    // Another process may have begun it since it was looked for.
    if runner.is_new() { Ok(runner) } else { Err(Outcome::Known(run)) }
}

/// What a refusal means.
fn told(run: RunId, error: StartError) -> Outcome {
    match error {
        // Somebody else has begun it meanwhile.
        StartError::Open(
            OpenError::Driven(_)
            | OpenError::OtherInput(_)
            | OpenError::OtherFlow(..)
            | OpenError::OtherRequest(_)
            | OpenError::OtherRepeat(_),
        ) => Outcome::Known(run),
        StartError::Quota(error) => Outcome::Later(error.into()),
        error @ StartError::Open(OpenError::Store(_)) => Outcome::Later(error.into()),
        error => Outcome::Never(error.into()),
    }
}

/// The input of a run: what the trigger gives, and what has started it.
fn input(live: &Live, about: Vec<(&'static str, Json)>) -> Json {
    let mut members: Vec<(String, Json)> = Vec::new();
    for (key, value) in live.trigger.input.as_object().into_iter().flatten() {
        members.push((key.to_string(), value.clone()));
    }
    let id = ("id", Json::from(live.trigger.id.as_str()));
    members.push((MEMBER.to_owned(), Json::object([id].into_iter().chain(about))));
    Json::object(members)
}
