//! The hub of a run: takes commands, and publishes events.

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flowcell_contract::{Failure, Json, Outgoing, RunId, Tenant, Value};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::{
    call_log::Reply,
    command::{HubError, RunCommand},
    decide::Input,
    event::{Event, LiveEvent},
    fact::{CallRecord, Resolution, TaskKey},
    limits::MAX_QUEUED_COMMANDS,
    live::LivePermit,
    question::QuestionRef,
    result::{Idle, RunResult, Waiting},
};

/// A command to the driver of a run.
pub(crate) enum Command {
    Run(RunCommand, oneshot::Sender<Result<(), HubError>>),
    /// A command from a message in the store's inbox: the number of the message, the command, and the sender of the
    /// outcome. The driver applies each message once, even if the message is delivered several times.
    Deliver(u64, RunCommand, oneshot::Sender<Result<(), HubError>>),
    /// An input of the deciders.
    Input(Box<Input>),
    /// An attempt makes a call that leaves the host.
    Call {
        task: TaskKey,
        attempt: (u32, u32),
        record: Box<CallRecord>,
        outgoing: Box<Outgoing>,
        /// The reply that an earlier attempt has recorded.
        reply: Option<Reply>,
    },
    /// A repeated attempt has reached a call without a recorded end.
    CallAgain {
        task: TaskKey,
        attempt: u32,
        ordinal: u32,
        outgoing: Box<Outgoing>,
    },
    /// An attempt waits only for people, at most until `due` (milliseconds since 1970).
    AttemptIdle {
        task: TaskKey,
        attempt: (u32, u32),
        due: Option<u64>,
        /// The number of arrivals for the attempt (replies, inbox entries, closed questions) when it began to wait.
        heard: u64,
    },
    /// A part of a reply whose call is still in progress, for watchers.
    Live {
        task: TaskKey,
        kind: Box<str>,
        members: Json,
    },
    /// Attaches a channel. `to_child`: the parent run passes on one of its channels, which has started already.
    Attach {
        channel: Arc<dyn Channel>,
        to_child: bool,
    },
    /// No caller that could answer questions is connected to the run.
    Unattended,
    /// The process is about to end.
    Stop,
    /// Requests a reply when all events so far are published.
    Settle(oneshot::Sender<Result<(), HubError>>),
    /// Requests the people and events that the run and its child runs wait for; `None` while a child run is busy.
    Waiting(oneshot::Sender<Option<Vec<Waiting>>>),
    ChildEnded {
        task: TaskKey,
        attempt: u32,
        result: Result<Value, Failure>,
    },
    /// The driver of a run that a task calls has panicked, with this payload.
    ChildPanicked(Box<dyn Any + Send>),
    /// A run that a task calls has a live permit, or will get none.
    ChildPermit {
        task: TaskKey,
        attempt: u32,
        permit: Result<LivePermit, Failure>,
    },
    /// A child run has become idle after this number of commands that the calling run has confirmed.
    ChildIdle {
        task: TaskKey,
        idle: Idle,
        confirmed: u64,
    },
    /// The run that called this one confirms that one more command has come.
    Confirm,
}

/// A front end of a run. The driver calls its methods in order and waits for them, so they must return quickly. A
/// panic or an error in them does not affect the run.
pub trait Channel: Send + Sync {
    /// Called before the run begins.
    fn on_start(&self, _hub: &Hub) {}

    /// Receives an event of this run or of a child run.
    fn on_event(&self, event: &Event);

    /// Receives a part of a result in progress, such as text of a model. Such parts are never recorded and never
    /// repeated.
    fn on_live(&self, _event: &LiveEvent) {}

    /// Called when the run has ended or is parked.
    fn on_complete(&self, _result: &RunResult) {}
}

/// The sender of commands to one run. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    run_id: RunId,
    commands: mpsc::Sender<Command>,
    session: Arc<AtomicBool>,
}

/// The hubs of the runs that this process drives.
#[derive(Default)]
pub struct Hubs(Mutex<HashMap<(Tenant, RunId), Hub>>);

impl Hubs {
    /// Returns the hub of a run, if this process drives it.
    pub fn get(&self, tenant: &Tenant, run: &RunId) -> Option<Hub> {
        self.0.lock().get(&(tenant.clone(), run.clone())).cloned()
    }

    /// Counts the runs of a tenant that this process drives.
    pub fn count(&self, tenant: &Tenant) -> usize {
        self.0.lock().keys().filter(|(owner, _)| owner == tenant).count()
    }

    /// Returns true if this process drives at most one run.
    pub(crate) fn is_lonely(&self) -> bool {
        self.0.lock().len() < 2
    }

    /// Lists a hub until the caller drops the returned value.
    pub(crate) fn enter(self: &Arc<Hubs>, tenant: &Tenant, hub: &Hub) -> HubListing {
        let key = (tenant.clone(), hub.run_id.clone());
        self.0.lock().insert(key.clone(), hub.clone());
        HubListing(self.clone(), key)
    }
}

/// Keeps a hub in the list until this value is dropped.
pub(crate) struct HubListing(Arc<Hubs>, (Tenant, RunId));

impl Drop for HubListing {
    fn drop(&mut self) {
        self.0.0.lock().remove(&self.1);
    }
}

impl Hub {
    pub(crate) fn new(run_id: RunId, commands: mpsc::Sender<Command>) -> Hub {
        Hub { run_id, commands, session: Arc::default() }
    }

    /// Creates the hub of a run that another process drives. The returned future passes each command to `ask`, which
    /// sends it to that process. The future ends when all hubs are dropped, or at a request to stop.
    pub fn remote<F: Future<Output = Result<(), HubError>>>(
        run_id: RunId,
        ask: impl Fn(RunCommand) -> F,
    ) -> (Hub, impl Future<Output = ()>) {
        let (sender, mut commands) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let hub = Hub::new(run_id, sender);
        hub.start_session();
        let forward = async move {
            while let Some(command) = commands.recv().await {
                match command {
                    // The caller may have disconnected.
                    Command::Run(command, answer) => _ = answer.send(ask(command).await),
                    Command::Settle(answer) => _ = answer.send(Ok(())),
                    Command::Stop => return,
                    _ => {}
                }
            }
        };
        (hub, forward)
    }

    /// Returns the id of the run.
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// Allows commands to this run. Before this call, the hub refuses them.
    pub fn start_session(&self) {
        self.session.store(true, Ordering::Release);
    }

    /// Sends a message to the run (`session:message`).
    pub async fn send(&self, content: Json) -> Result<(), HubError> {
        self.request(RunCommand::Send { content: Value::from(content) }).await
    }

    /// Answers a question, named by the address of the node that asks: `approve`, or `process[3].approve`. In a child
    /// run it is `review/approve`, where `review` is the node that called the child. `answer` is `{ "content",
    /// "choice"? }`.
    pub async fn reply(&self, gate: &str, answer: Json) -> Result<(), HubError> {
        self.reply_to(gate, answer, QuestionRef::default()).await
    }

    /// Answers one specific question. If another question is open at the address, the run refuses the answer.
    pub async fn reply_to(&self, gate: &str, answer: Json, question: QuestionRef) -> Result<(), HubError> {
        self.request(RunCommand::Reply { gate: gate.to_owned(), answer, question }).await
    }

    /// Sends a named event. The event wakes every task that waits for it. If no task waits, the run keeps the event for
    /// a later wait.
    pub async fn emit(&self, name: &str, payload: Json) -> Result<(), HubError> {
        self.request(RunCommand::Emit { name: name.to_owned(), payload: Value::from(payload) }).await
    }

    /// Decides how a blocked task continues. `task` is its address.
    pub async fn resolve(&self, task: &str, resolution: Resolution) -> Result<(), HubError> {
        self.request(RunCommand::Resolve { task: task.to_owned(), resolution }).await
    }

    /// Writes to an agent run, named by its id; in a child run `review/agent-…`.
    ///
    /// The message is accepted when it is on stable storage. A message with an id that the agent run already has is
    /// accepted, and not delivered again.
    pub async fn send_to_run(&self, agent_run: &str, message: Option<&str>, content: Json) -> Result<(), HubError> {
        let (to, message) = (agent_run.to_owned(), message.map(str::to_owned));
        self.request(RunCommand::Write { to, message, value: Value::from(content) }).await
    }

    /// Writes to the latest open agent run of a node, named by the address of the node.
    pub async fn send_to(&self, node: &str, message: Option<&str>, content: Json) -> Result<(), HubError> {
        self.send_to_run(node, message, content).await
    }

    /// Asks an agent run to finish.
    pub async fn close_run(&self, agent_run: &str) -> Result<(), HubError> {
        self.request(RunCommand::CloseAgent { to: agent_run.to_owned() }).await
    }

    /// Cancels the run.
    pub async fn abort(&self) -> Result<(), HubError> {
        self.request(RunCommand::Cancel).await
    }

    /// Stops driving the run in an orderly way, before its process ends. The driver waits up to
    /// [`CALL_GRACE_MS`](crate::limits::CALL_GRACE_MS) for calls that have left, and parks the run for another
    /// process.
    pub async fn stop(&self) {
        // A run that has ended needs no request to stop.
        let _ = self.commands.send(Command::Stop).await;
    }

    /// Sends a command to the run, and waits for the outcome.
    pub async fn request(&self, command: RunCommand) -> Result<(), HubError> {
        if !self.session.load(Ordering::Acquire) {
            return Err(HubError::SessionNotStarted);
        }
        if command.is_too_large() {
            return Err(HubError::TooLarge);
        }
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.send(Command::Run(command, answer)).await;
        sent.map_err(|_| HubError::RunEnded)?;
        answered.await.unwrap_or(Err(HubError::RunEnded))
    }

    /// Delivers a message of the store's inbox by its number, as a store does for its own inbox.
    pub async fn deliver(&self, message: u64, command: RunCommand) -> Result<(), HubError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.send(Command::Deliver(message, command, answer)).await;
        sent.map_err(|_| HubError::RunEnded)?;
        answered.await.unwrap_or(Err(HubError::RunEnded))
    }

    /// Confirms to a child run that one more command of its parent has come, or cannot come.
    pub(crate) async fn confirm_command(&self) {
        // A child that has ended has no idle state.
        let _ = self.commands.send(Command::Confirm).await;
    }

    /// Requests a reply when all events so far are published. Returns false if the run has ended.
    pub(crate) async fn settle(&self, answer: oneshot::Sender<Result<(), HubError>>) -> bool {
        self.commands.send(Command::Settle(answer)).await.is_ok()
    }

    /// Returns the people and events that the run and its child runs wait for now. Returns `None` if the run has ended, and
    /// while a child run is busy, because only its own driver knows what it waits for.
    pub async fn waiting(&self) -> Option<Vec<Waiting>> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(Command::Waiting(answer)).await.ok()?;
        answered.await.ok()?
    }

    /// Reports to the run that no caller is connected that could answer. The driver then parks the run when only people
    /// or events can continue it. A run that does not [wait for answers](crate::RunOptions::wait_for_answers) behaves
    /// the same way.
    pub async fn leave_unattended(&self) {
        // A run that has ended needs no caller.
        let _ = self.commands.send(Command::Unattended).await;
    }

    /// Reports to a run that was [tried alone](crate::FlowRunner::try_alone) that its process begins to drive other
    /// runs.
    pub async fn accompany(&self) {
        // A run that has ended needs no note.
        let _ = self.commands.send(Command::Input(Box::new(Input::Accompanied))).await;
    }

    /// Attaches another channel. It first receives all earlier events of the run, and of those child runs that are
    /// still driven.
    pub async fn attach(&self, channel: Arc<dyn Channel>) -> Result<(), HubError> {
        let attach = Command::Attach { channel, to_child: false };
        self.commands.send(attach).await.map_err(|_| HubError::RunEnded)
    }

    /// Attaches a channel of the parent run, which has already started the channel.
    pub(crate) async fn attach_from_above(&self, channel: Arc<dyn Channel>) {
        // If the child has ended, the parent publishes its end.
        let _ = self.commands.send(Command::Attach { channel, to_child: true }).await;
    }
}
