//! Asking the person at the terminal what gates and agents ask.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    io::{self, BufRead, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use flowcell::{
    Channel, Event, FlowRunner, Host, Hub, HubError, Json, QuestionRef, RunResult, RunStatus, StartError, Waiting,
    contract::Question, waiting,
};
use tokio::sync::Notify;

use super::{
    answers,
    lines::{Subject, shown_choices},
    screen::Screen,
};
use crate::terminal::{guarded, inert};

/// The shortest time in which a person answers a new question. An earlier line was typed for the question before.
pub(crate) const REACTION: Duration = Duration::from_millis(200);

/// Asks one question after the other, on a thread of its own: reading a line takes as long as it takes.
pub(super) struct Asker {
    screen: Arc<Screen>,
    given: Vec<(String, String)>,
    answering: Arc<Mutex<Option<Hub>>>,
    state: Mutex<State>,
    deserted: Arc<Notify>,
}

#[derive(Default)]
struct State {
    desk: Option<mpsc::Sender<News>>,
    open: Vec<Asked>,
}

#[derive(Clone, PartialEq)]
struct Asked {
    address: String,
    question: Question,
    /// The reference that its answer carries.
    asked: QuestionRef,
}

/// A message to the desk.
enum News {
    Asked(Asked),
    /// The question at this address is not open any more.
    Closed(String),
    /// A line was typed at this time; none: nothing will be typed any more.
    Line(Option<String>, Instant),
}

impl Asker {
    /// An asker that tries the given answers before it asks.
    pub(super) fn new(screen: Arc<Screen>, given: &[(String, String)]) -> Asker {
        let (answering, state, deserted) = Default::default();
        Asker { screen, given: given.to_vec(), answering, state, deserted }
    }

    /// Runs until the end, or until nobody types any more: then the run is parked.
    pub(super) async fn until_deserted(&self, runner: FlowRunner, flow: &str) -> RunResult {
        let run_id = runner.hub().run_id().clone();
        let began = Instant::now();
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

    /// Asks what the run has asked before it is gone on with here: no event tells it again. Answers go to this hub from now on.
    pub(super) fn catch_up(&self, host: &Host, hub: &Hub) -> Result<(), StartError> {
        *lock(&self.answering) = Some(hub.clone());
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

    /// Is told when nobody types any more.
    pub(super) fn deserted(&self) -> Arc<Notify> {
        self.deserted.clone()
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
        lock(&self.state)
    }

    /// Takes back a question.
    fn close(&self, address: String) {
        let mut state = self.state();
        let before = state.open.len();
        state.open.retain(|asked| asked.address != address);
        // The thread ends only when the run is to be parked.
        if let Some(desk) = state.desk.as_ref().filter(|_| state.open.len() < before) {
            let _ = desk.send(News::Closed(address));
        }
    }

    /// Hands a question to the thread that asks, and starts that when there is a first one.
    fn enqueue(&self, asked: Asked) {
        let mut state = self.state();
        if !state.open.contains(&asked) {
            state.open.push(asked.clone());
        }
        if state.desk.is_none() {
            match Desk::start(self.answering.clone(), self.screen.clone(), self.given.clone(), self.deserted.clone()) {
                Ok(desk) => state.desk = Some(desk),
                Err(_) => return self.deserted.notify_one(),
            }
        }
        // The thread ends only when the run is to be parked.
        if let Some(desk) = &state.desk {
            let _ = desk.send(News::Asked(asked));
        }
    }
}

impl Channel for Asker {
    fn on_start(&self, hub: &Hub) {
        lock(&self.answering).get_or_insert_with(|| hub.clone());
    }

    fn on_event(&self, event: &Event) {
        let Some(root) = lock(&self.answering).as_ref().map(|hub| hub.run_id().clone()) else { return };
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
                    // The run takes an answer that was given before; a person is asked again if the run refuses it.
                    let given = answers::given(&self.given, &address);
                    if given.is_some_and(|(_, value)| answers::is_admitted(&question, value)) {
                        return;
                    }
                    self.enqueue(Asked { address, question, asked });
                }
            }
            "agent:tool:decision" | "call:error" => self.close(of_call(&subject.address)),
            // However it went on, the question is not open any more.
            "task:woken" | "session:reply" => self.close(subject.address),
            "task:complete" | "task:failed" | "task:cancelled" | "task:retry" => {
                let calls = format!("{}#", subject.address);
                let open: Vec<_> = self.state().open.iter().map(|asked| asked.address.clone()).collect();
                let of_task = |address: &String| *address == subject.address || address.starts_with(&calls);
                open.into_iter().filter(of_task).for_each(|address| self.close(address));
            }
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers a question of the run.
type Reply = Box<dyn Fn(&Asked, Json) -> Result<(), HubError> + Send>;

/// Where questions are put to a person.
struct Desk {
    reply: Reply,
    screen: Arc<Screen>,
    given: Vec<(String, String)>,
    /// Asks the other thread for a line.
    wanted: mpsc::Sender<()>,
    /// A line is wanted and has not come yet.
    is_reading: bool,
    /// Nothing will be typed any more.
    is_over: bool,
    queue: VecDeque<Asked>,
    shown: Option<Shown>,
}

/// The question that a person sees.
struct Shown {
    asked: Asked,
    /// The time at which it replaced another question on the screen.
    instead: Option<Instant>,
}

impl Desk {
    fn start(
        answering: Arc<Mutex<Option<Hub>>>,
        screen: Arc<Screen>,
        given: Vec<(String, String)>,
        deserted: Arc<Notify>,
    ) -> io::Result<mpsc::Sender<News>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let (desk, news) = mpsc::channel();
        let (wanted, wishes) = mpsc::channel();
        let typed = desk.clone();
        thread::Builder::new().name("typed".into()).spawn(move || read_lines(&wishes, &typed))?;
        let reply: Reply = Box::new(move |asked, answer| {
            // The process that drives the run may be another one by now.
            let Some(hub) = lock(&answering).clone() else { return Err(HubError::RunEnded) };
            runtime.block_on(hub.reply_to(&asked.address, answer, asked.asked.clone()))
        });
        let mut at = Desk::new(reply, screen, given, wanted);
        thread::Builder::new().name("questions".into()).spawn(move || {
            // The channels end with the process.
            while let Ok(news) = news.recv() {
                if !at.hear(news) {
                    return deserted.notify_one();
                }
            }
        })?;
        Ok(desk)
    }

    fn new(reply: Reply, screen: Arc<Screen>, given: Vec<(String, String)>, wanted: mpsc::Sender<()>) -> Desk {
        let queue = VecDeque::new();
        Desk { reply, screen, given, wanted, is_reading: false, is_over: false, queue, shown: None }
    }

    /// Handles a message. Returns false once no person can answer any more.
    fn hear(&mut self, news: News) -> bool {
        match news {
            // What is told twice is asked once.
            News::Asked(asked) if self.knows(&asked) => {}
            News::Asked(asked) => self.queue.push_back(asked),
            News::Closed(address) => self.close(&address),
            News::Line(line, at) => {
                self.is_reading = false;
                match line {
                    Some(line) => self.typed(&line, at),
                    None => self.is_over = true,
                }
            }
        }
        self.put_next(None)
    }

    fn knows(&self, asked: &Asked) -> bool {
        self.queue.contains(asked) || self.shown.as_ref().is_some_and(|shown| shown.asked == *asked)
    }

    /// A question was answered elsewhere, or its time is over: the next one takes its place at once.
    fn close(&mut self, address: &str) {
        self.queue.retain(|asked| asked.address != address);
        if self.shown.as_ref().is_none_or(|shown| shown.asked.address != address) {
            return;
        }
        self.shown = None;
        // The begun line was typed for the closed question.
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
        self.screen
            .break_in(&format!("`{address}` does not wait any more; it was answered elsewhere, or its time is over"));
        self.put_next(Some(Instant::now()));
        if self.shown.is_none() {
            self.screen.release();
        }
    }

    fn typed(&mut self, line: &str, at: Instant) {
        let Some(Shown { asked, instead }) = self.shown.take() else {
            return self.screen.warn_now(&format!("no question is open: the line `{line}` is not used"));
        };
        if instead.is_some_and(|since| at < since + REACTION) {
            let why = format!("the line `{line}` was typed before `{}` was asked, and is not used", asked.address);
            self.screen.warn_now(&why);
            self.shown = Some(Shown { asked, instead: None });
            return self.ask();
        }
        if self.answer(&asked, line) {
            // Further questions follow at once, without the status line between them.
            self.screen.release();
        } else {
            self.put(asked, None);
        }
    }

    /// Puts the next question, unless one is shown. Returns false if no person can answer it.
    fn put_next(&mut self, instead: Option<Instant>) -> bool {
        while self.shown.is_none()
            && let Some(asked) = self.queue.pop_front()
        {
            let given = answers::given(&self.given, &asked.address).map(|(_, value)| value.clone());
            if !given.is_some_and(|value| self.answer(&asked, &value)) {
                self.put(asked, instead);
            }
        }
        if self.is_over && self.shown.is_some() {
            // The prompt's line is still open.
            let _ = writeln!(io::stderr());
            return false;
        }
        true
    }

    /// Answers a question. False: the run did not take that, and it is to be asked again.
    fn answer(&self, asked: &Asked, text: &str) -> bool {
        let answer = answers::answer(&choose(&asked.question, text));
        match (self.reply)(asked, answer) {
            Ok(()) | Err(HubError::RunEnded) => true,
            Err(HubError::AnswerRefused(why)) => {
                self.screen.warn_now(&format!("`{}` did not take `{text}`: {why}", asked.address));
                false
            }
            Err(error) => {
                self.screen.warn_now(&format!("`{}` did not take `{text}`: {}", asked.address, error.message()));
                true
            }
        }
    }

    fn put(&mut self, asked: Asked, instead: Option<Instant>) {
        self.shown = Some(Shown { asked, instead });
        self.ask();
    }

    /// Shows the question and asks for a line.
    fn ask(&mut self) {
        let Some(Shown { asked, .. }) = &self.shown else { return };
        self.screen.hold();
        let paint = self.screen.paint();
        // Writing to a string does not fail.
        let mut text = format!("\n{} {}\n", paint.name(&asked.address), inert(&asked.question.prompt));
        for (index, choice) in asked.question.choices.iter().enumerate() {
            let _ = writeln!(text, "  {}  {}", paint.name(&(index + 1).to_string()), inert(&choice.value));
        }
        let _ = write!(text, "{} ", paint.faint(&format!("{} >", shown_choices(&asked.question))));
        let mut err = io::stderr().lock();
        let _ = err.write_all(guarded(&text).as_bytes()).and_then(|()| err.flush());
        if !self.is_reading && !self.is_over {
            self.is_reading = self.wanted.send(()).is_ok();
        }
    }
}

/// Reads a line whenever one is wanted. What is typed before stays with the terminal.
fn read_lines(wanted: &mpsc::Receiver<()>, news: &mpsc::Sender<News>) {
    while wanted.recv().is_ok() {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        let line = matches!(read, Ok(1..)).then(|| line.trim_end_matches(['\r', '\n']).to_owned());
        if news.send(News::Line(line, Instant::now())).is_err() {
            return;
        }
    }
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
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

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

    /// A desk, the answers that it has given, and the lines that it wants.
    fn desk(given: &[(String, String)]) -> (Desk, mpsc::Receiver<(String, String)>, mpsc::Receiver<()>) {
        let (told, replies) = mpsc::channel();
        let (wanted, wishes) = mpsc::channel();
        let reply: Reply = Box::new(move |asked, answer| {
            let text = answer.get("content").and_then(Json::as_str).unwrap_or_default().to_owned();
            match text.as_str() {
                "perhaps" => Err(HubError::AnswerRefused("the answer must be one of: yes, no".into())),
                _ => {
                    told.send((asked.address.clone(), text)).unwrap();
                    Ok(())
                }
            }
        });
        let screen = Arc::new(Screen::new(crate::terminal::Terminal::detect(), true));
        (Desk::new(reply, screen, given.to_vec(), wanted), replies, wishes)
    }

    fn asked(address: &str) -> News {
        let question = Question { prompt: "Well?".into(), allow_text: true, ..Question::default() };
        News::Asked(Asked { address: address.into(), question, asked: QuestionRef::default() })
    }

    fn line(text: &str, at: Instant) -> News {
        News::Line(Some(text.into()), at)
    }

    fn shown(desk: &Desk) -> Option<&str> {
        desk.shown.as_ref().map(|shown| shown.asked.address.as_str())
    }

    #[test]
    fn a_question_that_is_answered_elsewhere_makes_room_at_once_and_no_line_is_taken_for_another() {
        let (mut desk, replies, wishes) = desk(&[]);
        assert!(desk.hear(asked("a")) && desk.hear(asked("b")));
        assert_eq!(shown(&desk), Some("a"));
        let now = Instant::now();
        assert!(desk.hear(News::Closed("a".into())));
        assert_eq!(shown(&desk), Some("b"), "without a line");
        assert!(desk.hear(line("of a", now)));
        assert!(replies.try_recv().is_err() && shown(&desk) == Some("b"), "it was typed for the other question");
        assert!(desk.hear(line("of b", now + 10 * REACTION)));
        assert_eq!(replies.try_recv().unwrap(), ("b".into(), "of b".into()));
        assert_eq!(wishes.try_iter().count(), 2, "one line is wanted at a time");
        assert!(desk.hear(line("of nobody", now)));
        assert!(replies.try_recv().is_err() && shown(&desk).is_none());
    }

    #[test]
    fn a_question_is_asked_again_until_the_run_takes_an_answer() {
        let given = [("b".to_owned(), "yes".to_owned()), ("c".to_owned(), "perhaps".to_owned())];
        let (mut desk, replies, _wishes) = desk(&given);
        let now = Instant::now();
        assert!(desk.hear(asked("a")) && desk.hear(line("perhaps", now)));
        assert_eq!(shown(&desk), Some("a"));
        assert!(desk.hear(asked("b")) && desk.hear(asked("c")) && desk.hear(line("no", now)));
        assert_eq!(replies.try_iter().map(|(address, _)| address).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(shown(&desk), Some("c"), "the given answer was refused");
        assert!(!desk.hear(News::Line(None, now)), "nobody types any more");
    }

    #[test]
    fn a_question_that_nobody_saw_is_taken_back_in_silence() {
        let (mut desk, _replies, _wishes) = desk(&[]);
        assert!(desk.hear(asked("a")) && desk.hear(asked("b")) && desk.hear(News::Closed("b".into())));
        assert_eq!(shown(&desk), Some("a"));
        assert!(desk.hear(line("yes", Instant::now())) && shown(&desk).is_none());
    }
}
