//! Runs that another process hands over: begun, resumed or repeated by the owner of the store.

use std::{
    collections::HashMap,
    sync::Arc,
    thread::{self, JoinHandle},
};

use flowcell_contract::{NodeId, RunId, Tenant};
use flowcell_runtime::{FlowRunner, OpenError, PolicyOverride, Repeat, RunOptions, RunStatus};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::{Ask, Told, refused};
use crate::{
    Host, LoadError, StartError,
    control::Reach,
    drive::{
        driving::{Entered, Entrance},
        sessions::{Opened, SessionError},
    },
    host::blocking::blocking,
};

/// Who drives the runs of the process that owns a store.
pub trait Driver: Send + Sync {
    /// A run that nobody drives may be able to move.
    fn moved(&self);

    /// Drives a run that was handed over and is on stable storage. A refusal says why it is not driven.
    fn drive(&self, runner: FlowRunner) -> BoxFuture<'static, Result<(), String>>;
}

/// A drive that takes in what is handed over, and is told when something moves.
pub struct Driven {
    /// Where runs come in.
    pub entrance: Entrance,
    /// What wakes the drive.
    pub moved: Arc<tokio::sync::Notify>,
}

impl Driver for Driven {
    fn moved(&self) {
        self.moved.notify_one();
    }

    fn drive(&self, runner: FlowRunner) -> BoxFuture<'static, Result<(), String>> {
        let entrance = self.entrance.clone();
        Box::pin(async move {
            match entrance.enter(Tenant::local(), runner).await {
                Ok(Entered::Begun | Entered::Driven | Entered::Waits(_)) => Ok(()),
                Ok(Entered::Full) => Err("too many runs wait for their turn already".into()),
                Ok(Entered::Closed) => Err("the process is about to end".into()),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

/// Does what is asked about a run that is to begin or to go on.
pub(super) async fn begin(host: &Host, owner: &dyn Driver, reach: &Reach, ask: Ask) -> Told {
    let (Ask::Start { reach: asked, .. }
    | Ask::Flow { reach: asked, .. }
    | Ask::Resume { reach: asked, .. }
    | Ask::Retry { reach: asked, .. }) = &ask
    else {
        return refused("bad_request", &"nothing is to begin");
    };
    let lacking = asked.lacking(reach);
    if !lacking.is_empty() {
        let why = format!("the process that owns the store cannot run this: {}", lacking.join(", "));
        return refused("option_lacking", &why);
    }
    let driven = !matches!(&ask, Ask::Start { follow: false, .. });
    let prepared = match ask {
        Ask::Flow { .. } => prepare_session(host, ask).await,
        _ => prepare(host, ask),
    };
    let runner = match prepared {
        Ok(runner) => runner,
        Err(told) => return *told,
    };
    let run = runner.run_id().clone();
    if runner.ended().is_some() {
        return Told::Done { run };
    }
    // What was told to be accepted outlives this process.
    let new = runner.is_new() || !driven;
    let runner = match new {
        true => match runner.accept().await {
            Ok(()) => driven.then(|| host.resume(&run, options())),
            Err(error) => return refused("not_accepted", &error),
        },
        false => Some(Ok(runner)),
    };
    let begun = match runner {
        // Whoever looks for work has found it already, or finds it later.
        None | Some(Err(StartError::Open(OpenError::Driven(_)))) => Ok(()),
        Some(Ok(runner)) => owner.drive(runner).await,
        Some(Err(error)) => Err(error.to_string()),
    };
    match begun {
        Ok(()) => Told::Done { run },
        Err(why) => refused("not_accepted", &why),
    }
}

fn prepare(host: &Host, ask: Ask) -> Result<FlowRunner, Box<Told>> {
    let not_accepted = |error: StartError| {
        let code = match &error {
            StartError::Open(OpenError::Unknown(_)) => "run_not_found",
            StartError::Open(OpenError::Driven(_)) => "run_driven",
            StartError::Renewed(_) => "invalid_flow",
            _ => "not_accepted",
        };
        Box::new(refused(code, &error))
    };
    match ask {
        Ask::Start { flow, input, run, total_timeout_ms, answers, .. } => {
            let flow = blocking(|| host.load_flow(&flow)).map_err(|error| match error {
                LoadError::Host(_) => Box::new(refused("flow_not_found", &error)),
                LoadError::Invalid(_) => Box::new(refused("invalid_flow", &error)),
            })?;
            let policy = PolicyOverride { total_timeout_ms, ..PolicyOverride::default() };
            let answers = answers.into_iter().collect();
            let options = RunOptions { session_id: run, input, policy, answers, ..options() };
            host.runner(&flow, options).map_err(not_accepted)
        }
        Ask::Resume { run, .. } => {
            blocking(|| host.resume(&run, RunOptions { by_hand: true, ..options() })).map_err(not_accepted)
        }
        Ask::Retry { run, from, keep_answers, new, answers, .. } => {
            let repeat = Repeat { from: from.as_deref().map(NodeId::from), keep_answers };
            let answers = answers.into_iter().collect();
            let options = RunOptions { session_id: new, answers, ..options() };
            blocking(|| host.again(&run, repeat, options)).map_err(not_accepted)
        }
        _ => Err(Box::new(refused("bad_request", &"nothing is to begin"))),
    }
}

/// Prepares a run of a flow of agents.
async fn prepare_session(host: &Host, ask: Ask) -> Result<FlowRunner, Box<Told>> {
    let Ask::Flow { flow, prefix, args, delete, total_timeout_ms, .. } = ask else {
        return Err(Box::new(refused("bad_request", &"nothing is to begin")));
    };
    let not_accepted = |error: SessionError| Box::new(refused("not_accepted", &error));
    let session = blocking(|| host.flow_session(&flow, &prefix)).map_err(not_accepted)?;
    let policy = PolicyOverride { total_timeout_ms, ..PolicyOverride::default() };
    match session.open(args, delete, RunOptions { policy, ..options() }).await.map_err(not_accepted)? {
        Opened::Run(runner) => Ok(*runner),
        Opened::Busy => Err(Box::new(refused("flow_busy", &"a run of this flow and prefix is being driven"))),
    }
}

fn options() -> RunOptions {
    RunOptions { without_events: true, ..RunOptions::default() }
}

/// Drives nothing but the runs that are handed over, for a process that is there for another run.
pub struct Guests {
    host: Host,
    runs: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// The runs that were handed over and have not ended, with the threads that drive them.
    threads: HashMap<RunId, Option<JoinHandle<bool>>>,
}

impl Guests {
    /// A process that drives no guests yet.
    pub fn new(host: Host) -> Arc<Guests> {
        Arc::new(Guests { host, runs: Mutex::default() })
    }

    /// Puts every guest down where it is. What is handed over from now on is refused.
    pub fn stop(&self) {
        let threads: Vec<_> = {
            let mut state = self.runs.lock();
            state.closed = true;
            state.threads.drain().collect()
        };
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
        for (run, thread) in threads {
            if let Some(hub) = self.host.hubs().get(self.host.tenant(), &run) {
                runtime.block_on(hub.stop());
            }
            // What a guest's thread has come to is in the store.
            let _ = thread.map(JoinHandle::join);
        }
    }

    /// Drives a run on a thread of its own, until it ends or rests.
    fn begin(&self, runner: FlowRunner) -> Result<(), String> {
        let mut state = self.runs.lock();
        if state.closed {
            return Err("the process is about to end".into());
        }
        let run = runner.run_id().clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runner.start_session();
        let drive = move || {
            let ended = runtime.block_on(runner.run());
            runtime.shutdown_background();
            !matches!(ended.status, RunStatus::Parked | RunStatus::NeedsAttention)
        };
        let thread = thread::Builder::new().name("guest".into()).spawn(drive);
        state.threads.insert(run, Some(thread.map_err(|error| error.to_string())?));
        Ok(())
    }
}

impl Driver for Guests {
    fn moved(&self) {
        let resting: Vec<_> = {
            let mut state = self.runs.lock();
            let is_over = |thread: &JoinHandle<bool>| thread.is_finished();
            let over = state.threads.iter().filter(|(_, thread)| thread.as_ref().is_none_or(is_over));
            let over: Vec<_> = over.map(|(run, _)| run.clone()).collect();
            let rests = |run: &RunId| {
                let thread = state.threads.remove(run).flatten();
                thread.is_none_or(|thread| !thread.join().unwrap_or(true))
            };
            over.into_iter().filter(rests).collect()
        };
        for run in resting {
            match self.host.resume(&run, options()).map(|runner| self.begin(runner)) {
                Ok(Ok(())) => {}
                // It is looked at again when something else moves.
                Ok(Err(_)) | Err(_) => _ = self.runs.lock().threads.insert(run, None),
            }
        }
    }

    fn drive(&self, runner: FlowRunner) -> BoxFuture<'static, Result<(), String>> {
        let begun = self.begin(runner);
        Box::pin(std::future::ready(begun))
    }
}
