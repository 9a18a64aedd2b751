//! `flowcell runs watch`: shows a run on the full screen of a terminal while it goes on, and steers it.

mod draw;
mod feed;
mod frame;
mod model;
mod outcome;
mod rows;
mod screen;
#[cfg(test)]
mod tests;

use std::{
    io,
    pin::pin,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use flowcell::{QuestionRef, RunCommand, RunId, control::OwnerRequest};

use self::{
    feed::{Feed, Wake},
    model::{Action, Key, Model, View},
    screen::Screen,
};
use super::{deliver, input};
use crate::{
    arguments::{run_id, shell_word},
    cli_error::{CliError, Exit},
    clock::now_ms,
    options::{PackArgs, TenantArgs},
    output::put,
    owner::{Owner, ask_owner, new_run_id, with_present_owner},
    session::{
        answers,
        interrupt::{Signal, Signals},
    },
    terminal::{Paint, Terminal},
};

/// Interval between two drawings without news, for the times on the screen.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Reading a run takes at most one of this number of parts of the time, so that a long run does not occupy a processor.
const READ_SHARE: u32 = 10;
/// Shortest interval between two reads of a run.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(50);

/// Arguments of `flowcell runs watch`.
#[derive(Args)]
#[command(
    after_help = "Keys: arrows or h j k l move, open and fold; Enter shows a task; Tab goes to the next question; a \
                        answers it; c cancels the run; r repeats an ended run from a node; o shows the outputs of an \
                        ended run; ? lists the keys and the signs; q leaves, and the run goes on\n\n\
                        Signs: ! blocked, ✗ failed, ? asking a person, ◎ listening for an event or a message, ◷ waiting \
                        for a time, ◌ waiting for its own nodes or a called flow, ↻ retrying, ● running, ○ ready, \
                        ⊘ cancelled, ✓ succeeded, - skipped"
)]
pub(crate) struct WatchArgs {
    /// The id of the run
    #[arg(value_name = "RUN", value_parser = run_id)]
    run: RunId,
    #[command(flatten)]
    of: TenantArgs,
    #[command(flatten)]
    packs: PackArgs,
}

/// Something that the loop of the screen reacts to.
enum Input {
    Key(Key),
    /// The run may have changed, or the size of the terminal has.
    News,
    Signal(Signal),
    /// The keys cannot be read any more.
    Gone(io::Error),
}

pub(super) fn execute(args: &WatchArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let mut model = Model::new(args.run.clone(), args.of.selection());
    let mut feed = Feed::open(&args.of, &args.packs, &args.run)?;
    feed.read_or_tell(&mut model)?;
    if !terminal.has_full_screen() {
        let lines = draw::snapshot(&mut model, now_ms());
        put(&lines.iter().map(|line| format!("{}\n", line.text())).collect::<String>())?;
        return Ok(Exit::Good);
    }
    let (sender, inputs) = mpsc::channel();
    read_keys(sender.clone())?;
    read_signals(sender.clone())?;
    let wake = listen(args, &model, &sender)?;
    let screen = Screen::open(terminal.paint_of_output().is_coloured()).map_err(|error| unusable(&error))?;
    // The screen is closed when this returns, so that an error is printed on the usual one.
    Watch { screen, args, model, feed, wake, sender, due: None }.run(&inputs)
}

fn unusable(error: &io::Error) -> CliError {
    CliError::internal("cannot use the terminal").because(error)
}

/// Sends the keys of the person from a thread, which ends with the process.
fn read_keys(sender: Sender<Input>) -> Result<(), CliError> {
    let read = move || {
        loop {
            let inputs = match screen::read_keys() {
                Ok(keys) if keys.is_empty() => vec![Input::News],
                Ok(keys) => keys.into_iter().map(Input::Key).collect(),
                Err(error) => vec![Input::Gone(error)],
            };
            let is_last = matches!(inputs[..], [Input::Gone(_)]);
            if inputs.into_iter().any(|input| sender.send(input).is_err()) || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".into()).spawn(read).map(|_| ()).map_err(|error| unusable(&error))
}

/// Sends the first signal that ends the process, so that the usual screen comes back before. A second one ends the
/// process at once. Returns when the signals are handled.
fn read_signals(sender: Sender<Input>) -> Result<(), CliError> {
    let cannot = |error: io::Error| CliError::internal("cannot listen for signals").because(&error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(cannot)?;
    let (ready, is_ready) = mpsc::channel();
    let read = move || {
        runtime.block_on(async {
            let Ok(mut signals) = Signals::listen() else { return };
            let first = {
                let mut next = pin!(signals.next());
                match futures_util::poll!(next.as_mut()) {
                    Poll::Ready(first) => first,
                    Poll::Pending => {
                        let _ = ready.send(());
                        next.await
                    }
                }
            };
            let Some(first) = first else { return };
            let _ = sender.send(Input::Signal(first));
            if let Some(second) = signals.next().await {
                screen::close();
                std::process::exit(i32::from(second.exit().code()));
            }
        });
    };
    thread::Builder::new().name("signals".into()).spawn(read).map_err(cannot)?;
    // It fails if the process cannot listen for signals. Each signal then ends it at once.
    let _ = is_ready.recv();
    Ok(())
}

/// Sends news of a run from the process that owns the store. An ended run has none.
fn listen(args: &WatchArgs, model: &Model, sender: &Sender<Input>) -> Result<Wake, CliError> {
    let (wake, sender) = (Wake::default(), sender.clone());
    if model.head.has_ended() {
        return Ok(wake);
    }
    wake.listen(&args.of, &model.run, move || _ = sender.send(Input::News))?;
    Ok(wake)
}

/// A run on the screen.
struct Watch<'a> {
    /// The first member, so that the usual screen comes back before the store is closed.
    screen: Screen,
    args: &'a WatchArgs,
    model: Model,
    feed: Feed,
    wake: Wake,
    sender: Sender<Input>,
    /// The time of the next read. `None`: after the usual interval.
    due: Option<Instant>,
}

impl Watch<'_> {
    fn run(mut self, inputs: &Receiver<Input>) -> Result<Exit, CliError> {
        let (mut last, mut earliest) = (Instant::now(), Instant::now());
        loop {
            let size = self.screen.size().map_err(|error| unusable(&error))?;
            let lines = draw::frame(&mut self.model, size, now_ms());
            self.screen.draw(lines).map_err(|error| unusable(&error))?;
            let next = self.due.unwrap_or(last + self.wake.interval(self.model.head.has_ended())).max(earliest);
            let patience = next.saturating_duration_since(Instant::now()).min(CLOCK_INTERVAL);
            let mut input = match inputs.recv_timeout(patience) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                // This process holds a sender.
                Err(RecvTimeoutError::Disconnected) => return Ok(Exit::Good),
            };
            // All that has arrived is handled before the next drawing.
            while let Some(arrived) = input {
                if let Some(exit) = self.handle(arrived)? {
                    return Ok(exit);
                }
                input = inputs.try_recv().ok();
            }
            let next = self.due.unwrap_or(next).max(earliest);
            if Instant::now() >= next {
                let began = Instant::now();
                self.due = None;
                self.wake.take();
                self.feed.read_or_tell(&mut self.model)?;
                last = Instant::now();
                earliest = last + (READ_SHARE * began.elapsed()).max(MIN_READ_INTERVAL);
            }
        }
    }

    fn handle(&mut self, input: Input) -> Result<Option<Exit>, CliError> {
        match input {
            Input::News => self.due = Some(Instant::now()),
            Input::Signal(signal) => return Ok(Some(signal.exit())),
            Input::Gone(error) => return Err(unusable(&error)),
            Input::Key(key) => match self.model.press(key) {
                None if self.model.view == View::Tree && self.model.lacks_call() => self.due = Some(Instant::now()),
                None => {}
                Some(Action::Quit) => return Ok(Some(Exit::Good)),
                Some(Action::Interrupt) => return Ok(Some(Exit::Interrupted)),
                Some(action) => {
                    self.act(action);
                    // Opening the store may have written a warning.
                    self.screen.forget();
                    self.due = Some(Instant::now());
                }
            },
        }
        Ok(None)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::ShowTask(address) => match self.details(&address) {
                Ok(text) => self.model.show_details(&address, text),
                Err(problem) => self.model.refuse(problem.plain()),
            },
            Action::Answer { address, value, asked } => match self.answer(address, &value, asked) {
                Ok(said) => self.model.close_prompt(said),
                Err(problem) => self.model.refuse(problem.plain()),
            },
            Action::Cancel => {
                let said = deliver(&self.args.of, self.model.run.clone(), RunCommand::Cancel);
                self.model.message = said.unwrap_or_else(|problem| problem.plain());
            }
            Action::Retry(from) => {
                if let Err(problem) = self.retry(from) {
                    self.model.message = problem.plain();
                }
            }
            Action::Quit | Action::Interrupt | Action::Redraw => {}
        }
    }

    /// Returns the attempts of a task as text, with long values cut.
    fn details(&self, address: &str) -> Result<String, CliError> {
        let at = (&self.model.run, address);
        let inputs = input::read(self.feed.host(), self.feed.reader(), at, (0, None))?;
        Ok(input::render(&inputs, at, &self.model.selection, Paint::plain()))
    }

    fn answer(&self, address: String, value: &str, asked: QuestionRef) -> Result<String, CliError> {
        let reply = RunCommand::reply(address, answers::answer(value), asked);
        deliver(&self.args.of, self.model.run.clone(), reply)
    }

    /// Lets the process that owns the store repeat the run, and shows the new run.
    fn retry(&mut self, from: Option<String>) -> Result<(), CliError> {
        let WatchArgs { of, packs, .. } = self.args;
        let run = self.model.run.clone();
        let node = from.as_ref().map(|node| format!(" --from {}", shell_word(node))).unwrap_or_default();
        let ask = OwnerRequest::Retry {
            run: run.clone(),
            from,
            keep_answers: false,
            new: Some(new_run_id()),
            answers: Default::default(),
            reach: packs.reach(),
        };
        let new = with_present_owner(|| match Owner::of(of.store.place()?, packs)? {
            Owner::Other(folder) => {
                of.refuse_beside_owner(&format!("POST /v1/runs/{run}/retry"))?;
                ask_owner(folder, &ask)
            }
            Owner::Here(_) => {
                let command = format!("flowcell runs retry {}{node}{}", shell_word(run.as_str()), of.selection());
                let why = format!("no process here would drive the new run; `{command}` does");
                Err(CliError::wrong(why))
            }
        })?;
        let (mut feed, mut model) = (Feed::open(of, packs, &new)?, Model::new(new, of.selection()));
        feed.read_or_tell(&mut model)?;
        model.message = format!("repeats {run}");
        (self.wake, self.feed, self.model) = (listen(self.args, &model, &self.sender)?, feed, model);
        Ok(())
    }
}
