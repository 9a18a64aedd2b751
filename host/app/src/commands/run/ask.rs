//! Asking the person at the terminal what gates ask.

use std::{
    io::{self, BufRead, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

use flowcell::{Channel, Event, FlowRunner, Hub, HubError, Json, RunResult, RunStatus, Waiting, contract::Question};
use tokio::sync::Notify;

use super::{
    answers,
    lines::{Subject, shown_choices},
    screen::Screen,
};
use crate::terminal::inert;

/// Asks one question after the other, on a thread of its own: reading a line takes as long as it takes.
pub(super) struct Asker {
    screen: Arc<Screen>,
    given: Vec<(String, String)>,
    state: Mutex<State>,
    reading: Arc<Mutex<Reading>>,
    deserted: Arc<Notify>,
}

/// What the line is for that a person is about to type. It cannot be taken back from the terminal.
#[derive(Default)]
enum Reading {
    #[default]
    Nothing,
    /// An answer to the question at this address.
    Answer(String),
    /// A question that is closed by now.
    Stale,
}

#[derive(Default)]
struct State {
    hub: Option<Hub>,
    questions: Option<mpsc::Sender<Asked>>,
    open: Vec<Asked>,
}

#[derive(Clone)]
struct Asked {
    address: String,
    question: Question,
}

/// What became of a question.
enum Reply {
    Settled,
    /// Nobody types any more.
    Deserted,
}

/// What a person has typed.
enum Typed {
    Answer(String),
    /// Something, after the question was closed.
    Late,
    /// Nothing, and nothing will come.
    End,
}

impl Asker {
    /// An asker that tries the given answers before it asks.
    pub(super) fn new(screen: Arc<Screen>, given: &[(String, String)]) -> Asker {
        Asker {
            screen,
            given: given.to_vec(),
            state: Mutex::default(),
            reading: Arc::default(),
            deserted: Arc::default(),
        }
    }

    /// Runs until the end, or until nobody types any more: then the run is parked.
    pub(super) async fn until_deserted(&self, runner: FlowRunner, flow: &str) -> RunResult {
        let run_id = runner.hub().run_id().clone();
        let began = std::time::Instant::now();
        tokio::select! {
            biased;
            result = runner.run() => result,
            () = self.deserted.notified() => RunResult {
                run_id,
                flow: flow.into(),
                status: RunStatus::Parked,
                outputs: Json::Null,
                events: Vec::new(),
                duration: began.elapsed(),
                error: None,
                waiting: self.waiting(),
            },
        }
    }

    fn waiting(&self) -> Vec<Waiting> {
        let open = |asked: &Asked| Waiting::Answer {
            address: asked.address.clone(),
            question: Box::new(asked.question.clone()),
        };
        self.state().open.iter().map(open).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back a question. If a person is about to answer it, the run is shown again in its place.
    fn close(&self, address: &str) {
        self.state().open.retain(|asked| asked.address != address);
        let mut reading = lock(&self.reading);
        if matches!(&*reading, Reading::Answer(asked) if asked == address) {
            *reading = Reading::Stale;
            self.screen.break_in(&format!("`{address}` does not wait any more"));
            self.screen.release();
        }
    }

    /// Hands a question to the thread that asks, and starts that when there is a first one.
    fn enqueue(&self, asked: Asked) {
        let mut state = self.state();
        let Some(hub) = state.hub.clone() else { return };
        if matches!(&*lock(&self.reading), Reading::Stale) {
            self.screen.warn("there is another question: press Enter to see it");
        }
        state.open.push(asked.clone());
        if state.questions.is_none() {
            let (sender, questions) = mpsc::channel();
            let desk = Desk {
                hub,
                screen: self.screen.clone(),
                given: self.given.clone(),
                reading: self.reading.clone(),
                deserted: self.deserted.clone(),
            };
            let started = thread::Builder::new().name("questions".into()).spawn(move || desk.serve(&questions));
            if started.is_err() {
                self.deserted.notify_one();
                return;
            }
            state.questions = Some(sender);
        }
        // The thread ends only when the run is to be parked.
        if let Some(questions) = &state.questions {
            let _ = questions.send(asked);
        }
    }
}

impl Channel for Asker {
    fn on_start(&self, hub: &Hub) {
        self.state().hub.get_or_insert_with(|| hub.clone());
    }

    fn on_event(&self, event: &Event) {
        let Some(root) = self.state().hub.as_ref().map(|hub| hub.run_id().clone()) else { return };
        let Some(subject) = Subject::of(event, root.as_str()) else { return };
        match event.kind {
            "task:paused" => {
                if let Some(question) = event.data.get("question").map(answers::read_question) {
                    self.enqueue(Asked { address: subject.address, question });
                }
            }
            // However it went on, the question is not open any more.
            "task:woken" | "task:failed" | "task:cancelled" | "session:reply" => self.close(&subject.address),
            _ => {}
        }
    }
}

/// Where questions are put to a person.
struct Desk {
    hub: Hub,
    screen: Arc<Screen>,
    given: Vec<(String, String)>,
    reading: Arc<Mutex<Reading>>,
    deserted: Arc<Notify>,
}

impl Desk {
    fn serve(self, questions: &mpsc::Receiver<Asked>) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else {
            return self.deserted.notify_one();
        };
        while let Ok(asked) = questions.recv() {
            let reply = self.settle(&asked, |answer| runtime.block_on(self.hub.reply(&asked.address, answer)));
            // Further questions follow at once, without the status line between them.
            self.screen.release();
            if matches!(reply, Reply::Deserted) {
                return self.deserted.notify_one();
            }
        }
    }

    fn settle(&self, asked: &Asked, reply: impl Fn(Json) -> Result<(), HubError>) -> Reply {
        let given = answers::given(&self.given, &asked.address);
        let mut next = given.map(|(_, value)| value.clone());
        loop {
            let text = match next.take().map_or_else(|| self.ask(asked), Typed::Answer) {
                Typed::Answer(text) => text,
                Typed::Late => return Reply::Settled,
                Typed::End => return Reply::Deserted,
            };
            match reply(answers::answer(&choose(&asked.question, &text))) {
                Ok(()) | Err(HubError::RunEnded) => return Reply::Settled,
                Err(HubError::AnswerRefused(why)) => {
                    self.screen.warn_now(&format!("`{}` did not take `{text}`: {why}", asked.address));
                }
                Err(HubError::GateClosed) => {
                    self.screen.warn_now(&format!("`{}` does not wait any more", asked.address));
                    return Reply::Settled;
                }
                Err(error) => {
                    self.screen.warn_now(&error.to_string());
                    return Reply::Settled;
                }
            }
        }
    }

    /// Puts a question and reads one line.
    fn ask(&self, asked: &Asked) -> Typed {
        self.put(asked);
        *lock(&self.reading) = Reading::Answer(asked.address.clone());
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        let was = std::mem::take(&mut *lock(&self.reading));
        match (read, was) {
            // Nobody was asked any more.
            (_, Reading::Nothing | Reading::Stale) => Typed::Late,
            (Ok(0) | Err(_), Reading::Answer(_)) => {
                // The prompt's line is still open.
                let _ = writeln!(io::stderr());
                Typed::End
            }
            (Ok(_), Reading::Answer(_)) => Typed::Answer(line.trim_end_matches(['\r', '\n']).to_owned()),
        }
    }

    fn put(&self, asked: &Asked) {
        self.screen.hold();
        let paint = self.screen.paint();
        let mut err = io::stderr().lock();
        let _ = writeln!(err, "\n{} {}", paint.name(&asked.address), inert(&asked.question.prompt));
        for (index, choice) in asked.question.choices.iter().enumerate() {
            let _ = writeln!(err, "  {}  {}", paint.name(&(index + 1).to_string()), inert(&choice.value));
        }
        let _ = write!(err, "{} ", paint.faint(&format!("{} >", shown_choices(&asked.question))));
        let _ = err.flush();
    }
}

fn lock(reading: &Mutex<Reading>) -> MutexGuard<'_, Reading> {
    reading.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number stands for the choice of that number, unless it is a choice itself.
pub(crate) fn choose(question: &Question, text: &str) -> String {
    let choices = &question.choices;
    let exact = choices.iter().any(|choice| choice.value == text);
    let numbered = text.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    match numbered {
        Some(choice) if !exact => choice.value.clone(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use flowcell::contract::Choice;

    use super::*;

    #[test]
    fn choices_may_be_given_by_number() {
        let choice = |value: &str| Choice { value: value.into(), label: None };
        let question = Question { choices: vec![choice("ship"), choice("hold"), choice("1")], ..Question::default() };
        for (typed, chosen) in
            [("ship", "ship"), ("2", "hold"), ("1", "1"), ("0", "0"), ("4", "4"), ("", ""), ("no", "no")]
        {
            assert_eq!(choose(&question, typed), chosen, "{typed}");
        }
    }
}
