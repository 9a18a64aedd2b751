//! A conversation of a person at the terminal with a run that this process or another one drives.

mod conversation;
mod page;
pub(crate) mod remote;
mod typed;

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use flowcell::{Channel, Event, FlowRunner, Hub, HubError, Json, LiveEvent, RunCommand, RunResult, RunStatus};
use futures_util::future::{BoxFuture, OptionFuture};
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::{
    conversation::{ChatEvent, Conversation, Shown},
    page::Page,
    typed::Typed,
};
use super::{answers, question_queue::choose};
use crate::{cli_error::CliError, terminal::Terminal};

/// A command that is being sent to the run. Its error is a text for the person.
type PendingCommand = BoxFuture<'static, Result<(), String>>;

/// Sends a command to the run.
type SendCommand = dyn Fn(RunCommand) -> PendingCommand + Send + Sync;

/// A function that is called at the end of standard input, unless standard input is a terminal. It returns true if the
/// conversation ends, too.
type OnInputEnd = dyn Fn() -> BoxFuture<'static, bool> + Send + Sync;

/// The end of a conversation.
enum End<T> {
    /// The run has ended or is parked.
    Run(T),
    /// The person has left.
    Left,
}

/// A conversation with a run. It is a channel of a run of this process, or gets the events of a run from the process
/// that drives it.
pub(crate) struct Chat {
    state: Mutex<State>,
    changed: Notify,
    interactive: bool,
    /// True once all past events are read, so that the open questions are known.
    present: AtomicBool,
    /// True once the run has an event, and so is in the store. A person who leaves earlier could not come back.
    begun: AtomicBool,
}

struct State {
    conversation: Conversation,
    page: Page,
}

impl Chat {
    /// Creates a conversation that has not begun.
    pub(crate) fn new(terminal: Terminal) -> Chat {
        let state = State { conversation: Conversation::default(), page: Page::new(terminal) };
        let interactive = terminal.interactive;
        let [present, begun] = [true, false].map(AtomicBool::new);
        Chat { state: Mutex::new(state), changed: Notify::new(), interactive, present, begun }
    }

    fn begin(&self, run: &str) {
        self.state.lock().conversation = Conversation::new(run);
    }

    fn process(&self, event: &ChatEvent<'_>) {
        let mut state = self.state.lock();
        for shown in state.conversation.process(event) {
            state.page.show(&shown);
        }
        drop(state);
        self.begun.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    fn show(&self, shown: &Shown) {
        self.state.lock().page.show(shown);
    }

    /// Returns true if the next line may be read now. From a terminal, it may be read once the run has begun. From a pipe,
    /// it is read only when a question or an agent waits for it.
    fn takes_line(&self) -> bool {
        let is_wanted = || self.present.load(Ordering::Acquire) && self.state.lock().conversation.waits();
        self.begun.load(Ordering::Acquire) && (self.interactive || is_wanted())
    }

    /// Drives the run to its end, or until the person leaves. If the person leaves, the run counts as parked, and can
    /// be resumed. `again` is true for a resumed run, whose past conversation is shown first.
    pub(crate) async fn drive_run(self: &Arc<Chat>, runner: FlowRunner, again: bool) -> Result<RunResult, CliError> {
        let (hub, flow) = (runner.hub(), runner.flow().to_owned());
        let began = std::time::Instant::now();
        if again {
            // Show the conversation so far first.
            let attached = hub.attach(self.clone()).await;
            attached.map_err(|error| CliError::internal("cannot start the conversation").because(&error))?;
        }
        let asked = hub.clone();
        let ask = move |request| -> PendingCommand {
            let hub = asked.clone();
            Box::pin(async move { hub.request(request).await.map_err(|error: HubError| error.to_string()) })
        };
        let deserted = hub.clone();
        let on_input_end = move || -> BoxFuture<'static, bool> {
            let hub = deserted.clone();
            // After the last line, no question can be answered, so the run may park.
            Box::pin(async move {
                hub.leave_unattended().await;
                false
            })
        };
        match self.converse(runner.run(), &ask, &on_input_end).await? {
            End::Run(result) => Ok(result),
            End::Left => Ok(RunResult {
                run_id: hub.run_id().clone(),
                flow: flow.into(),
                status: RunStatus::Parked,
                outputs: Json::Null,
                events: Vec::new(),
                duration: began.elapsed(),
                error: None,
                waiting: Vec::new(),
                quota: None,
            }),
        }
    }

    /// Sends the typed lines to the run until `run` is ready or the person leaves. `run` is ready when the run has
    /// ended or is parked.
    async fn converse<T>(
        &self,
        run: impl Future<Output = T>,
        ask: &SendCommand,
        on_input_end: &OnInputEnd,
    ) -> Result<End<T>, CliError> {
        let cannot = |error: std::io::Error| CliError::internal("cannot read standard input").because(&error);
        let mut lines = typed::lines().map_err(cannot)?;
        let mut asking: OptionFuture<PendingCommand> = None.into();
        let (mut busy, mut typing) = (false, true);
        let mut run = pin!(run);
        loop {
            tokio::select! {
                biased;
                outcome = &mut run => return Ok(End::Run(outcome)),
                outcome = &mut asking, if busy => {
                    (asking, busy) = (None.into(), false);
                    if let Some(Err(why)) = outcome {
                        self.show(&Shown::Trouble(why));
                    }
                }
                line = lines.recv(), if typing && !busy && self.takes_line() => match line.as_deref().map(typed::read) {
                    Some(Typed::Quit) => return Ok(End::Left),
                    Some(typed) => if let Some(request) = self.request(typed) {
                        (asking, busy) = (Some(ask(request)).into(), true);
                    },
                    None if self.interactive => return Ok(End::Left),
                    None => {
                        typing = false;
                        if on_input_end().await {
                            return Ok(End::Left);
                        }
                    }
                },
                () = self.changed.notified() => {}
            }
        }
    }

    /// Returns the command for a line. Returns `None` if the line sends nothing to the run: it only shows or selects
    /// something, or it is wrong.
    fn request(&self, typed: Typed) -> Option<RunCommand> {
        let mut state = self.state.lock();
        let conversation = &mut state.conversation;
        let asked = match typed {
            Typed::Nothing | Typed::Quit => return None,
            Typed::Help => Err(Shown::Note(typed::HELP.into())),
            Typed::Who => Err(Shown::Note(conversation.list_agents())),
            Typed::To(name) => Err(match conversation.choose(&name) {
                Ok(agent) => Shown::Note(format!("your lines now go to {agent}")),
                Err(why) => Shown::Trouble(why),
            }),
            Typed::Unknown(line) => Err(Shown::Trouble(format!("unknown command `{line}`; /help lists the commands"))),
            Typed::Abort => Ok(RunCommand::Cancel),
            Typed::Close(name) => {
                let to = conversation.target(name.as_deref()).map_err(Shown::Trouble);
                to.map(|to| RunCommand::CloseAgent { to })
            }
            Typed::Text(text) if self.interactive && conversation.is_late(Instant::now()) => {
                Err(Shown::Trouble(format!("the line `{text}` is ignored, because its question has closed")))
            }
            Typed::Text(text) => conversation.command_for(&text).map_err(Shown::Trouble),
        };
        asked.map_err(|shown| state.page.show(&shown)).ok()
    }
}

impl Conversation {
    /// Returns the command for a typed text: the answer to the oldest open question, or, without open questions, a
    /// message to an agent. The error is a text for the person.
    fn command_for(&mut self, text: &str) -> Result<RunCommand, String> {
        if self.questions.is_empty() {
            let to = self.target(None)?;
            return Ok(RunCommand::Write { to, message: None, value: Json::from(text).into() });
        }
        let asked = self.questions.first().cloned().ok_or("no question is open")?;
        let admitted = asked.question.allow_text;
        let chosen = choose(&asked.question, text);
        if !admitted && !asked.question.choices.iter().any(|choice| choice.value == chosen) {
            return Err(format!(
                "`{}` does not take `{text}`; it takes {}",
                asked.address,
                super::lines::shown_choices(&asked.question)
            ));
        }
        self.questions.remove(0);
        Ok(RunCommand::reply(asked.address, answers::answer(&chosen), asked.asked))
    }
}

impl Channel for Chat {
    fn on_start(&self, hub: &Hub) {
        self.begin(hub.run_id().as_str());
    }

    fn on_event(&self, event: &Event) {
        self.process(&ChatEvent { kind: event.kind, run: event.run_id.as_str(), data: &event.data });
    }

    fn on_live(&self, event: &LiveEvent) {
        self.process(&ChatEvent { kind: &event.kind, run: event.run_id.as_str(), data: &event.data });
    }
}
