//! Asks the person at the terminal the questions of gates and agents.

use std::{
    sync::{Arc, mpsc},
    time::Instant,
};

use flowcell::{
    Channel, Event, FlowRunner, Host, Hub, Json, QuestionRef, RunResult, RunStatus, StartError, Waiting, waiting,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{
    answers,
    lines::Subject,
    question_queue::{Asked, Message, QuestionQueue},
    screen::Screen,
};

/// The reason for the close of a question, if the event gives no other reason.
const DEFAULT_CLOSE_REASON: &str = "it was answered elsewhere or timed out";

/// A channel that asks the person the questions of a run. A [`QuestionQueue`] asks them one after the other on its own
/// thread, because reading a line blocks.
pub(crate) struct Asker {
    screen: Arc<Screen>,
    given: Vec<(String, String)>,
    answering: Arc<Mutex<Option<Hub>>>,
    state: Mutex<State>,
    input_ended: Arc<Notify>,
}

#[derive(Default)]
struct State {
    queue: Option<mpsc::Sender<Message>>,
    open: Vec<Asked>,
}

impl Asker {
    /// Creates an asker. It does not ask the person a question that accepts one of the given answers.
    pub(crate) fn new(screen: Arc<Screen>, given: &[(String, String)]) -> Asker {
        let (answering, state, input_ended) = Default::default();
        Asker { screen, given: given.to_vec(), answering, state, input_ended }
    }

    /// Drives the run to its end. If the input of the terminal ends, stops driving the run, and returns a result with
    /// the status parked.
    pub(crate) async fn drive_run(&self, runner: FlowRunner, flow: &str) -> RunResult {
        let run_id = runner.hub().run_id().clone();
        let began = Instant::now();
        tokio::select! {
            biased;
            result = runner.run() => result,
            () = self.input_ended.notified() => RunResult {
                run_id,
                flow: flow.into(),
                status: RunStatus::Parked,
                outputs: Json::Null,
                events: Vec::new(),
                duration: began.elapsed(),
                error: None,
                waiting: self.waiting(),
                quota: None,
            },
        }
    }

    /// Asks the questions that the run had open before this process resumed it, since no event repeats them. From now
    /// on answers are sent to `hub`.
    pub(crate) fn catch_up(&self, host: &Host, hub: &Hub) -> Result<(), StartError> {
        *self.answering.lock() = Some(hub.clone());
        for waits in waiting::list(host, hub.run_id())? {
            if waits["kind"] == "gate" {
                let address = waits["address"].as_str().unwrap_or_default().to_owned();
                let waits = Json::from(waits);
                let (question, asked) = (answers::read_question(&waits), QuestionRef::of_json(&waits));
                self.enqueue(Asked { address, question, asked });
            }
        }
        Ok(())
    }

    /// Returns the signal that the terminal's input has ended, so that no person can answer any more.
    pub(crate) fn input_ended(&self) -> Arc<Notify> {
        self.input_ended.clone()
    }

    fn waiting(&self) -> Vec<Waiting> {
        let open = |asked: &Asked| Waiting::Answer {
            address: asked.address.clone(),
            question: Box::new(asked.question.clone()),
            asked: asked.asked.clone(),
        };
        self.state().open.iter().map(open).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Withdraws the question at an address. If the question was open, shows the person why it has closed.
    fn close(&self, address: String, why: &'static str) {
        let mut state = self.state();
        let before = state.open.len();
        state.open.retain(|asked| asked.address != address);
        // Sending fails only after the thread has ended, and then the run is parked.
        if let Some(queue) = state.queue.as_ref().filter(|_| state.open.len() < before) {
            let _ = queue.send(Message::Closed(address, why));
        }
    }

    /// Queues a question for the thread that asks. The first question starts that thread.
    fn enqueue(&self, asked: Asked) {
        let mut state = self.state();
        if !state.open.contains(&asked) {
            state.open.push(asked.clone());
        }
        if state.queue.is_none() {
            match QuestionQueue::start(
                self.answering.clone(),
                self.screen.clone(),
                self.given.clone(),
                self.input_ended.clone(),
            ) {
                Ok(queue) => state.queue = Some(queue),
                Err(_) => return self.input_ended.notify_one(),
            }
        }
        // Sending fails only after the thread has ended, and then the run is parked.
        if let Some(queue) = &state.queue {
            let _ = queue.send(Message::Asked(asked));
        }
    }
}

impl Channel for Asker {
    fn on_start(&self, hub: &Hub) {
        self.answering.lock().get_or_insert_with(|| hub.clone());
    }

    fn on_event(&self, event: &Event) {
        let Some(root) = self.answering.lock().as_ref().map(|hub| hub.run_id().clone()) else { return };
        let Some(subject) = Subject::of(event, root.as_str()) else { return };
        let of_call = |address: &str| {
            let call = event.data.get("call").and_then(Json::as_u64).unwrap_or_default();
            format!("{address}#{call}")
        };
        match event.kind {
            "task:paused" | "call:start" => {
                if let Some(question) = event.data.get("question") {
                    let is_call = event.kind == "call:start";
                    let address = if is_call { of_call(&subject.address) } else { subject.address };
                    let (asked, question) = (QuestionRef::of_json(question), answers::read_question(question));
                    // The run already has the given answer, and the question accepts it. If the question does not
                    // accept the given answer, the person is asked.
                    let given = answers::given(&self.given, &address);
                    if given.is_some_and(|(_, value)| answers::is_accepted(&question, value)) {
                        return;
                    }
                    self.enqueue(Asked { address, question, asked });
                }
            }
            "agent:tool:decision" | "call:error" => self.close(of_call(&subject.address), DEFAULT_CLOSE_REASON),
            // Any of these events closes the question.
            "task:woken" | "session:reply" => self.close(subject.address, DEFAULT_CLOSE_REASON),
            "task:complete" | "task:failed" | "task:cancelled" | "task:retry" => {
                let calls = format!("{}#", subject.address);
                let open: Vec<_> = self.state().open.iter().map(|asked| asked.address.clone()).collect();
                let of_task = |address: &String| *address == subject.address || address.starts_with(&calls);
                let why = if event.kind == "task:cancelled" { "it was cancelled" } else { DEFAULT_CLOSE_REASON };
                open.into_iter().filter(of_task).for_each(|address| self.close(address, why));
            }
            _ => {}
        }
    }
}
