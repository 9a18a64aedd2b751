//! The calls of attempts. All calls of an attempt pass through [`AttemptCalls`]. It answers calls of state, cache,
//! logs, metrics and agent runs itself, and records all other calls before they leave the host. A call with a recorded
//! reply is not made again.

mod agents;
mod endings;
mod inside;
mod progress;

use std::{collections::HashMap, future, sync::Arc};

use flowcell_contract::{
    Arrival, Ask, BlobRef, BlobWriter, Blobs, BuiltIn, Call, Caller, Calls, Capability, Effect, Failure, Json,
    Outgoing, Progress as Watched, RunId, ScopePath, StepResult, Tenant, Value, code, shell::shell_word,
};
use flowcell_flow::graph::Graph;
use futures_util::future::{BoxFuture, Either, select};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use crate::{
    agents::{Agents, InboxMessage},
    call_log::{self, CallLog, Reply},
    decide::Input,
    fact::{Asked, CallDigest, CallRecord, ForAgent, Observed, TaskKey, Write},
    hub::Command,
    limits::MAX_OPEN_CALLS,
    ports::{CacheStore, Pin, StateStore, Timers},
};
pub(crate) use endings::Endings;
use progress::{Progress, Submitted};

/// The context that the calls of all attempts of one run share.
pub(crate) struct CallSite {
    pub(crate) tenant: Tenant,
    pub(crate) run_id: RunId,
    /// The prefix of idempotency keys. If a task has called the run, it consists of the prefix of the calling run
    /// and the address of this task. Every other run has its own id as the prefix, also a run that was made for a
    /// call of a tool.
    pub(crate) root: Arc<str>,
    pub(crate) graph: Arc<Graph>,
    pub(crate) pin: Pin,
    pub(crate) state: Arc<dyn StateStore>,
    pub(crate) cache: Arc<dyn CacheStore>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) timers: Arc<dyn Timers>,
    pub(crate) capabilities: Arc<HashMap<Arc<str>, Arc<dyn Capability>>>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) endings: Arc<Endings>,
}

/// Identifies the attempt of an [`AttemptCalls`], with its time and its config.
pub(crate) struct Attempting {
    pub(crate) task: TaskKey,
    pub(crate) scope: ScopePath,
    /// The name of the task in idempotency keys.
    pub(crate) key_address: String,
    /// The name of the task in the ids of its agent runs.
    pub(crate) agent_address: String,
    /// The attempt and its number of resumes.
    pub(crate) number: (u32, u32),
    /// The current time, as the attempt sees it.
    pub(crate) now_ms: u64,
    /// The config of the attempt's task.
    pub(crate) config: Value,
}

/// The arrival that ends a wait: an inbox entry, or the end of the call with this number.
enum Next {
    InboxMessage,
    Ended(u32),
}

/// The calls of one attempt. State writes stay here until the attempt's outcome is recorded.
pub(crate) struct AttemptCalls {
    site: Arc<CallSite>,
    attempting: Attempting,
    progress: Mutex<Progress>,
    arrived: Notify,
}

impl AttemptCalls {
    /// Creates the calls of an attempt. `writes` are the state writes that the task had buffered before its last
    /// pause.
    pub(crate) fn new(
        site: Arc<CallSite>,
        attempting: Attempting,
        writes: Vec<Write>,
        log: Option<&CallLog>,
        agents: Option<&Agents>,
    ) -> AttemptCalls {
        let progress = Progress::new(attempting.now_ms, writes, log, agents);
        AttemptCalls { site, attempting, progress: Mutex::new(progress), arrived: Notify::new() }
    }

    /// Removes and returns the attempt's observations since its last recorded call.
    pub(crate) fn take_observations(&self) -> Box<[Observed]> {
        std::mem::take(&mut self.progress.lock().since).into()
    }

    /// Removes and returns the writes that the attempt has buffered.
    pub(crate) fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.progress.lock().writes)
    }

    /// Delivers the end of a call of this attempt. The journal already has this end.
    pub(crate) fn deliver_reply(&self, ordinal: u32, ts: u64, reply: Reply) {
        self.progress.lock().record_end(ordinal, ts, reply);
        self.arrived.notify_waiters();
    }

    /// Delivers a message to an agent run of this attempt. The journal already has the message.
    pub(crate) fn receive(&self, entry: InboxMessage) {
        let mut progress = self.progress.lock();
        progress.count_event();
        progress.inbox.push_back(entry);
        drop(progress);
        self.arrived.notify_waiters();
    }

    /// Sets the deadline (milliseconds since 1970) of the wait in which the attempt was when its previous sandbox
    /// ended. `None`: the attempt was in no wait with a deadline.
    pub(crate) fn set_wait_deadline(&self, due: Option<u64>) {
        self.progress.lock().wait_until = due;
    }

    /// Returns true if the attempt waits for an arrival: a reply to a call, or an inbox entry.
    pub(crate) fn is_blocked(&self) -> bool {
        self.progress.lock().blocked
    }

    /// Records that a call no longer waits for approval: a person has decided, or the time to decide has ended.
    pub(crate) fn question_closed(&self, ordinal: u32) {
        let mut progress = self.progress.lock();
        progress.count_event();
        progress.asking.remove(&ordinal);
    }

    /// Returns the number of arrivals for the attempt so far: replies to calls, inbox entries, and closed questions.
    pub(crate) fn events_arrived(&self) -> u64 {
        self.progress.lock().events_arrived
    }

    /// Waits until the ends of the attempt's `once` calls are recorded, because the journal must have these ends before
    /// the attempt's answer. If the attempt succeeded without repeating all of its recorded steps, reports the
    /// divergence to the driver and never returns.
    pub(crate) async fn finish(&self, result: &StepResult) {
        let ahead = self.progress.lock().next_recorded();
        if ahead.is_some() && result.is_ok() {
            return self.report_divergence("it ended before the last of its recorded calls").await;
        }
        self.wait_for(|progress| progress.once_under_way.is_empty().then_some(())).await;
    }

    /// Waits for an arrival that never comes, so this function never returns.
    #[cfg(test)]
    pub(crate) async fn wait_forever(&self) {
        self.wait_for(|_| None).await
    }

    /// Waits until `ready` returns a value. Calls `ready` at once, and again after each arrival for the attempt.
    async fn wait_for<T>(&self, mut ready: impl FnMut(&mut Progress) -> Option<T>) -> T {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut progress = self.progress.lock();
                let found = ready(&mut progress);
                progress.blocked = found.is_none();
                if let Some(found) = found {
                    return found;
                }
            }
            arrived.await;
        }
    }

    async fn answer(&self, call: Call) -> Result<Value, Failure> {
        match BuiltIn::named(&call.interface) {
            Some(BuiltIn::Log | BuiltIn::Metrics) => inside::note(self, &call).await,
            Some(BuiltIn::State | BuiltIn::Cache) => inside::answer(self, &call).await,
            Some(BuiltIn::Agent) => agents::answer(self, &call).await,
            _ => {
                let ordinal = self.submit(call, false).await?;
                self.idle(None, |progress| !progress.is_under_way(ordinal)).await;
                self.wait_for(|progress| progress.take(ordinal)).await.map_err(|failure| *failure)
            }
        }
    }

    /// Submits a call and returns its number. `listen`: the attempt receives the end of the call through `next`.
    async fn submit(&self, call: Call, listen: bool) -> Result<u32, Failure> {
        let capability = self.site.capabilities.get(&call.interface).ok_or_else(|| unknown(&call))?;
        let caller = self.caller();
        let agent = agents::agent_of(self, call.args.json())?;
        let admission = capability.admit(&call, &caller)?;
        let digest = CallDigest::of(&call.interface, &call.function, call.args.json());
        let submitted = self.progress.lock().submit(&digest, listen, admission.effect);
        let (ordinal, occurrence, new) = match submitted {
            Submitted::Again { ordinal, ended: true, .. } => return Ok(ordinal),
            Submitted::Again { ordinal, occurrence, .. } => (ordinal, occurrence, None),
            Submitted::New { ordinal, occurrence, before } => (ordinal, occurrence, Some(before)),
            Submitted::TooMany => {
                let message = format!("an attempt may have at most {MAX_OPEN_CALLS} calls in progress");
                return Err(Failure::new(code::LIMIT_EXCEEDED, message));
            }
            Submitted::Diverged(expected) => {
                let asked = format!("`{}.{}`", call.interface, call.function);
                return self.report_divergence(&format!("it called {asked} where it {expected} before")).await;
            }
        };
        let key = call_log::key(&self.site.root, &self.attempting.key_address, &digest, occurrence);
        let (interface, function) = (call.interface.clone(), call.function.clone());
        let effect = admission.effect;
        let reply = self.progress.lock().recorded(&key).filter(|_| effect == Effect::Once);
        let progress = self.partial_reply_receiver(agent.as_deref());
        let outgoing = Box::new(Outgoing {
            caller,
            call,
            effect,
            key: key.clone(),
            progress,
            prepared: admission.prepared,
            lost: 0,
            attempt_end: self.site.endings.end_of(self.attempting.task, self.attempting.number),
        });
        let (task, attempt) = (self.attempting.task, self.attempting.number);
        if admission.ask.is_some() {
            self.progress.lock().asking.insert(ordinal);
        }
        let command = match new {
            None => Command::CallAgain { task, attempt: attempt.0, ordinal, outgoing },
            Some(before) => {
                let (about, preview) = (admission.about, admission.preview);
                let now = self.site.timers.now();
                let ask = admission.ask.map(|ask| Box::new(self.asked(ask, ordinal, now)));
                let record = CallRecord {
                    ordinal,
                    interface,
                    function,
                    digest,
                    effect,
                    key,
                    about,
                    preview,
                    agent,
                    ask,
                    before,
                };
                Command::Call { task, attempt, record: Box::new(record), outgoing, reply }
            }
        };
        self.send(command).await;
        Ok(ordinal)
    }

    /// Returns the question whether a call may leave. If the question shows only a part of the arguments, its text says
    /// how to read all of them.
    fn asked(&self, ask: Ask, ordinal: u32, now: u64) -> Asked {
        let Ask { mut prompt, expires_ms, arguments } = ask;
        if arguments.is_some() {
            let node = &self.site.graph.node(self.attempting.task.node).id;
            let address = format!("{}#{ordinal}", self.attempting.scope.address(node));
            prompt.push_str(&format!(
                " Parts marked by ⟨cut⟩ are not shown whole: `flowcell answer {} {} --show` shows them.",
                shell_word(self.site.run_id.as_str()),
                shell_word(&address)
            ));
        }
        Asked { prompt, expires: now.saturating_add(expires_ms), arguments: arguments.map(Value::from) }
    }

    /// Reports that the attempt takes a different step than before, and never returns: the driver drops the attempt.
    async fn report_divergence<T>(&self, message: &str) -> T {
        let (task, attempt) = (self.attempting.task, self.attempting.number);
        self.send_input(Input::Diverged { task, attempt, message: message.into() }).await;
        future::pending().await
    }

    async fn send_input(&self, input: Input) {
        self.send(Command::Input(Box::new(input))).await;
    }

    async fn send(&self, command: Command) {
        // An ended run reads no more commands, and its attempts are about to be dropped.
        let _ = self.site.commands.send(command).await;
    }

    /// Returns the receiver of partial replies. The receiver sends them to the watchers of the agent run that makes the
    /// call. For a call without an agent run it discards them.
    fn partial_reply_receiver(&self, agent: Option<&ForAgent>) -> Watched {
        let Some(agent) = agent else { return Watched::default() };
        let (agent_run, commands, task) = (agent.agent_run.clone(), self.site.commands.clone(), self.attempting.task);
        let tool_use = agent.tool_use.clone();
        Watched::new(move |kind, members| {
            let mut data = vec![("agentRunId".into(), Json::from(agent_run.clone()))];
            data.extend(tool_use.iter().map(|id| ("toolUseId".into(), Json::from(id.clone()))));
            data.extend(members.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
            // If the queue is full, the partial reply is dropped: the whole reply is recorded in any case.
            let _ = commands.try_send(Command::Live { task, kind: kind.into(), members: Json::object(data) });
        })
    }

    /// Reports to the driver that the attempt waits only for people, until `due` at the latest. The driver may then
    /// evict the attempt. Reports nothing if the attempt also waits for something else, or if `ready` returns true,
    /// because the awaited reply or message has already arrived.
    async fn idle(&self, due: Option<u64>, ready: impl Fn(&Progress) -> bool) {
        let waits = self.progress.lock().waits_for_people(ready);
        if let Some(heard) = waits {
            let (task, attempt) = (self.attempting.task, self.attempting.number);
            self.send(Command::AttemptIdle { task, attempt, due, heard }).await;
        }
    }

    fn caller(&self) -> Caller {
        let node = self.site.graph.node(self.attempting.task.node);
        Caller {
            tenant: self.site.tenant.clone(),
            run_id: self.site.run_id.clone(),
            pin: self.site.pin.0.clone(),
            node_id: node.id.clone(),
            node_type: node.node_type.name.clone(),
            grants: node.grants.clone(),
            effect: node.node_type.effect,
            config: self.attempting.config.clone(),
        }
    }

    async fn wait(&self, timeout_ms: Option<u32>) -> Option<Arrival> {
        let recorded = self.progress.lock().next_recorded();
        if let Some(recorded) = recorded {
            return match recorded {
                Ok(Observed::Delivered(ordinal)) => self.take_ended_call(ordinal),
                Ok(Observed::Message(id)) => {
                    self.take_message(|entry| entry.id.as_ref() == Some(&id)).map(|(_, arrival)| arrival)
                }
                Ok(Observed::Closing(run)) => {
                    self.take_message(|entry| entry.id.is_none() && entry.run == run).map(|(_, arrival)| arrival)
                }
                Ok(Observed::TimedOut(at)) => {
                    self.progress.lock().advance_clock(at);
                    None
                }
                Ok(Observed::Answered(..)) => self.report_divergence("it waited where it read state before").await,
                Err(expected) => self.report_divergence(&format!("it waited where it {expected} before")).await,
            };
        }
        let until = timeout_ms.map(|ms| self.site.timers.now().saturating_add(u64::from(ms)));
        let until = until.map(|due| self.progress.lock().wait_until.take().unwrap_or(due));
        let there = move |progress: &Progress| match progress.next_ended_call() {
            _ if progress.has_message() => Some(Some(Next::InboxMessage)),
            Some(ordinal) => Some(Some(Next::Ended(ordinal))),
            None if until.is_none() && !progress.may_arrive() => Some(None),
            None => None,
        };
        self.idle(until, |progress| there(progress).is_some()).await;
        let arrival = Box::pin(self.wait_for(|progress| there(progress)));
        let arrived = match until {
            None => arrival.await,
            Some(due) => match select(arrival, self.site.timers.wait(due)).await {
                Either::Left((arrived, _)) => arrived,
                Either::Right(_) => {
                    self.progress.lock().time_out(self.site.timers.now());
                    let (task, attempt) = (self.attempting.task, self.attempting.number);
                    self.send_input(Input::AttemptBusy { task, attempt }).await;
                    None
                }
            },
        };
        match arrived? {
            Next::Ended(ordinal) => {
                self.progress.lock().since.push(Observed::Delivered(ordinal));
                self.take_ended_call(ordinal)
            }
            Next::InboxMessage => {
                let open: Vec<_> = self.progress.lock().agents.iter().map(|(open, _)| open.clone()).collect();
                let (observed, arrival) = self.take_message(|entry| open.contains(&entry.run))?;
                self.progress.lock().since.push(observed);
                Some(arrival)
            }
        }
    }

    /// Removes the first inbox entry that `meant` accepts. Returns the observation to record, and the arrival that the
    /// component receives.
    fn take_message(&self, meant: impl Fn(&InboxMessage) -> bool) -> Option<(Observed, Arrival)> {
        let InboxMessage { run: agent_run, id, value, .. } = self.progress.lock().take_message(meant)?;
        Some(match id {
            Some(id) => (Observed::Message(id.clone()), Arrival::Message { agent_run, id, value }),
            None => (Observed::Closing(agent_run.clone()), Arrival::Closing { agent_run }),
        })
    }

    fn take_ended_call(&self, ordinal: u32) -> Option<Arrival> {
        let mut progress = self.progress.lock();
        progress.listening.remove(&ordinal);
        let outcome = progress.take(ordinal)?.map_err(|failure| *failure);
        Some(Arrival::Ended { id: ordinal, outcome })
    }
}

impl Calls for AttemptCalls {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        Box::pin(self.answer(call))
    }

    fn start(&self, call: Call) -> BoxFuture<'_, Result<u32, Failure>> {
        Box::pin(self.submit(call, true))
    }

    fn next(&self, timeout_ms: Option<u32>) -> BoxFuture<'_, Option<Arrival>> {
        Box::pin(self.wait(timeout_ms))
    }

    fn now_ms(&self) -> Option<u64> {
        let now = self.progress.lock().now_ms;
        (now > self.attempting.now_ms).then_some(now)
    }

    fn keep(&self, bytes: Arc<[u8]>, mime: &str) -> Result<BlobRef, Failure> {
        Ok(self.site.blobs.put(&self.site.tenant, bytes, mime))
    }

    fn bytes(&self, file: &BlobRef) -> Result<Arc<[u8]>, Failure> {
        let found = self.site.blobs.get(&self.site.tenant, file)?;
        found.ok_or_else(|| not_found(file))
    }

    fn read_part(&self, file: &BlobRef, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        self.site.blobs.read_part(&self.site.tenant, file, offset, length)?.ok_or_else(|| not_found(file))
    }

    fn file_writer(&self) -> Result<Box<dyn BlobWriter>, Failure> {
        self.site.blobs.clone().writer(&self.site.tenant)
    }
}

fn not_found(file: &BlobRef) -> Failure {
    Failure::new(code::FILE_NOT_FOUND, format!("the file `{}` does not exist", file.file_id))
}

fn unknown(call: &Call) -> Failure {
    let message = format!("this host has no capability `{}.{}`", call.interface, call.function);
    Failure::new(code::DENIED, message)
}
