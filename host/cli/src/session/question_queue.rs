//! Asks a person one question after the other. A line answers a question only if the person typed it after the
//! question appeared.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    io::{self, BufRead, Write},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use flowcell::{Hub, HubError, Json, QuestionRef, contract::Question};
use parking_lot::Mutex;
use rustix::termios::{self, LocalModes, OptionalActions};
use tokio::sync::Notify;

use super::{answers, lines::shown_choices, screen::Screen};
use crate::terminal::{guarded, inert};

/// The shortest reaction time of a person. A line that arrives sooner after a question appears was typed for the
/// previous question.
pub(crate) const MIN_REACTION_TIME: Duration = Duration::from_millis(200);

/// An open question of the run.
#[derive(Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) address: String,
    pub(crate) question: Question,
    /// The reference to the question, which the answer has to contain.
    pub(crate) asked: QuestionRef,
}

/// A message to the queue.
pub(crate) enum Message {
    Asked(Asked),
    /// The question at this address has closed, for this reason.
    Closed(String, &'static str),
    /// A typed line. `None` is the end of the input.
    Line(Option<Typed>),
}

/// A line from standard input.
pub(crate) struct Typed {
    line: String,
    /// The time at which the end of the line arrived.
    at: Instant,
    /// True if the line arrived in several parts, because the terminal had to deliver its beginning before its end was
    /// typed.
    in_parts: bool,
}

/// Sends an answer to the run.
type Reply = Box<dyn Fn(&Asked, Json) -> Result<(), HubError> + Send>;

/// The question on the screen, and the queue of those that are asked after it.
pub(crate) struct QuestionQueue {
    reply: Reply,
    screen: Arc<Screen>,
    given: Vec<(String, String)>,
    /// Requests a line from the thread that reads standard input.
    wanted: mpsc::Sender<()>,
    /// True while a requested line has not arrived.
    is_reading: bool,
    /// True if, since the last line, the terminal was told to deliver the beginning of an unfinished line.
    is_released: bool,
    /// True after the end of standard input.
    is_over: bool,
    queue: VecDeque<Asked>,
    shown: Option<Shown>,
}

/// The question on the screen.
struct Shown {
    asked: Asked,
    /// The time at which the question replaced a closed question on the screen. `None` if it replaced none.
    instead: Option<Instant>,
}

impl QuestionQueue {
    pub(crate) fn start(
        answering: Arc<Mutex<Option<Hub>>>,
        screen: Arc<Screen>,
        given: Vec<(String, String)>,
        input_ended: Arc<Notify>,
    ) -> io::Result<mpsc::Sender<Message>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let (questions, messages) = mpsc::channel();
        let (wanted, wishes) = mpsc::channel();
        let typed = questions.clone();
        thread::Builder::new().name("typed".into()).spawn(move || read_lines(&wishes, &typed))?;
        let reply: Reply = Box::new(move |asked, answer| {
            // Look the hub up for each answer, because it is replaced if another process drives the run by now.
            let Some(hub) = answering.lock().clone() else { return Err(HubError::RunEnded) };
            runtime.block_on(hub.reply_to(&asked.address, answer, asked.asked.clone()))
        });
        let mut at = QuestionQueue::new(reply, screen, given, wanted);
        thread::Builder::new().name("questions".into()).spawn(move || {
            // The senders live until the process ends.
            while let Ok(message) = messages.recv() {
                if !at.handle(message) {
                    return input_ended.notify_one();
                }
            }
        })?;
        Ok(questions)
    }

    fn new(reply: Reply, screen: Arc<Screen>, given: Vec<(String, String)>, wanted: mpsc::Sender<()>) -> QuestionQueue {
        let queue = VecDeque::new();
        let (is_reading, is_released, is_over, shown) = Default::default();
        QuestionQueue { reply, screen, given, wanted, is_reading, is_released, is_over, queue, shown }
    }

    /// Handles a message, and shows the next question. Returns false once a question is open but the input has ended.
    fn handle(&mut self, message: Message) -> bool {
        match message {
            // An event may repeat a question that is already known.
            Message::Asked(asked) if self.knows(&asked) => {}
            Message::Asked(asked) => self.queue.push_back(asked),
            Message::Closed(address, why) => self.close(&address, why),
            Message::Line(typed) => {
                self.is_reading = false;
                let is_released = std::mem::take(&mut self.is_released);
                match typed {
                    Some(typed) => self.typed(&typed, is_released),
                    None => self.is_over = true,
                }
            }
        }
        self.show_next(None)
    }

    fn knows(&self, asked: &Asked) -> bool {
        self.queue.contains(asked) || self.shown.as_ref().is_some_and(|shown| shown.asked == *asked)
    }

    /// Removes a closed question. If it was on the screen, prints that it is closed, and shows the next question at
    /// once.
    fn close(&mut self, address: &str, why: &str) {
        self.queue.retain(|asked| asked.address != address);
        if self.shown.as_ref().is_none_or(|shown| shown.asked.address != address) {
            return;
        }
        self.shown = None;
        self.is_released = true;
        release_begun_line();
        self.screen.warn_on_new_line(&format!("the question at `{address}` is closed; {why}"));
        self.show_next(Some(Instant::now()));
        if self.shown.is_none() {
            self.screen.release();
        }
    }

    fn typed(&mut self, typed: &Typed, is_released: bool) {
        let line = typed.line.as_str();
        let Some(Shown { asked, instead }) = self.shown.take() else {
            return self.screen.warn_now(&format!("the line `{line}` is ignored, because no question is open"));
        };
        let is_begun = is_released && typed.in_parts;
        if is_begun || instead.is_some_and(|since| typed.at < since + MIN_REACTION_TIME) {
            let why = format!("the line `{line}` is ignored, because you began it before `{}` asked", asked.address);
            self.screen.warn_now(&why);
            self.shown = Some(Shown { asked, instead: None });
            return self.ask();
        }
        if self.answer(&asked, line) {
            // Write the lines that were kept during the question. The caller then shows the next question at once,
            // without the status line between them.
            self.screen.release();
        } else {
            self.put(asked, None);
        }
    }

    /// Unless a question is on the screen, takes questions from the queue: sends the answers that were given in
    /// advance, and shows the first question without such an answer. `instead` is the time at which the previous
    /// question closed before the person answered it, or `None` if no question has just closed in this way. Returns
    /// false if a question is on the screen but the input has ended.
    fn show_next(&mut self, instead: Option<Instant>) -> bool {
        while self.shown.is_none()
            && let Some(asked) = self.queue.pop_front()
        {
            let given = answers::given(&self.given, &asked.address).map(|(_, value)| value.clone());
            let given = given.filter(|value| answers::is_accepted(&asked.question, value));
            if !given.is_some_and(|value| self.answer(&asked, &value)) {
                self.put(asked, instead);
            }
        }
        if self.is_over && self.shown.is_some() {
            // End the line with the prompt, since no typed line will end it.
            let _ = writeln!(io::stderr());
            return false;
        }
        true
    }

    /// Sends an answer to the run. Returns false if the question has to be asked again, because the run has refused
    /// the answer. Returns true if the answer was accepted, or if the question is no longer open.
    fn answer(&self, asked: &Asked, text: &str) -> bool {
        let answer = answers::answer(&choose(&asked.question, text));
        match (self.reply)(asked, answer) {
            Ok(()) | Err(HubError::RunEnded) => true,
            Err(HubError::AnswerRefused(why)) => {
                self.screen.warn_now(&format!("`{}` refused `{text}`: {why}", asked.address));
                false
            }
            Err(error) => {
                self.screen.warn_now(&format!("`{}` refused `{text}`: {}", asked.address, error.message()));
                matches!(error, HubError::GateClosed | HubError::NotOpen(_))
            }
        }
    }

    fn put(&mut self, asked: Asked, instead: Option<Instant>) {
        self.shown = Some(Shown { asked, instead });
        self.ask();
    }

    /// Writes the question to standard error, and requests a line if none is requested yet.
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

/// Makes the terminal deliver the beginning of an unfinished line, so that this line later has several parts and
/// counts as begun before now. Without a terminal, does nothing.
fn release_begun_line() {
    let Ok(usual) = termios::tcgetattr(io::stdin()) else { return };
    let mut at_once = usual.clone();
    at_once.local_modes.remove(LocalModes::ICANON);
    let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &at_once);
    let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &usual);
}

/// Reads a line for each request, and sends it to the queue. Text that is typed without a request stays in the
/// terminal's buffer.
fn read_lines(wanted: &mpsc::Receiver<()>, messages: &mpsc::Sender<Message>) {
    while wanted.recv().is_ok() {
        let typed = read_line(&mut io::stdin().lock());
        if messages.send(Message::Line(typed)).is_err() {
            return;
        }
    }
}

/// Reads a line. Returns `None` at the end of the input.
fn read_line(input: &mut impl BufRead) -> Option<Typed> {
    let (mut line, mut parts) = (Vec::new(), 0);
    loop {
        let part = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            part => part.unwrap_or_default(),
        };
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(part.len(), |end| end + 1);
        line.extend_from_slice(&part[..taken]);
        input.consume(taken);
        if taken == 0 && line.is_empty() {
            return None;
        }
        if end.is_some() || taken == 0 {
            let line = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            return Some(Typed { line, at: Instant::now(), in_parts: parts > 0 });
        }
        parts += 1;
    }
}

/// Replaces a number by the choice with that number, counted from 1, unless the number itself is a choice. Returns any
/// other text unchanged.
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

    /// Returns a queue, the answers that it gives, and its requests for lines.
    fn new_queue(given: &[(String, String)]) -> (QuestionQueue, mpsc::Receiver<(String, String)>, mpsc::Receiver<()>) {
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
        (QuestionQueue::new(reply, screen, given.to_vec(), wanted), replies, wishes)
    }

    fn asked(address: &str) -> Message {
        let question = Question { prompt: "Well?".into(), allow_text: true, ..Question::default() };
        Message::Asked(Asked { address: address.into(), question, asked: QuestionRef::default() })
    }

    fn line(text: &str, at: Instant) -> Message {
        Message::Line(Some(Typed { line: text.into(), at, in_parts: false }))
    }

    fn shown(questions: &QuestionQueue) -> Option<&str> {
        questions.shown.as_ref().map(|shown| shown.asked.address.as_str())
    }

    #[test]
    fn a_question_answered_elsewhere_closes_and_its_line_answers_no_other() {
        let (mut questions, replies, wishes) = new_queue(&[]);
        assert!(questions.handle(asked("a")) && questions.handle(asked("b")));
        assert_eq!(shown(&questions), Some("a"));
        let now = Instant::now();
        assert!(questions.handle(Message::Closed("a".into(), "it is over")));
        assert_eq!(shown(&questions), Some("b"), "without a line");
        assert!(questions.handle(line("of a", now)));
        assert!(replies.try_recv().is_err() && shown(&questions) == Some("b"), "it was typed for the other question");
        assert!(questions.handle(line("of b", now + 10 * MIN_REACTION_TIME)));
        assert_eq!(replies.try_recv().unwrap(), ("b".into(), "of b".into()));
        assert_eq!(wishes.try_iter().count(), 2, "one line is wanted at a time");
        assert!(questions.handle(line("of nobody", now)));
        assert!(replies.try_recv().is_err() && shown(&questions).is_none());
    }

    #[test]
    fn a_line_begun_for_a_closed_question_answers_no_other() {
        let (mut questions, replies, _wishes) = new_queue(&[]);
        let late = Instant::now() + 10 * MIN_REACTION_TIME;
        let begun = || Message::Line(Some(Typed { line: "yes".into(), at: late, in_parts: true }));
        assert!(
            questions.handle(asked("a"))
                && questions.handle(Message::Closed("a".into(), "it is over"))
                && questions.handle(asked("b"))
        );
        assert!(questions.handle(begun()) && shown(&questions) == Some("b"));
        assert!(replies.try_recv().is_err());
        assert!(questions.handle(begun()), "nothing was closed while it was typed");
        assert_eq!(replies.try_recv().unwrap(), ("b".into(), "yes".into()));
    }

    #[test]
    fn a_line_may_come_in_parts() {
        let read = |parts: &[&[u8]]| {
            let mut input = Parts(parts.iter().map(|part| part.to_vec()).collect());
            read_line(&mut input).map(|typed| (typed.line, typed.in_parts))
        };
        assert_eq!(read(&[b"yes\n"]), Some(("yes".into(), false)));
        assert_eq!(read(&[b"ye", b"s\r\nno\n"]), Some(("yes".into(), true)));
        assert_eq!(read(&["é".as_bytes().split_at(1).0, "é\n".as_bytes().split_at(1).1]), Some(("é".into(), true)));
        assert_eq!(read(&[b"ye"]), Some(("ye".into(), true)));
        assert_eq!(read(&[]), None);
    }

    /// A buffer that returns its content one part at a time.
    struct Parts(VecDeque<Vec<u8>>);

    impl io::Read for Parts {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            unreachable!("lines are read from the buffer")
        }
    }

    impl BufRead for Parts {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            Ok(self.0.front().map_or(&[], Vec::as_slice))
        }

        fn consume(&mut self, taken: usize) {
            if let Some(part) = self.0.front_mut() {
                part.drain(..taken);
                if part.is_empty() {
                    self.0.pop_front();
                }
            }
        }
    }

    #[test]
    fn a_question_is_asked_again_until_the_run_accepts_an_answer() {
        let given = [("b".to_owned(), "yes".to_owned()), ("c".to_owned(), "perhaps".to_owned())];
        let (mut questions, replies, _wishes) = new_queue(&given);
        let now = Instant::now();
        assert!(questions.handle(asked("a")) && questions.handle(line("perhaps", now)));
        assert_eq!(shown(&questions), Some("a"));
        assert!(questions.handle(asked("b")) && questions.handle(asked("c")) && questions.handle(line("no", now)));
        assert_eq!(replies.try_iter().map(|(address, _)| address).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(shown(&questions), Some("c"), "the given answer was refused");
        assert!(!questions.handle(Message::Line(None)), "the input has ended");
    }

    #[test]
    fn a_question_that_was_not_shown_closes_silently() {
        let (mut questions, _replies, _wishes) = new_queue(&[]);
        assert!(
            questions.handle(asked("a"))
                && questions.handle(asked("b"))
                && questions.handle(Message::Closed("b".into(), "it is over"))
        );
        assert_eq!(shown(&questions), Some("a"));
        assert!(questions.handle(line("yes", Instant::now())) && shown(&questions).is_none());
    }
}
