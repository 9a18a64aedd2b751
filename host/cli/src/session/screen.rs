//! Writes to standard error during a run: permanent lines, and on a terminal a status line below them. While a person
//! is asked a question, the lines are kept, and written after the answer.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use crate::terminal::{Paint, Terminal, inert};

/// The interval between updates of the status line.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of lines that are kept while a person is asked a question.
const MAX_HELD: usize = 1_000;

/// Standard error, shared by all front ends of a run.
pub(crate) struct Screen {
    terminal: Terminal,
    quiet: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    status: Option<ProgressBar>,
    /// The kept lines. `None` while no person is asked.
    held: Option<Held>,
}

/// The lines to write after the person has answered.
#[derive(Default)]
struct Held {
    lines: Vec<String>,
    /// The number of lines that were dropped, because [`MAX_HELD`] lines were kept already.
    left_out: usize,
}

impl Screen {
    /// Creates a screen. A quiet screen has no status line and no remarks.
    pub(crate) fn new(terminal: Terminal, quiet: bool) -> Screen {
        Screen { terminal, quiet, state: Mutex::default() }
    }

    /// Returns the colours of standard error.
    pub(crate) fn paint(&self) -> Paint {
        self.terminal.paint()
    }

    /// Returns whether standard error is a terminal.
    pub(crate) fn is_watched(&self) -> bool {
        self.terminal.watched
    }

    /// Writes a line above the status line, or keeps it while a person is asked.
    pub(crate) fn line(&self, text: &str) {
        let mut state = self.state.lock();
        match &mut state.held {
            Some(held) if held.lines.len() < MAX_HELD => held.lines.push(text.to_owned()),
            Some(held) => held.left_out += 1,
            None => self.write(&state, text),
        }
    }

    /// Writes a remark, unless the screen is quiet.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.line(&self.paint().faint(text));
        }
    }

    /// Writes a warning above the status line, or keeps it while a person is asked.
    pub(crate) fn warn(&self, text: &str) {
        self.line(&format!("{}: {}", self.paint().warning("warning"), inert(text)));
    }

    /// Writes a warning at once, even while a person is being asked.
    pub(crate) fn warn_now(&self, text: &str) {
        let state = self.state.lock();
        self.write(&state, &format!("{}: {}", self.paint().warning("warning"), inert(text)));
    }

    /// Writes a warning at once, on a new line if a person is typing.
    pub(crate) fn warn_on_new_line(&self, text: &str) {
        if self.state.lock().held.is_some() {
            self.terminal.say("");
        }
        self.warn_now(text);
    }

    /// Sets the text of the status line. Does nothing on a quiet screen, without a terminal, or while a person is
    /// asked.
    pub(crate) fn status(&self, text: &str) {
        if !self.terminal.watched || self.quiet {
            return;
        }
        let mut state = self.state.lock();
        if state.held.is_none() {
            state.status.get_or_insert_with(status_line).set_message(text.to_owned());
        }
    }

    /// Hides the status line, and keeps lines from now on, because a question is shown.
    pub(crate) fn hold(&self) {
        let mut state = self.state.lock();
        clear(&mut state);
        state.held.get_or_insert_default();
    }

    /// Writes the kept lines, and keeps none from now on.
    pub(crate) fn release(&self) {
        let mut state = self.state.lock();
        let Held { lines, left_out } = state.held.take().unwrap_or_default();
        for text in lines {
            self.write(&state, &text);
        }
        if left_out > 0 {
            self.write(&state, &format!("… and {left_out} more lines, written during the question"));
        }
    }

    /// Removes the status line, and writes the kept lines, at the end of the run.
    pub(crate) fn close(&self) {
        clear(&mut self.state.lock());
        // The run ended while a person was being asked.
        if self.state.lock().held.is_some() {
            self.terminal.say("");
        }
        self.release();
    }

    fn write(&self, state: &State, text: &str) {
        match &state.status {
            Some(status) => status.suspend(|| self.terminal.say(text)),
            None => self.terminal.say(text),
        }
    }
}

fn clear(state: &mut State) {
    if let Some(status) = state.status.take() {
        status.finish_and_clear();
    }
}

fn status_line() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(STATUS_INTERVAL);
    bar
}
