//! One start of a triggered run: its id, its input, and its errors.

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_flow::triggers::MEMBER;
use flowcell_runtime::{
    OpenError, RunOptions,
    ports::{MaybeStoreError, StoreError},
};
use sha2::{Digest, Sha256};

use super::{
    TriggerTenants,
    live::TenantTrigger,
    rate::{CHAINED_A_SECOND, CHAINED_AT_ONCE},
};
use crate::{
    FlowLibrary, Host, LibraryError, StartError,
    drive::supervisor::{AdmitError, MAX_TIMER_WAIT},
    operate::quota::QuotaError,
};

/// The result of a start.
#[derive(Debug)]
pub enum Outcome {
    /// The run is on stable storage.
    Started(RunId),
    /// The run of this cause exists, or has existed and was removed. Nothing was started.
    Known(RunId),
    /// A temporary error. The start may be retried.
    Later(TriggerStartError),
    /// A permanent error. A retry would fail again.
    Never(TriggerStartError),
}

/// An error of a start.
#[derive(Debug, thiserror::Error)]
pub enum TriggerStartError {
    /// The flow does not exist, or has errors.
    #[error(transparent)]
    Flow(#[from] LibraryError),
    /// The tenant is over quota.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The run cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The run is not admitted now.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The tenant has reached the rate limit of chained starts.
    #[error(
        "triggers after runs of other triggers may start {CHAINED_AT_ONCE} runs of a tenant at once, then \
         {CHAINED_A_SECOND} per second; this run starts later"
    )]
    Rate,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MaybeStoreError for TriggerStartError {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            TriggerStartError::Store(error) => Some(error),
            TriggerStartError::Start(error) => error.store_error(),
            TriggerStartError::Quota(error) => error.store_error(),
            TriggerStartError::Flow(error) => error.store_error(),
            TriggerStartError::Admit(AdmitError::Open(OpenError::Store(error))) => Some(error),
            TriggerStartError::Admit(_) | TriggerStartError::Rate => None,
        }
    }
}

/// Logs that a start is tried again later.
pub(super) fn log_delay(live: &TenantTrigger, tenant: &Tenant, why: &TriggerStartError) {
    why.warn(format_args!("the trigger `{}` of `{tenant}` waits", live.key()));
}

/// The parameters of a start.
pub(super) struct Start {
    /// The run's id.
    pub(super) run: RunId,
    /// The members of the object `trigger` in the run's input, besides `id`.
    pub(super) about: Vec<(&'static str, Json)>,
    /// The digest that repeated deliveries of a post share: of its body, or of its id if deliveries may differ. `None` if no
    /// post has caused the start.
    pub(super) request: Option<Box<str>>,
}

/// Builds the id of a triggered run from the kind of cause, the flow, the trigger, and `what`, which identifies the
/// cause among those of the trigger. Names of flows and triggers contain no dots.
pub(super) fn run_id(kind: &str, live: &TenantTrigger, what: &str) -> RunId {
    RunId::from(format!("{kind}.{}.{}.{what}", live.flow, live.trigger.id))
}

/// Hashes bytes of any number for use in an id.
pub(super) fn short_hash(what: impl AsRef<[u8]>) -> String {
    hex::encode(&Sha256::digest(what)[..16])
}

/// Starts the flow of a trigger, unless this start was made before.
pub(super) async fn start(owners: &dyn TriggerTenants, host: &Host, live: &TenantTrigger, start: Start) -> Outcome {
    let (library, run) = (owners.library(host.tenant()), start.run.clone());
    let (blocking, flow) = (host.clone(), live.flow.clone());
    let input = run_input(live, start.about);
    let options = RunOptions {
        run_id: Some(start.run),
        input,
        request: start.request,
        without_events: true,
        labels: live.trigger.labels.clone(),
        trigger: Some(live.trigger.id.as_str().into()),
        patience: Some(MAX_TIMER_WAIT),
        ..RunOptions::default()
    };
    let prepared = tokio::task::spawn_blocking(move || prepare(&blocking, &library, &flow, options)).await;
    let runner = match prepared {
        Ok(Ok(runner)) => runner,
        Ok(Err(outcome)) => return outcome,
        Err(error) => return Outcome::Later(StoreError(error.to_string().into()).into()),
    };
    match owners.admit(host.tenant().clone(), runner).await {
        Ok(()) => Outcome::Started(run),
        Err(AdmitError::Open(error)) => outcome_of(run, error.into()),
        Err(error) => Outcome::Later(error.into()),
    }
}

type Runner = flowcell_runtime::FlowRunner;

fn prepare(host: &Host, library: &FlowLibrary, flow: &str, options: RunOptions) -> Result<Runner, Outcome> {
    let run = options.run_id.clone().unwrap_or_else(|| RunId::from(""));
    match host.knows(&run) {
        Ok(false) => {}
        Ok(true) => return Err(Outcome::Known(run)),
        Err(error) => return Err(Outcome::Later(error.into())),
    }
    let flow = library.load(host, flow, None).map_err(|error| match error {
        LibraryError::Folder { .. } | LibraryError::Store(_) => Outcome::Later(error.into()),
        error => Outcome::Never(error.into()),
    })?;
    let runner = host.runner(&flow, options).map_err(|error| outcome_of(run.clone(), error))?;
    // Another process may have begun it since the check.
    if runner.is_new() { Ok(runner) } else { Err(Outcome::Known(run)) }
}

/// Converts a start error to an outcome.
fn outcome_of(run: RunId, error: StartError) -> Outcome {
    match error {
        // Another process has begun it meanwhile.
        StartError::Open(
            OpenError::OtherInput(_)
            | OpenError::OtherFlow(..)
            | OpenError::OtherRequest(_)
            | OpenError::OtherRepeat(_),
        ) => Outcome::Known(run),
        StartError::Quota(error) => Outcome::Later(error.into()),
        // Another start has the claim of the run, perhaps before the run was stored. The next try finds the run if it exists.
        error @ StartError::Open(OpenError::Driven(_) | OpenError::Store(_)) => Outcome::Later(error.into()),
        error => Outcome::Never(error.into()),
    }
}

/// Builds the input of a run from the trigger's input and the cause.
fn run_input(live: &TenantTrigger, about: Vec<(&'static str, Json)>) -> Json {
    let mut members: Vec<(String, Json)> = Vec::new();
    for (key, value) in live.trigger.input.as_object().into_iter().flatten() {
        members.push((key.to_string(), value.clone()));
    }
    let id = ("id", Json::from(live.trigger.id.as_str()));
    members.push((MEMBER.to_owned(), Json::object([id].into_iter().chain(about))));
    Json::object(members)
}
