//! A conversation with a run, whoever drives it.

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
    conversation::{Conversation, Heard, Shown},
    page::Page,
    typed::Typed,
};
use super::{answers, desk::choose};
use crate::{problem::Problem, terminal::Terminal};

/// What is asked of the run, and comes of it.
type Asking = BoxFuture<'static, Result<(), String>>;

/// One who asks something of the run.
type Ask = dyn Fn(RunCommand) -> Asking + Send + Sync;

/// One who says, once nothing will be typed any more, whether that is the end of the conversation.
type Nobody = dyn Fn() -> BoxFuture<'static, bool> + Send + Sync;

/// How a conversation ended.
enum End<T> {
    /// The run has ended, or cannot go on.
    Run(T),
    /// The person has left.
    Left,
}

/// A conversation with a run. It is one of the run's channels, or hears the events from elsewhere.
pub(crate) struct Chat {
    state: Mutex<State>,
    changed: Notify,
    interactive: bool,
    /// What was before was heard, and what is open now is known.
    present: AtomicBool,
}

struct State {
    conversation: Conversation,
    page: Page,
}

impl Chat {
    /// A conversation that has not begun.
    pub(crate) fn new(terminal: Terminal) -> Chat {
        let state = State { conversation: Conversation::default(), page: Page::new(terminal) };
        let interactive = terminal.interactive;
        Chat { state: Mutex::new(state), changed: Notify::new(), interactive, present: AtomicBool::new(true) }
    }

    fn begin(&self, run: &str) {
        self.state.lock().conversation = Conversation::with(run);
    }

    fn hear(&self, heard: &Heard<'_>) {
        let mut state = self.state.lock();
        for shown in state.conversation.hear(heard) {
            state.page.show(&shown);
        }
        drop(state);
        self.changed.notify_one();
    }

    fn show(&self, shown: &Shown) {
        self.state.lock().page.show(shown);
    }

    /// Whether a line is taken now. From a pipe it is taken once somebody waits for it.
    fn takes_line(&self) -> bool {
        self.interactive || (self.present.load(Ordering::Acquire) && self.state.lock().conversation.waits())
    }

    /// Runs to the end, or until the person leaves: then the run stays as it is, to be resumed.
    pub(crate) async fn with_runner(self: &Arc<Chat>, runner: FlowRunner, again: bool) -> Result<RunResult, Problem> {
        let (hub, flow) = (runner.hub(), runner.flow().to_owned());
        let began = std::time::Instant::now();
        if again {
            // What was said so far is shown first.
            let attached = hub.attach(self.clone()).await;
            attached.map_err(|error| Problem::internal("the conversation cannot begin").because(&error))?;
        }
        let asked = hub.clone();
        let ask = move |request| -> Asking {
            let hub = asked.clone();
            Box::pin(async move { hub.request(request).await.map_err(|error: HubError| error.to_string()) })
        };
        let deserted = hub.clone();
        let nobody = move || -> BoxFuture<'static, bool> {
            let hub = deserted.clone();
            // Whoever has typed the last line answers nothing any more.
            Box::pin(async move {
                hub.leave_unattended().await;
                false
            })
        };
        match self.converse(runner.run(), &ask, &nobody).await? {
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
            }),
        }
    }

    /// Brings lines to the run until it ends or the person leaves.
    async fn converse<T>(&self, run: impl Future<Output = T>, ask: &Ask, nobody: &Nobody) -> Result<End<T>, Problem> {
        let cannot = |error: std::io::Error| Problem::internal("standard input cannot be read").because(&error);
        let mut lines = typed::lines().map_err(cannot)?;
        let mut asking: OptionFuture<Asking> = None.into();
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
                        if nobody().await {
                            return Ok(End::Left);
                        }
                    }
                },
                () = self.changed.notified() => {}
            }
        }
    }

    /// What a line asks of the run; none if it asks nothing.
    fn request(&self, typed: Typed) -> Option<RunCommand> {
        let mut state = self.state.lock();
        let conversation = &mut state.conversation;
        let asked = match typed {
            Typed::Nothing | Typed::Quit => return None,
            Typed::Help => Err(Shown::Note(typed::HELP.into())),
            Typed::Who => Err(Shown::Note(conversation.who())),
            Typed::To(name) => Err(match conversation.choose(&name) {
                Ok(agent) => Shown::Note(format!("lines go to {agent}")),
                Err(why) => Shown::Trouble(why),
            }),
            Typed::Unknown(line) => Err(Shown::Trouble(format!("`{line}` is no command; /help shows them"))),
            Typed::Abort => Ok(RunCommand::Cancel),
            Typed::Close(name) => {
                let to = conversation.target(name.as_deref()).map_err(Shown::Trouble);
                to.map(|to| RunCommand::CloseAgent { to })
            }
            Typed::Text(text) if self.interactive && conversation.is_late(Instant::now()) => Err(Shown::Trouble(
                format!("the line `{text}` was typed for a question that has closed, and is not used"),
            )),
            Typed::Text(text) => conversation.meant(&text).map_err(Shown::Trouble),
        };
        asked.map_err(|shown| state.page.show(&shown)).ok()
    }
}

impl Conversation {
    /// Whom a text is meant for: the oldest question that is open, or an agent.
    fn meant(&mut self, text: &str) -> Result<RunCommand, String> {
        if self.questions.is_empty() {
            let to = self.target(None)?;
            return Ok(RunCommand::Write { to, message: None, value: Json::from(text).into() });
        }
        let asked = self.questions.first().cloned().ok_or("nothing is asked")?;
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
        self.hear(&Heard { kind: event.kind, run: event.run_id.as_str(), data: &event.data });
    }

    fn on_live(&self, event: &LiveEvent) {
        self.hear(&Heard { kind: &event.kind, run: event.run_id.as_str(), data: &event.data });
    }
}
