//! Where a run's events are published, and commands come in.

use std::{
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
    limits::COMMAND_QUEUE,
    live::LivePermit,
    question::QuestionRef,
    result::{Idle, RunResult},
};

/// A command to the driver of a run.
pub(crate) enum Command {
    Run(RunCommand, oneshot::Sender<Result<(), HubError>>),
    /// A message of the store's inbox, by its number: it is taken in once, however often it is delivered.
    Deliver(u64, RunCommand, oneshot::Sender<Result<(), HubError>>),
    /// An input of the deciders.
    Input(Box<Input>),
    /// An attempt makes a call that leaves the host.
    Call {
        task: TaskKey,
        attempt: (u32, u32),
        record: Box<CallRecord>,
        outgoing: Box<Outgoing>,
        /// What an earlier attempt has recorded as its reply.
        reply: Option<Reply>,
    },
    /// A repeated attempt is back at a call that has no recorded end.
    CallAgain {
        task: TaskKey,
        attempt: u32,
        ordinal: u32,
        outgoing: Box<Outgoing>,
    },
    /// An attempt waits for people alone, at most until this time.
    Waits {
        task: TaskKey,
        attempt: (u32, u32),
        due: Option<u64>,
        /// How much had arrived by then.
        heard: u64,
    },
    /// A piece of a reply that is still being made.
    Live {
        task: TaskKey,
        kind: Box<str>,
        members: Json,
    },
    /// Attach a channel; to a child of a run if somebody has done so to the run.
    Attach {
        channel: Arc<dyn Channel>,
        to_child: bool,
    },
    /// Nobody is left who could answer.
    Unattended,
    /// The process is to end.
    Stop,
    /// Tell when everything that happened so far has been told.
    Settle(oneshot::Sender<Result<(), HubError>>),
    ChildEnded {
        task: TaskKey,
        attempt: u32,
        result: Result<Value, Failure>,
    },
    /// A run that a task calls has a place, or will get none.
    ChildPlaced {
        task: TaskKey,
        attempt: u32,
        place: Result<LivePermit, Failure>,
    },
    /// The idle state of a child; `None`: it moves by itself.
    ChildIdle {
        task: TaskKey,
        idle: Option<Idle>,
    },
}

/// A front end of a run. Its methods are called in order and must be quick; a panic or an error in them is not the
/// run's.
pub trait Channel: Send + Sync {
    /// The run is about to begin.
    fn on_start(&self, _hub: &Hub) {}

    /// Something happened, in this run or in a child of it.
    fn on_event(&self, event: &Event);

    /// A piece of something that is still being made, such as text of a model: never recorded, and never told again.
    fn on_live(&self, _event: &LiveEvent) {}

    /// The run has ended, or parked.
    fn on_complete(&self, _result: &RunResult) {}
}

/// The commands of one run. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    run_id: RunId,
    commands: mpsc::Sender<Command>,
    session: Arc<AtomicBool>,
}

/// The hubs of the runs that are being driven.
#[derive(Default)]
pub struct Hubs(Mutex<HashMap<(Tenant, RunId), Hub>>);

impl Hubs {
    /// The hub of a run, if somebody in this process drives it.
    pub fn get(&self, tenant: &Tenant, run: &RunId) -> Option<Hub> {
        self.0.lock().get(&(tenant.clone(), run.clone())).cloned()
    }

    /// Whether no more than one run is being driven.
    pub(crate) fn is_lonely(&self) -> bool {
        self.0.lock().len() < 2
    }

    /// Lists a hub until what is returned is dropped.
    pub(crate) fn enter(self: &Arc<Hubs>, tenant: &Tenant, hub: &Hub) -> HubListing {
        let key = (tenant.clone(), hub.run_id.clone());
        self.0.lock().insert(key.clone(), hub.clone());
        HubListing(self.clone(), key)
    }
}

/// Keeps a hub listed.
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

    /// Makes the hub of a run that another process drives. The future hands each command to `ask`; it ends when all hubs are
    /// gone, or when the run is to be left alone.
    pub fn remote<F: Future<Output = Result<(), HubError>>>(
        run_id: RunId,
        ask: impl Fn(RunCommand) -> F,
    ) -> (Hub, impl Future<Output = ()>) {
        let (sender, mut commands) = mpsc::channel(COMMAND_QUEUE);
        let hub = Hub::new(run_id, sender);
        hub.start_session();
        let forward = async move {
            while let Some(command) = commands.recv().await {
                match command {
                    // Whoever asked may be gone.
                    Command::Run(command, answer) => _ = answer.send(ask(command).await),
                    Command::Settle(answer) => _ = answer.send(Ok(())),
                    Command::Stop => return,
                    _ => {}
                }
            }
        };
        (hub, forward)
    }

    /// Which run.
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// Allows commands from now on.
    pub fn start_session(&self) {
        self.session.store(true, Ordering::Release);
    }

    /// Says something to the run (`session:message`).
    pub async fn send(&self, content: Json) -> Result<(), HubError> {
        self.request(RunCommand::Send { content: Value::from(content) }).await
    }

    /// Answers a question, by the address of the node that asks: `approve`, `process[3].approve`, and in a child run
    /// `review/approve`, where `review` is the node that called it. `answer` is `{ "content", "choice"? }`.
    pub async fn reply(&self, gate: &str, answer: Json) -> Result<(), HubError> {
        self.reply_to(gate, answer, QuestionRef::default()).await
    }

    /// Answers one certain question: if another one is open at the address, the answer is refused.
    pub async fn reply_to(&self, gate: &str, answer: Json, question: QuestionRef) -> Result<(), HubError> {
        self.request(RunCommand::Reply { gate: gate.to_owned(), answer, question }).await
    }

    /// Sends a named event: it wakes whoever waits for it, or is kept for a wait that comes later.
    pub async fn emit(&self, name: &str, payload: Json) -> Result<(), HubError> {
        self.request(RunCommand::Emit { name: name.to_owned(), payload: Value::from(payload) }).await
    }

    /// Decides how a blocked task goes on, by its address.
    pub async fn resolve(&self, task: &str, resolution: Resolution) -> Result<(), HubError> {
        self.request(RunCommand::Resolve { task: task.to_owned(), resolution }).await
    }

    /// Writes to an agent run, by its id. It is accepted once it is on stable storage; a message with an id that the agent
    /// run has had is accepted and not handed over again. In a child run `review/agent-…`.
    pub async fn send_to_run(&self, agent_run: &str, message: Option<&str>, content: Json) -> Result<(), HubError> {
        let (to, message) = (agent_run.to_owned(), message.map(str::to_owned));
        self.request(RunCommand::Write { to, message, value: Value::from(content) }).await
    }

    /// Writes to the latest agent run of a node that is open, by the address of the node.
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

    /// Stops driving the run in good order, as its process is to end: calls that have left are waited for, for a while, and
    /// the run is parked, for somebody else to go on with.
    pub async fn stop(&self) {
        // A run that is over has stopped.
        let _ = self.commands.send(Command::Stop).await;
    }

    /// Gives the run a command.
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

    /// Hands on a message of the store's inbox, by its number.
    pub(crate) async fn deliver(&self, message: u64, command: RunCommand) -> Result<(), HubError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.send(Command::Deliver(message, command, answer)).await;
        sent.map_err(|_| HubError::RunEnded)?;
        answered.await.unwrap_or(Err(HubError::RunEnded))
    }

    /// Asks to be told when everything that happened so far has been told. False: the run is over.
    pub(crate) async fn settle(&self, answer: oneshot::Sender<Result<(), HubError>>) -> bool {
        self.commands.send(Command::Settle(answer)).await.is_ok()
    }

    /// Nobody is left who could answer: from now on the run is parked once only people or events can move it on, as one that
    /// does not [wait for answers](crate::RunOptions::wait_for_answers).
    pub async fn leave_unattended(&self) {
        // A run that is over needs nobody.
        let _ = self.commands.send(Command::Unattended).await;
    }

    /// Notes that other runs begin in the process of a run that was [tried alone](crate::FlowRunner::try_alone).
    pub async fn accompany(&self) {
        // A run that is over needs no note.
        let _ = self.commands.send(Command::Input(Box::new(Input::Accompanied))).await;
    }

    /// Attaches another channel. It is told of everything that happened so far first, in the run and in those below it that
    /// go on.
    pub async fn attach(&self, channel: Arc<dyn Channel>) -> Result<(), HubError> {
        let attach = Command::Attach { channel, to_child: false };
        self.commands.send(attach).await.map_err(|_| HubError::RunEnded)
    }

    /// Attaches a channel of the run above, which has begun by then.
    pub(crate) async fn attach_from_above(&self, channel: Arc<dyn Channel>) {
        // A child that is over has told it by its parent.
        let _ = self.commands.send(Command::Attach { channel, to_child: true }).await;
    }
}
