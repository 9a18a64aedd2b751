//! The state of the screen: the tree of a run, the cursor, the folds, and the reaction to keys. It knows no terminal.

use std::collections::{BTreeMap, HashSet};

use flowcell::{
    Event, QuestionRef, RunId, RunRow,
    tree::{Tree, Twig},
};

use super::{
    outcome::Outcome,
    rows::{CalledTasks, Item, Place, Row, Wait, question_at, rows},
};
use crate::session::{answers, question_queue::choose};

/// Maximum number of called runs whose tasks are shown at a time.
const MAX_CALLED_RUNS: usize = 8;

/// A key of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    Enter,
    Escape,
    Backspace,
    /// Deletes the typed text.
    Clear,
    /// Draws the whole screen again.
    Redraw,
    /// Leaves at once, in each view.
    Interrupt,
    Char(char),
    /// A character of a pasted text. It counts only in an answer, so that no pasted letter is a command.
    Pasted(char),
}

/// Something that the model asks its caller to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Interrupt,
    Redraw,
    /// Read the details of the task at this address.
    ShowTask(String),
    Answer {
        address: String,
        value: String,
        asked: QuestionRef,
    },
    Cancel,
    /// Repeat the run from this node, or from its start.
    Retry(Option<String>),
}

/// The part of the screen below the head.
#[derive(Debug, PartialEq)]
pub(super) enum View {
    Tree,
    Help,
    /// The details of a task, as text.
    Details {
        title: String,
        text: String,
    },
    /// The outputs or the error of the run, as text.
    Outcome {
        text: String,
    },
    /// A question, with the answer that is typed.
    Answer {
        wait: Wait,
        typed: String,
        refusal: String,
        /// True once the question is no longer open.
        is_closed: bool,
    },
    /// A question whether an action is meant.
    Confirm {
        question: String,
        action: Action,
    },
}

/// The state of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Head {
    pub(super) flow: String,
    /// `running`, `parked`, `needs_attention`, `succeeded`, `failed` or `cancelled`.
    pub(super) status: String,
    pub(super) began: u64,
    /// The time of the last change of the status.
    pub(super) changed: u64,
    /// The time at which a timer or a quota lets a parked run go on.
    pub(super) until: Option<u64>,
    /// The code of the error, or the reason for which the run is parked.
    pub(super) error: Option<String>,
}

impl Head {
    pub(super) fn of(row: &RunRow) -> Head {
        let status = if row.status == "active" { "running" } else { &row.status };
        Head {
            flow: row.flow.clone(),
            status: status.to_owned(),
            began: row.created,
            changed: row.updated,
            until: row.paused_until.or(row.due),
            error: row.error.clone(),
        }
    }

    /// Returns whether the run has ended.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.status.as_str(), "succeeded" | "failed" | "cancelled")
    }
}

/// A run that a task has called.
#[derive(Default)]
struct Called {
    /// The run, or the reason why it is not shown.
    note: String,
    tree: Tree,
}

/// The state of the screen.
pub(super) struct Model {
    pub(super) run: RunId,
    /// The options that select the run's tenant and store in another command.
    pub(super) selection: String,
    pub(super) head: Head,
    tree: Tree,
    waits: Vec<Wait>,
    /// The runs that opened tasks have called, by the addresses of the tasks.
    called: BTreeMap<String, Called>,
    opened: HashSet<String>,
    /// The end of the run, if it has ended.
    pub(super) outcome: Option<Outcome>,
    pub(super) view: View,
    /// The row under the cursor: its place, and its number, which counts if the place is gone.
    cursor: (Option<Place>, usize),
    /// The first row that is shown.
    pub(super) top: usize,
    /// The first line that is shown of a text.
    pub(super) scroll: usize,
    /// The number of rows that the last frame had room for.
    pub(super) page: usize,
    /// The answer of the last action.
    pub(super) message: String,
    /// The reason for which the run cannot be read at present.
    pub(super) trouble: Option<String>,
}

impl Model {
    pub(super) fn new(run: RunId, selection: String) -> Model {
        Model {
            run,
            selection,
            head: Head::default(),
            tree: Tree::default(),
            waits: Vec::new(),
            called: BTreeMap::new(),
            opened: HashSet::new(),
            outcome: None,
            view: View::Tree,
            cursor: (None, 0),
            top: 0,
            scroll: 0,
            page: 1,
            message: String::new(),
            trouble: None,
        }
    }

    /// Adds the next event of the run.
    pub(super) fn add(&mut self, event: &Event) {
        self.tree.add(event);
    }

    /// Returns the addresses of the opened tasks that have called a run, at most [`MAX_CALLED_RUNS`].
    pub(super) fn open_calls(&mut self) -> Vec<String> {
        self.with_rows(|_, rows, _| {
            let open = rows.iter().filter(|row| row.is_open && matches!(row.item, Item::Task(task) if task.has_called));
            open.take(MAX_CALLED_RUNS).map(|row| row.place.address().to_owned()).collect()
        })
    }

    /// Returns whether a task was opened whose called run was not read yet.
    pub(super) fn lacks_call(&mut self) -> bool {
        self.open_calls().iter().any(|address| !self.called.contains_key(address))
    }

    /// Forgets the called runs of all tasks but these.
    pub(super) fn keep_calls(&mut self, addresses: &[String]) {
        self.called.retain(|address, _| addresses.contains(address));
    }

    /// Shows that a task has called a run, of which no event is known yet.
    pub(super) fn begin_call(&mut self, address: &str, run: &RunId) {
        let called = Called { note: format!("the run {run}"), tree: Tree::default() };
        self.called.insert(address.to_owned(), called);
    }

    /// Adds the next event of a called run.
    pub(super) fn add_to_call(&mut self, address: &str, event: &Event) {
        if let Some(called) = self.called.get_mut(address) {
            called.tree.add(event);
            if called.tree.left_out() > 0 {
                called.note = format!("the run {}, without its {} later tasks", event.run_id, called.tree.left_out());
            }
        }
    }

    /// Shows why a called run cannot be read. Its known tasks stay.
    pub(super) fn set_call_note(&mut self, address: &str, note: String) {
        self.called.entry(address.to_owned()).or_default().note = note;
    }

    /// Replaces the waits of the run. If the question that is being answered has closed, its page stays until Escape:
    /// the keys that a person goes on typing are no commands.
    pub(super) fn set_waits(&mut self, waits: Vec<Wait>) {
        self.waits = waits;
        if let View::Answer { wait, refusal, is_closed, .. } = &mut self.view
            && !self.waits.iter().any(|open| open.address == wait.address && open.asked == wait.asked)
        {
            *is_closed = true;
            *refusal =
                "this question is closed: somebody has answered it, or its time is over; Esc goes back".to_owned();
        }
    }

    /// Shows the details of a task.
    pub(super) fn show_details(&mut self, address: &str, text: String) {
        self.show(View::Details { title: address.to_owned(), text });
    }

    /// Shows that an answer was refused. The typed text stays.
    pub(super) fn refuse(&mut self, why: String) {
        match &mut self.view {
            View::Answer { refusal, .. } => *refusal = why,
            _ => self.message = why,
        }
    }

    /// Leaves a prompt whose question needs no answer any more.
    pub(super) fn close_prompt(&mut self, message: String) {
        self.show(View::Tree);
        self.message = message;
    }

    /// Returns the number of tasks that the tree has no room for.
    pub(super) fn left_out(&self) -> u64 {
        self.tree.left_out()
    }

    /// Returns the tasks and the waits of the run.
    pub(super) fn tasks_and_waits(&mut self) -> (&[Twig], &[Wait]) {
        (self.tree.present(), &self.waits)
    }

    /// Calls `visit` with the waits, the rows and the number of the row under the cursor.
    pub(super) fn with_rows<T>(&mut self, visit: impl FnOnce(&[Wait], &[Row<'_>], usize) -> T) -> T {
        let called = self.called.iter_mut().map(|(address, called)| {
            (address.as_str(), CalledTasks { note: &called.note, tasks: called.tree.present() })
        });
        let rows = rows(self.tree.present(), &self.waits, &self.opened, &called.collect());
        let (place, number) = &self.cursor;
        let found = place.as_ref().and_then(|place| rows.iter().position(|row| row.place == *place));
        let at = found.unwrap_or(*number).min(rows.len().saturating_sub(1));
        self.cursor = (rows.get(at).map(|row| row.place.clone()), at);
        visit(&self.waits, &rows, at)
    }

    /// Reacts to a key.
    pub(super) fn press(&mut self, key: Key) -> Option<Action> {
        match key {
            Key::Interrupt => return Some(Action::Interrupt),
            Key::Redraw => return Some(Action::Redraw),
            _ => {}
        }
        match &mut self.view {
            View::Tree => self.press_in_tree(key),
            View::Help | View::Details { .. } | View::Outcome { .. } => self.press_in_text(key),
            View::Answer { is_closed: true, .. } if key != Key::Escape => None,
            View::Answer { wait, typed, refusal, .. } => match key {
                Key::Enter => {
                    let Some(question) = &wait.question else { return None };
                    let value = choose(question, typed);
                    // Enter may be pressed once too often.
                    let refusal = match answers::accepted_if_refused(question, &value) {
                        Some(takes) => Some(format!("it takes {takes}")),
                        None => typed.is_empty().then(|| "type an answer".to_owned()),
                    };
                    if let Some(refusal) = refusal {
                        self.refuse(refusal);
                        return None;
                    }
                    Some(Action::Answer { address: wait.address.clone(), value, asked: wait.asked.clone() })
                }
                Key::Char(_) | Key::Pasted(_) | Key::Backspace | Key::Clear => {
                    refusal.clear();
                    match key {
                        Key::Char(letter) | Key::Pasted(letter) => typed.push(letter),
                        Key::Backspace => _ = typed.pop(),
                        _ => typed.clear(),
                    }
                    None
                }
                Key::Left | Key::Right => None,
                _ => self.press_in_text(key),
            },
            View::Confirm { .. } if matches!(key, Key::Pasted(_)) => None,
            View::Confirm { action, .. } => {
                let action = action.clone();
                self.show(View::Tree);
                if matches!(key, Key::Char('y' | 'Y')) {
                    return Some(action);
                }
                self.message = "nothing was changed".to_owned();
                None
            }
        }
    }

    fn press_in_tree(&mut self, key: Key) -> Option<Action> {
        self.message.clear();
        match key {
            Key::Up | Key::Char('k') => self.go(|at, _, _| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.go(|at, _, _| at + 1),
            Key::PageUp => self.go(|at, page, _| at.saturating_sub(page)),
            Key::PageDown => self.go(|at, page, _| at + page),
            Key::Home => self.go(|_, _, _| 0),
            Key::End => self.go(|_, _, rows| rows.len()),
            Key::Tab => {
                if self.waits.is_empty() {
                    self.message = "the run waits for nothing".to_owned();
                }
                // From the last wait on to the first one.
                self.go(|at, _, rows| {
                    let is_wait = |at: &usize| matches!(rows[*at].item, Item::Wait(_));
                    (at + 1..rows.len()).find(is_wait).or_else(|| (0..rows.len()).find(is_wait)).unwrap_or(at)
                });
            }
            Key::Right | Key::Char('l') => self.open(),
            Key::Left | Key::Char('h') => self.fold(),
            Key::Char(' ') => self.toggle(),
            Key::Enter => return self.enter(),
            Key::Char('a') => self.ask(),
            Key::Char('c') => match self.head.has_ended() {
                true => self.message = "the run has ended".to_owned(),
                false => self.confirm(format!("Cancel the run {}?", self.run), Action::Cancel),
            },
            Key::Char('r') => self.ask_to_retry(),
            Key::Char('o') => match &self.outcome {
                Some(outcome) => {
                    let text = outcome.text(&self.run, &self.selection);
                    self.show(View::Outcome { text });
                }
                None => self.message = "the run has not ended, so it has no outputs".to_owned(),
            },
            Key::Char('?') => self.show(View::Help),
            Key::Char('q') => return Some(Action::Quit),
            _ => {}
        }
        None
    }

    /// Scrolls a text. `q` and Escape leave it.
    fn press_in_text(&mut self, key: Key) -> Option<Action> {
        let page = self.page.max(1);
        match key {
            Key::Up | Key::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            Key::Down | Key::Char('j') => self.scroll = self.scroll.saturating_add(1),
            Key::PageUp => self.scroll = self.scroll.saturating_sub(page),
            Key::PageDown | Key::Char(' ') => self.scroll = self.scroll.saturating_add(page),
            Key::Home => self.scroll = 0,
            // The frame limits it to the last page.
            Key::End => self.scroll = usize::MAX,
            Key::Escape | Key::Enter | Key::Left | Key::Char('q' | 'h' | '?') => self.show(View::Tree),
            _ => {}
        }
        None
    }

    fn show(&mut self, view: View) {
        self.view = view;
        self.scroll = 0;
        self.message.clear();
    }

    fn confirm(&mut self, question: String, action: Action) {
        self.view = View::Confirm { question, action };
    }

    /// Moves the cursor to the row whose number `to` returns for the present one, the rows of a page, and all rows.
    fn go(&mut self, to: impl FnOnce(usize, usize, &[Row<'_>]) -> usize) {
        let page = self.page.max(1);
        let place = self.with_rows(|_, rows, at| {
            let at = to(at, page, rows).min(rows.len().saturating_sub(1));
            (rows.get(at).map(|row| row.place.clone()), at)
        });
        self.cursor = place;
    }

    /// Opens the row under the cursor. If it is open, goes to the first row below it.
    fn open(&mut self) {
        let row = self.with_rows(|_, rows, at| {
            rows.get(at).filter(|row| row.can_open()).map(|row| (row.place.address().to_owned(), row.is_open))
        });
        match row {
            Some((_, true)) => self.go(|at, _, _| at + 1),
            Some((address, false)) => _ = self.opened.insert(address),
            None => {}
        }
    }

    /// Folds the row under the cursor. If it is folded, goes to the row above it in the tree.
    fn fold(&mut self) {
        let open = self.with_rows(|_, rows, at| {
            rows.get(at).filter(|row| row.is_open && row.can_open()).map(|row| row.place.address().to_owned())
        });
        match open {
            Some(address) => _ = self.opened.remove(&address),
            None => self.go(|at, _, rows| {
                let depth = rows.get(at).map_or(0, |row| row.depth);
                (0..at).rev().find(|above| rows[*above].depth < depth).unwrap_or(at)
            }),
        }
    }

    fn toggle(&mut self) {
        let is_open = self.with_rows(|_, rows, at| rows.get(at).is_some_and(|row| row.is_open));
        if is_open { self.fold() } else { self.open() }
    }

    /// Opens the details of a task. A pass, and a cycle of edges, opens and folds instead.
    fn enter(&mut self) -> Option<Action> {
        let task = self.with_rows(|_, rows, at| {
            let row = rows.get(at)?;
            match row.item {
                Item::Task(task) if task.is_task => Some(row.place.address().to_owned()),
                Item::Task(_) | Item::Pass(_) | Item::Note(_) => None,
                // The address of a call names its task, too.
                Item::Wait(wait) => wait.address.split('#').next().filter(|task| !task.is_empty()).map(str::to_owned),
            }
        });
        if task.is_none() {
            self.toggle();
        }
        task.map(Action::ShowTask)
    }

    /// Shows the open question under the cursor with a prompt.
    fn ask(&mut self) {
        let wait =
            self.with_rows(|waits, rows, at| rows.get(at).and_then(|row| question_at(waits, &row.place)).cloned());
        match wait {
            Some(wait) => {
                let (typed, refusal) = (String::new(), String::new());
                self.show(View::Answer { wait, typed, refusal, is_closed: false });
            }
            None => self.message = "no question is open here; Tab goes to the next wait".to_owned(),
        }
    }

    fn ask_to_retry(&mut self) {
        if !self.head.has_ended() {
            self.message = "the run has not ended; it can be repeated then".to_owned();
            return;
        }
        // A run is repeated from a node of the flow itself, so a task in a body stands for its outermost owner.
        let from = self.with_rows(|_, rows, at| {
            let address = rows.get(at)?.place.address();
            address.split(['.', '[', '/', '#']).next().filter(|node| !node.is_empty()).map(str::to_owned)
        });
        let question = match &from {
            Some(node) => format!(
                "Repeat the run from `{node}` as a new run? Questions before it are asked again, and the nodes after \
                 them run again."
            ),
            None => "Repeat the run as a new run?".to_owned(),
        };
        self.confirm(question, Action::Retry(from));
    }
}
