//! Keeps the state of an agentic flow's steps between runs. Each step has a session: its conversation and its state in
//! the store. A prefix, which the caller chooses, is part of the sessions' ids. So runs under the same prefix continue
//! the same sessions.
//!
//! | state of the earlier run under this prefix | next run |
//! |---|---|
//! | it is being driven | none: the caller can read the states of the steps |
//! | it has not ended | continues the earlier run |
//! | it left failed steps without a handler, or postponed steps | a new run begins with those steps; with `resume_on_failure: false` only with postponed ones |
//! | all steps have completed | a new run begins with the first step; the agents keep their sessions |
//!
//! | module | contents |
//! |---|---|
//! | envelope | the steps of a flow with their results, grouped by status |

mod envelope;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use flowcell_contract::{Json, RunId, Value};
use flowcell_flow::{
    Begin, Diagnostic, Start,
    agentic::{
        FlowLabel, Postponed, SESSION_PREFIX_BYTES, flow_label, is_session_prefix, postponed_step, resume_input,
        session_id, state_key,
    },
};
pub use flowcell_runtime::ports::{Session, Sessions, StepState, StepStatus};
use flowcell_runtime::{
    FlowRunner, OpenError, RunCommand, RunOptions,
    fact::Write,
    ports::{Change, StoreError},
};

pub use self::envelope::{Envelope, StepLine};
use crate::host::{
    Host,
    error::{LoadError, StartError},
    loaded::LoadedFlow,
    loading,
};

/// An error of a flow's session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The flow cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The flow has changed, so a new run cannot continue with the steps that the last run left unfinished.
    #[error("the flow cannot continue its last run: {0}")]
    Left(LoadError),
    /// The run cannot start or continue.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The prefix is invalid.
    #[error("`{0}` is not a prefix: use 1 to {SESSION_PREFIX_BYTES} letters, digits, and - _ .")]
    Prefix(String),
    /// The flow takes its prefix from an argument, which is missing, null, a list or an object.
    #[error("the flow's session prefix is `${{{0}}}`, and this argument is not a text, a number or a boolean")]
    PrefixArgument(String),
    /// The flow is not agentic.
    #[error("{} is not an agentic flow: it has no `flow.steps`", .0.display())]
    Dialect(PathBuf),
    /// A session id of the flow already belongs to another flow or prefix.
    #[error("the session `{session}` belongs to another flow or prefix, whose first session is `{root}`")]
    Taken {
        /// The id of the session.
        session: String,
        /// The session of the first step of the flow that already uses this id.
        root: String,
    },
    /// A run under the prefix is being driven, so its sessions and states cannot be removed.
    #[error("the run `{0}` of this prefix is in progress, so its sessions cannot be deleted")]
    Driven(RunId),
}

impl From<OpenError> for SessionError {
    fn from(error: OpenError) -> SessionError {
        SessionError::Start(error.into())
    }
}

/// An agentic flow under one prefix.
pub struct FlowSession {
    host: Host,
    path: PathBuf,
    flow: LoadedFlow,
    label: FlowLabel,
    prefix: String,
    root: String,
    warnings: Vec<Diagnostic>,
}

/// The result of [`FlowSession::open`].
pub enum Opened {
    /// A run that starts or continues.
    Run(Box<FlowRunner>),
    /// The earlier run under the prefix is being driven, so no run begins.
    Busy,
}

/// The earlier run under the same prefix.
enum Earlier {
    None,
    Driven(RunId),
    Unfinished(RunId),
    Ended(RunId),
}

/// Performs [`Host::flow_session`].
pub(crate) fn load(host: &Host, path: &Path, prefix: &str) -> Result<FlowSession, SessionError> {
    if !is_session_prefix(prefix) {
        return Err(SessionError::Prefix(prefix.to_owned()));
    }
    let path = path.to_owned();
    let start = Start { begin: Begin::First, prefix: Some(prefix.to_owned()) };
    let (flow, warnings) = loading::load_flow_as(host, &path, &start)?;
    let Some(label) = flow_label(flow.graph()) else { return Err(SessionError::Dialect(path)) };
    flow.check_enabled()?;
    let root = session_id(prefix, flow.name(), &label.first);
    Ok(FlowSession { host: host.clone(), path, flow, label, prefix: prefix.to_owned(), root, warnings })
}

impl FlowSession {
    /// Returns the loaded flow.
    pub fn flow(&self) -> &LoadedFlow {
        &self.flow
    }

    /// Returns the prefix of the sessions.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the session of the first step, which is the root of the tree of sessions.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns this flow under the prefix that it names itself, for a run with these arguments, and `self` if it names
    /// none.
    pub fn with_own_prefix(self, args: &Json) -> Result<FlowSession, SessionError> {
        let Some(own) = &self.label.own_prefix else { return Ok(self) };
        let prefix = own.of(args).map_err(SessionError::PrefixArgument)?;
        load(&self.host, &self.path, &prefix)
    }

    /// Returns the warnings of the flow's check.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Reads the states of the flow's steps from the store `of`, and returns them grouped by status.
    pub fn envelope(&self, of: &dyn Sessions) -> Result<Envelope, StoreError> {
        let states = of.states(self.host.tenant(), &self.root)?;
        Ok(Envelope::new(self.flow.name(), &self.root, &self.label, states))
    }

    /// Starts a run with the arguments `args`. If the earlier run under this prefix is being driven, the method
    /// returns [`Opened::Busy`]. If it is not driven and has not ended, the method continues the earlier run
    /// instead. If the earlier run has ended and left unfinished steps, the new run begins with these steps, with
    /// the arguments of the flow's first step in the earlier run. With `delete`, an earlier run that is being
    /// driven is an error, any other unfinished earlier run is cancelled, the new run begins with the first step,
    /// and its first write removes the sessions and states of the flow under the prefix.
    pub async fn open(&self, args: Json, delete: bool, options: RunOptions) -> Result<Opened, SessionError> {
        self.check_ids()?;
        let begun = match self.find_earlier()? {
            Earlier::Driven(run) if delete => return Err(SessionError::Driven(run)),
            Earlier::Driven(_) => return Ok(Opened::Busy),
            Earlier::Unfinished(run) if delete => {
                self.cancel(&run).await?;
                self.new_run(args, delete, Some(&run), options)
            }
            Earlier::Unfinished(run) => {
                self.host.resume(&run, RunOptions { by_hand: true, ..options }).map_err(SessionError::from)
            }
            Earlier::Ended(run) if !delete => {
                let states = self.host.sessions().states(self.host.tenant(), &self.root)?;
                match self.unfinished_steps(&states)? {
                    left if left.is_empty() => self.new_run(args, delete, Some(&run), options),
                    left => {
                        self.run_of_unfinished_steps(&first_arguments(&states, &self.root, args), &left, &run, options)
                    }
                }
            }
            Earlier::Ended(run) => self.new_run(args, delete, Some(&run), options),
            Earlier::None => self.new_run(args, delete, None, options),
        };
        match begun {
            Ok(runner) => Ok(Opened::Run(Box::new(runner))),
            Err(SessionError::Start(StartError::Open(OpenError::Driven(_)))) => Ok(Opened::Busy),
            Err(error) => Err(error),
        }
    }

    /// Checks that the session ids belong to no other flow or prefix. Prefix `a-b` with flow `c` gives the same id as
    /// prefix `a` with flow `b-c`. The flow that has used an id first keeps it.
    fn check_ids(&self) -> Result<(), SessionError> {
        let (sessions, tenant) = (self.host.sessions(), self.host.tenant().clone());
        for step in &self.label.steps {
            let id = session_id(&self.prefix, self.flow.name(), step);
            if let Some(found) = sessions.session(&tenant, &id)?.filter(|found| found.root != self.root) {
                return Err(SessionError::Taken { session: id, root: found.root });
            }
        }
        let states = sessions.states(&tenant, &self.root)?;
        match states.into_iter().find(|state| state.flow != self.flow.name()) {
            Some(state) => Err(SessionError::Taken { session: state.session, root: state.root }),
            None => Ok(()),
        }
    }

    fn find_earlier(&self) -> Result<Earlier, SessionError> {
        let tenant = self.host.tenant().clone();
        let Some(Session { run, .. }) = self.host.sessions().session(&tenant, &self.root)? else {
            return Ok(Earlier::None);
        };
        let row = self.host.runs().map(|runs| runs.run(&tenant, &run)).transpose()?.flatten();
        if row.is_some_and(|(row, _)| row.status == "removed") {
            return Ok(Earlier::Ended(run));
        }
        match self.host.resume(&run, RunOptions::default()) {
            Ok(runner) if runner.ended().is_some() => Ok(Earlier::Ended(run)),
            Ok(_) => Ok(Earlier::Unfinished(run)),
            Err(StartError::Open(OpenError::Driven(_))) => Ok(Earlier::Driven(run)),
            Err(StartError::Open(OpenError::Unknown(_))) => Ok(Earlier::Ended(run)),
            Err(error) => Err(error.into()),
        }
    }

    async fn cancel(&self, run: &RunId) -> Result<(), SessionError> {
        // A run that has ended meanwhile needs no cancelling.
        let _ = self.host.resume(run, RunOptions::default())?.ask(RunCommand::Cancel).await;
        let options = RunOptions { by_hand: true, without_events: true, ..RunOptions::default() };
        self.host.resume(run, options)?.run().await;
        Ok(())
    }

    /// Prepares a run that begins with the first step.
    fn new_run(
        &self,
        args: Json,
        delete: bool,
        before: Option<&RunId>,
        options: RunOptions,
    ) -> Result<FlowRunner, SessionError> {
        let root = self.root.clone();
        let rows = vec![if delete { Change::Clear { root } } else { Change::Renew { root } }];
        let writes = if delete { self.emptying_writes()? } else { Vec::new() };
        let run_id = Some(self.next_run_id(before)?);
        let options = RunOptions { run_id, input: args, rows, writes, ..options };
        Ok(self.host.runner(&self.flow, options)?)
    }

    /// Prepares a run that begins with the steps that the last run left unfinished.
    fn run_of_unfinished_steps(
        &self,
        initial: &Json,
        left: &[Postponed],
        before: &RunId,
        options: RunOptions,
    ) -> Result<FlowRunner, SessionError> {
        let steps = left.iter().map(|left| left.step.clone()).collect();
        let start = Start { begin: Begin::At(steps), prefix: Some(self.prefix.clone()) };
        let (flow, _) = loading::load_flow_as(&self.host, &self.path, &start).map_err(SessionError::Left)?;
        let run_id = Some(self.next_run_id(Some(before))?);
        Ok(self.host.runner(&flow, RunOptions { run_id, input: resume_input(initial, left), ..options })?)
    }

    /// Returns the steps that the last run left unfinished: postponed steps, and failed steps without a handler unless
    /// the flow has `resume_on_failure: false`.
    fn unfinished_steps(&self, states: &[StepState]) -> Result<Vec<Postponed>, StoreError> {
        let sessions = self.host.sessions().sessions(self.host.tenant(), &self.root)?;
        let is_left = |state: &&StepState| match state.status {
            StepStatus::Postponed => true,
            StepStatus::Failed => !self.label.restarts && !self.label.handled.contains(&state.step),
            StepStatus::Running | StepStatus::Completed => false,
        };
        let before = |state: &StepState| {
            let parent = sessions.iter().find(|session| session.id == state.session)?.parent.as_ref()?;
            states.iter().find(|state| state.session == *parent)
        };
        let left = |state: &StepState| {
            let before = before(state).map(|before| {
                let output = before.output.as_deref().unwrap_or_default();
                (before.step.as_str(), output, before.status == StepStatus::Failed)
            });
            postponed_step(&state.step, state.args.clone(), before)
        };
        Ok(states.iter().filter(is_left).map(left).collect())
    }

    /// Returns the id of the next run under the prefix. It ends with a number: the number in the id of the run `before`
    /// plus one, or 1 if `before` is `None`. Concurrent callers get the same id, so that only one run begins. If the id
    /// of `before` does not end with such a number, as after a retry, the first unused id is returned.
    fn next_run_id(&self, before: Option<&RunId>) -> Result<RunId, StoreError> {
        let nth = |count: u64| RunId::from(format!("{}:{count}", self.root));
        let Some(before) = before else { return Ok(nth(1)) };
        let count = before.as_str().strip_prefix(&*self.root).and_then(|rest| rest.strip_prefix(':')?.parse().ok());
        if let Some(count) = count {
            return Ok(nth(u64::saturating_add(count, 1)));
        }
        let mut count = 1;
        while self.host.knows(&nth(count))? {
            count += 1;
        }
        Ok(nth(count))
    }

    /// Returns writes that empty the conversations of the flow's sessions under this prefix.
    fn emptying_writes(&self) -> Result<Vec<Write>, StoreError> {
        let name = self.flow.name();
        let states = self.host.sessions().states(self.host.tenant(), &self.root)?;
        let steps: BTreeSet<&str> =
            self.label.steps.iter().map(String::as_str).chain(states.iter().map(|state| state.step.as_str())).collect();
        let mut writes = Vec::new();
        for step in steps {
            let key = state_key(&self.prefix, name, step);
            if self.host.state(name, &key)?.is_some() {
                writes.push(Write { key, value: Value::from(Json::array([])), expected: None });
            }
        }
        Ok(writes)
    }
}

/// Returns the arguments that the flow's first step got, or `given` if the store has no state of that step.
fn first_arguments(states: &[StepState], root: &str, given: Json) -> Json {
    states.iter().find(|state| state.session == root).map_or(given, |state| state.args.clone())
}
