//! Runs that other processes hand over to the owner of the store, which starts, resumes or repeats them.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Json, NodeId, RunId, Tenant};
use flowcell_runtime::{
    FlowRunner, Hub, MoveOptions, OpenError, PolicyOverride, Renames, Repeat, RunOptions, RunStatus, blocking::blocking,
};
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::{runtime::Handle, task::JoinHandle};

use super::{OwnerReply, OwnerRequest, refusal, request::OWNER_STOPPING};
use crate::{
    Host, LoadError, StartError,
    control::Reach,
    drive::{
        reload::Reloader,
        sessions::{Opened, SessionError},
        supervisor::{AdmissionQueue, AdmitError, FirstEvent, MAX_TIMER_WAIT, Overflow},
    },
    library::versions::{self, FlowVersion, MoveError, NoVersion, RetryError},
    operate::documents::to_json,
};

/// The part of the store's owner that drives runs.
pub trait Driver: Send + Sync {
    /// Tells the driver to check for runs that have become ready and that it does not drive yet.
    fn notify_ready(&self);

    /// Admits a run that another process has handed over, and returns once the run is on stable storage. If
    /// `follows` is true, the other process waits for the run's events, so the driver drives the run at once or in
    /// its turn, or refuses it.
    fn admit(&self, runner: FlowRunner, follows: bool) -> BoxFuture<'static, Result<(), AdmitError>>;

    /// Returns the reloader of the process. `None` if the process drives only a run of its own.
    fn reloader(&self) -> Option<Arc<Reloader>> {
        None
    }

    /// Returns the scheme, the name and the port by which a browser reaches the console of the process, such as
    /// `http://flowcell.localhost:7171`. `None` if the process serves no HTTP.
    fn origin(&self) -> Option<String> {
        None
    }
}

/// A driver that passes handed-over runs to the admission queue of a supervisor.
pub struct QueueDriver {
    /// The queue of new runs.
    pub admission: AdmissionQueue,
    /// Reads packs, flows and triggers again.
    pub reloader: Arc<Reloader>,
    /// The scheme, the name and the port by which a browser reaches the console. `None` if the process serves no HTTP.
    pub origin: Option<String>,
}

impl Driver for QueueDriver {
    fn notify_ready(&self) {
        self.admission.ready_signal().notify_one();
    }

    fn reloader(&self) -> Option<Arc<Reloader>> {
        Some(self.reloader.clone())
    }

    fn origin(&self) -> Option<String> {
        self.origin.clone()
    }

    fn admit(&self, runner: FlowRunner, follows: bool) -> BoxFuture<'static, Result<(), AdmitError>> {
        let (admission, overflow) = (self.admission.clone(), if follows { Overflow::Refuse } else { Overflow::Store });
        Box::pin(async move { admission.admit(Tenant::local(), runner, overflow).await.map(drop) })
    }
}

/// Handles a request to read packs, flows and triggers again. The caller prints what is broken, and this process logs it.
pub(super) async fn reload(owner: &dyn Driver) -> OwnerReply {
    let Some(reloader) = owner.reloader() else {
        return refusal("bad_request", &"the process that owns the store drives only a run of its own");
    };
    let reloaded = reloader.reload().await;
    reloaded.log();
    match to_json("reloaded", &reloaded) {
        Ok(result) => OwnerReply::Operated { result },
        Err(error) => refusal("internal", &error),
    }
}

/// Handles a request to start, resume, repeat or move a run.
pub(super) async fn begin(host: &Host, owner: &dyn Driver, reach: &Reach, ask: OwnerRequest) -> OwnerReply {
    let (ask, renames) = match ask {
        OwnerRequest::MigrateRenaming { renames, migrate } if matches!(*migrate, OwnerRequest::Migrate { .. }) => {
            (*migrate, renames)
        }
        OwnerRequest::RetryRenaming { renames, retry } if matches!(*retry, OwnerRequest::RetryInVersion { .. }) => {
            (*retry, renames)
        }
        ask => (ask, Renames::new()),
    };
    let (ask, version) = match ask {
        OwnerRequest::Migrate { run, version, keep_answers, check, reach: asked } => {
            // The owner would refuse to resume the run after the move.
            return match refuse_lacking(&asked, reach) {
                Some(refused) if !check => refused,
                _ => migrate(host, &run, version, &MoveOptions { keep_answers, renames }, check).await,
            };
        }
        OwnerRequest::RetryInVersion { version, check, retry } => (*retry, Some((version, check))),
        ask => (ask, None),
    };
    if version.is_some() && !matches!(ask, OwnerRequest::Retry { .. }) {
        return refusal("bad_request", &"only a retry has a version of the flow");
    }
    let (OwnerRequest::Start { reach: asked, .. }
    | OwnerRequest::Flow { reach: asked, .. }
    | OwnerRequest::Resume { reach: asked, .. }
    | OwnerRequest::Retry { reach: asked, .. }) = &ask
    else {
        return refusal("bad_request", &"this command starts no run");
    };
    if let Some(refused) = refuse_lacking(asked, reach) {
        return refused;
    }
    if let (Some((version, true)), OwnerRequest::Retry { run, from, keep_answers, .. }) = (version, &ask) {
        let repeat = Repeat { from: from.as_deref().map(NodeId::from), keep_answers: *keep_answers, renames };
        return match blocking(|| versions::plan_retry(host, run, version, &repeat)) {
            Ok(plan) => OwnerReply::Operated { result: plan_json(&plan) },
            Err(error) => *repeat_refused(error, run),
        };
    }
    let follows = !matches!(&ask, OwnerRequest::Start { follow: false, .. });
    let prepared = match ask {
        OwnerRequest::Flow { .. } => prepare_session(host, ask).await,
        _ => prepare(host, ask, version.map(|(version, _)| version), renames),
    };
    let runner = match prepared {
        Ok(runner) => runner,
        Err(told) => return *told,
    };
    let run = runner.run_id().clone();
    // An existing run continues only for a caller that follows it. For other callers, it is already in the store.
    if runner.ended().is_some() || !(follows || runner.is_new()) {
        return OwnerReply::Done { run };
    }
    match owner.admit(runner, follows).await {
        Ok(()) => OwnerReply::Done { run },
        Err(error @ AdmitError::Closed) => refusal(OWNER_STOPPING, &error),
        Err(error) => refusal("not_accepted", &error),
    }
}

/// Returns a refusal if the owner has other options than the caller.
fn refuse_lacking(asked: &Reach, of_owner: &Reach) -> Option<OwnerReply> {
    let lacking = asked.lacking(of_owner);
    let why = || format!("the process that owns the store has other options: {}", lacking.join(", "));
    (!lacking.is_empty()).then(|| refusal("option_lacking", &why()))
}

/// Moves a run to another version of its flow, unless the plan has reasons against it. Answers with the plan. `check`:
/// true to change nothing.
async fn migrate(host: &Host, run: &RunId, version: FlowVersion, options: &MoveOptions, check: bool) -> OwnerReply {
    let migration = match blocking(|| versions::migration(host, run, version, options)) {
        Ok(migration) => migration,
        Err(error) => return *retry_refused(error),
    };
    if check || !migration.plan().refused.is_empty() {
        return OwnerReply::Operated { result: plan_json(migration.plan()) };
    }
    match migration.perform().await.map_err(MoveError::from) {
        Ok(plan) => OwnerReply::Operated { result: plan_json(&plan) },
        Err(MoveError::Refused(plan)) => OwnerReply::Operated { result: plan_json(&*plan) },
        Err(MoveError::Prepare(error)) => *retry_refused(error),
    }
}

/// Returns the JSON form of a plan.
fn plan_json(plan: &impl Serialize) -> Json {
    serde_json::to_value(plan).map(Json::from).unwrap_or_default()
}

fn not_accepted(error: StartError) -> Box<OwnerReply> {
    let code = match &error {
        StartError::Open(OpenError::Unknown(_)) => "run_not_found",
        StartError::Open(OpenError::Driven(_)) => "run_driven",
        StartError::Renewed(_) => "invalid_flow",
        _ => "not_accepted",
    };
    Box::new(refusal(code, &error))
}

fn retry_refused(error: RetryError) -> Box<OwnerReply> {
    match error {
        RetryError::Start(error) => not_accepted(error),
        RetryError::Version(error @ NoVersion::Session) => Box::new(refusal("session_run", &error)),
        RetryError::Version(error) => Box::new(refusal("flow_not_found", &error)),
    }
}

/// Returns the refusal of a retry. If the new run is driven already, the caller follows it. If the repeated run is
/// driven, there is nothing to follow, so the refusal has another code.
fn repeat_refused(error: RetryError, repeated: &RunId) -> Box<OwnerReply> {
    match &error {
        RetryError::Start(StartError::Open(OpenError::Driven(run))) if run == repeated => {
            Box::new(refusal("repeats_driven", &error))
        }
        _ => retry_refused(error),
    }
}

/// Prepares a run. `version` and `renames` are those of a retry in another version of its flow.
fn prepare(
    host: &Host,
    ask: OwnerRequest,
    version: Option<FlowVersion>,
    renames: Renames,
) -> Result<FlowRunner, Box<OwnerReply>> {
    match ask {
        OwnerRequest::Start { flow, input, run, total_timeout_ms, answers, labels, follow, .. } => {
            let flow = blocking(|| host.load_flow(&flow)).map_err(|error| match error {
                LoadError::Host(_) => Box::new(refusal("flow_not_found", &error)),
                LoadError::Invalid(_) => Box::new(refusal("invalid_flow", &error)),
            })?;
            let policy = PolicyOverride { total_timeout_ms, ..PolicyOverride::default() };
            let answers = answers.into_iter().collect();
            let patience = (!follow).then_some(MAX_TIMER_WAIT);
            let options = RunOptions { run_id: run, input, policy, answers, labels, patience, ..handed_over_options() };
            host.runner(&flow, options).map_err(not_accepted)
        }
        OwnerRequest::Resume { run, .. } => {
            blocking(|| host.resume(&run, RunOptions { by_hand: true, ..handed_over_options() })).map_err(not_accepted)
        }
        OwnerRequest::Retry { run, from, keep_answers, new, answers, .. } => {
            let repeat = Repeat { from: from.as_deref().map(NodeId::from), keep_answers, renames };
            let answers = answers.into_iter().collect();
            let options = RunOptions { run_id: new, answers, ..handed_over_options() };
            blocking(|| versions::retry(host, &run, version, repeat, options))
                .map_err(|error| repeat_refused(error, &run))
        }
        _ => Err(Box::new(refusal("bad_request", &"this command starts no run"))),
    }
}

/// Prepares a run of an agentic flow.
async fn prepare_session(host: &Host, ask: OwnerRequest) -> Result<FlowRunner, Box<OwnerReply>> {
    let OwnerRequest::Flow { flow, prefix, args, delete, total_timeout_ms, .. } = ask else {
        return Err(Box::new(refusal("bad_request", &"this command starts no run")));
    };
    let not_accepted = |error: SessionError| Box::new(refusal("not_accepted", &error));
    let session = blocking(|| host.flow_session(&flow, &prefix)).map_err(not_accepted)?;
    let policy = PolicyOverride { total_timeout_ms, ..PolicyOverride::default() };
    match session.open(args, delete, RunOptions { policy, ..handed_over_options() }).await.map_err(not_accepted)? {
        Opened::Run(runner) => Ok(*runner),
        Opened::Busy => Err(Box::new(refusal("flow_busy", &"another run of this flow and prefix is in progress"))),
    }
}

fn handed_over_options() -> RunOptions {
    RunOptions { without_events: true, ..RunOptions::default() }
}

/// A driver for a process that was started for one run of its own. Of the runs that other processes hand over, it
/// drives those whose callers follow the events. It only stores the others.
pub struct HandedOverRuns {
    host: Host,
    /// The runtime that also drives the process's own run. If each run had a runtime, the end of one would break what it
    /// shares with the others, such as a connection.
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// The handed-over runs. `None` means that the last try to resume the run failed. [`Driver::notify_ready`] removes the
    /// ended runs from this map. It resumes the parked runs, and those with `None`.
    runs: HashMap<RunId, Option<HandedOver>>,
}

/// A run that the runtime drives.
struct HandedOver {
    hub: Hub,
    /// The task that drives the run. It returns true if the run has ended, and false if the run has parked.
    driving: JoinHandle<bool>,
}

impl HandedOverRuns {
    /// Creates a driver without runs. The runtime drives its tasks until [`HandedOverRuns::stop`] has returned.
    pub fn new(host: Host, runtime: Handle) -> Arc<HandedOverRuns> {
        Arc::new(HandedOverRuns { host, runtime, state: Mutex::default() })
    }

    /// Parks all handed-over runs, due at once, and returns when they are parked. Later handovers are refused.
    pub async fn stop(&self) {
        let driven: Vec<_> = {
            let mut state = self.state.lock();
            state.closed = true;
            state.runs.drain().filter_map(|(_, run)| run).collect()
        };
        let parked = driven.into_iter().map(|HandedOver { hub, driving }| async move {
            hub.stop().await;
            // The result of the run is already in the store.
            let _ = driving.await;
        });
        join_all(parked).await;
    }

    /// Drives a run until it ends or parks.
    fn drive(&self, runner: FlowRunner) -> Result<(), AdmitError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(AdmitError::Closed);
        }
        let (run, hub) = (runner.run_id().clone(), runner.hub());
        runner.start_session();
        let driving = self.runtime.spawn(async move {
            let ended = runner.run().await;
            !matches!(ended.status, RunStatus::Parked | RunStatus::NeedsAttention)
        });
        state.runs.insert(run, Some(HandedOver { hub, driving }));
        Ok(())
    }
}

impl Driver for HandedOverRuns {
    fn notify_ready(&self) {
        let resting: Vec<_> = {
            let mut state = self.state.lock();
            let is_over = |run: &HandedOver| run.driving.is_finished();
            let over = state.runs.iter().filter(|(_, run)| run.as_ref().is_none_or(is_over));
            let over: Vec<_> = over.map(|(run, _)| run.clone()).collect();
            let rests = |run: &RunId| {
                let over = state.runs.remove(run).flatten().map(|run| run.driving.now_or_never());
                // A driver that has panicked does not drive its run again.
                over.is_none_or(|ended| matches!(ended, Some(Ok(false))))
            };
            over.into_iter().filter(rests).collect()
        };
        for run in resting {
            match self.host.resume(&run, handed_over_options()).map(|runner| self.drive(runner)) {
                Ok(Ok(())) => {}
                // The next call of `notify_ready` tries it again.
                Ok(Err(_)) | Err(_) => _ = self.state.lock().runs.insert(run, None),
            }
        }
    }

    fn admit(&self, mut runner: FlowRunner, follows: bool) -> BoxFuture<'static, Result<(), AdmitError>> {
        if !follows {
            return Box::pin(async move { Ok(runner.accept().await?) });
        }
        let begun = FirstEvent::watch(&mut runner);
        let entered = self.drive(runner);
        Box::pin(async move {
            entered?;
            match begun.wait_until_stored().await {
                // The process ends before it has begun the run.
                Err(AdmitError::Undriven) => Err(AdmitError::Closed),
                begun => begun,
            }
        })
    }
}
