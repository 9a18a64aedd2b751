//! The rows of a run: its tasks, the passes of opened bodies, and its waits.

use std::collections::{BTreeMap, HashMap, HashSet};

use flowcell::{
    Json, QuestionRef,
    contract::Question,
    tree::{Pass, Twig, WaitsFor, rank},
};
use serde_json::Value;

use crate::session::answers;

/// Something that a run waits for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wait {
    /// The address, such as `approve`, `each[2].approve`, `review/approve` or `assistant#3`.
    pub(super) address: String,
    /// What the run waits for, in words.
    pub(super) text: String,
    /// The state of a task that has only this wait.
    pub(super) state: &'static str,
    /// The question. `None` for another wait.
    pub(super) question: Option<Question>,
    /// The reference to the question, which binds an answer to it.
    pub(super) asked: QuestionRef,
}

impl Wait {
    /// Reads a wait from the list of a run.
    pub(super) fn of(waits: &Value) -> Wait {
        let member = |name: &str| waits[name].as_str().unwrap_or_default();
        let (state, text, question) = match member("kind") {
            "gate" => {
                let question = answers::read_question(&Json::from(waits.clone()));
                ("asking", question.prompt.clone(), Some(question))
            }
            "event" => ("listening", format!("waits for the event `{}`", member("event")), None),
            "message" => ("listening", "waits for a message".to_owned(), None),
            "more" => ("waiting", format!("{} more waits are not shown", waits["leftOut"]), None),
            _ => ("blocked", format!("needs a decision: {}", member("message")), None),
        };
        let asked = QuestionRef::of_json(&Json::from(waits.clone()));
        Wait { address: member("address").to_owned(), text, state, question, asked }
    }

    /// Returns whether a task, or a task in a pass or a called flow at this place, waits.
    fn is_at(&self, address: &str) -> bool {
        let rest = self.address.strip_prefix(address);
        !address.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '/', '#']))
    }
}

/// The thing that a row shows.
#[derive(Clone, Copy)]
pub(super) enum Item<'a> {
    /// A task, or a cycle of edges.
    Task(&'a Twig),
    Pass(&'a Pass),
    Wait(&'a Wait),
    /// A text about a called run.
    Note(&'a str),
}

/// The tasks of a run that a task has called.
pub(super) struct CalledTasks<'a> {
    /// The run, or the reason why it is not shown.
    pub(super) note: &'a str,
    pub(super) tasks: &'a [Twig],
}

/// A row, and its place in the tree.
pub(super) struct Row<'a> {
    pub(super) item: Item<'a>,
    pub(super) place: Place,
    pub(super) depth: usize,
    /// True if the passes or the tasks below it are shown.
    pub(super) is_open: bool,
}

/// The place of a row, which stays the same while the run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The address of a task or a pass.
    Tree(String),
    /// The address of a wait.
    Wait(String),
}

impl Place {
    pub(super) fn address(&self) -> &str {
        match self {
            Place::Tree(address) | Place::Wait(address) => address,
        }
    }
}

impl Row<'_> {
    /// Returns whether the row has rows below it, shown or not.
    pub(super) fn can_open(&self) -> bool {
        match self.item {
            Item::Task(task) => !task.passes.is_empty() || task.has_called,
            Item::Pass(pass) => !pass.tasks.is_empty(),
            Item::Wait(_) | Item::Note(_) => false,
        }
    }
}

/// The tasks of called runs, by the addresses of the tasks that have called them.
pub(super) type CalledRuns<'a> = HashMap<&'a str, CalledTasks<'a>>;

/// The text for a called run that was not read yet.
const UNREAD: &str = "the called run is not read yet; fold others if many are open";

/// Returns the rows of a run. `opened` has the addresses of the tasks and passes that are not folded.
pub(super) fn rows<'a>(
    tasks: &'a [Twig],
    waits: &'a [Wait],
    opened: &HashSet<String>,
    called: &CalledRuns<'a>,
) -> Vec<Row<'a>> {
    let mut tree = TreeRows { opened, called, rows: Vec::new() };
    tree.add_tasks(tasks, "", 0);
    let mut rows = tree.rows;
    rows.extend(waits.iter().map(|wait| Row {
        item: Item::Wait(wait),
        place: Place::Wait(wait.address.clone()),
        depth: 0,
        is_open: false,
    }));
    rows
}

struct TreeRows<'a, 'b> {
    opened: &'b HashSet<String>,
    called: &'b CalledRuns<'a>,
    rows: Vec<Row<'a>>,
}

impl<'a> TreeRows<'a, '_> {
    fn add_tasks(&mut self, tasks: &'a [Twig], prefix: &str, depth: usize) {
        for task in tasks {
            let address = format!("{prefix}{}", task.id);
            if !self.add(Item::Task(task), &address, depth) {
                continue;
            }
            if task.has_called {
                let (note, tasks) = self.called.get(&*address).map_or((UNREAD, &[][..]), |run| (run.note, run.tasks));
                self.add(Item::Note(note), &format!("{address}/"), depth + 1);
                self.add_tasks(tasks, &format!("{address}/"), depth + 1);
            }
            // The pass that needs a person is not searched for among thousands.
            let mut passes: Vec<_> = task.passes.iter().collect();
            passes.sort_by_cached_key(|pass| urgency(state_of_pass(pass)));
            for pass in passes {
                let address = format!("{address}[{}]", pass.index);
                if self.add(Item::Pass(pass), &address, depth + 1) {
                    self.add_tasks(&pass.tasks, &format!("{address}."), depth + 2);
                }
            }
        }
    }

    /// Adds a row. Returns whether it is open.
    fn add(&mut self, item: Item<'a>, address: &str, depth: usize) -> bool {
        let is_open = self.opened.contains(address);
        self.rows.push(Row { item, place: Place::Tree(address.to_owned()), depth, is_open });
        is_open
    }
}

/// Returns the state of a task in the words of the console: of a waiting one, `asking` if a person has to answer, and
/// `listening` if it waits for an event or a message.
pub(super) fn state_of(task: &Twig) -> &'static str {
    match task.waits_for {
        Some(WaitsFor::Person) => "asking",
        Some(WaitsFor::Event) => "listening",
        _ => task.status,
    }
}

/// Returns the most urgent state of the tasks in a pass.
pub(super) fn state_of_pass(pass: &Pass) -> &'static str {
    pass.tasks.iter().map(state_of).min_by_key(|state| urgency(state)).unwrap_or("succeeded")
}

/// Returns the place of a state in the order of their urgency.
fn urgency(state: &str) -> (usize, u8) {
    match state {
        "asking" => (rank("waiting"), 0),
        "listening" => (rank("waiting"), 1),
        state => (rank(state), 2),
    }
}

/// Counts the tasks of a run by their states, those in bodies, too.
pub(super) fn count(tasks: &[Twig], counts: &mut BTreeMap<&'static str, u64>) {
    for task in tasks {
        if task.is_task {
            *counts.entry(state_of(task)).or_default() += 1;
        }
        task.passes.iter().for_each(|pass| count(&pass.tasks, counts));
    }
}

/// Counts the passes of a task's body by their states.
pub(super) fn count_passes(task: &Twig) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    task.passes.iter().for_each(|pass| *counts.entry(state_of_pass(pass)).or_default() += 1);
    counts
}

/// Writes counts by states, the most urgent first: `2 failed, 1 running, 7 succeeded`.
pub(super) fn tally(counts: &BTreeMap<&'static str, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(state, _)| urgency(state));
    counts.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
}

/// Returns the first open question at a place, or below it.
pub(super) fn question_at<'a>(waits: &'a [Wait], place: &Place) -> Option<&'a Wait> {
    waits.iter().filter(|wait| wait.question.is_some()).find(|wait| match place {
        Place::Wait(address) => wait.address == *address,
        Place::Tree(address) => wait.is_at(address),
    })
}

/// Returns the first wait of a task itself.
pub(super) fn wait_of<'a>(waits: &'a [Wait], address: &str) -> Option<&'a Wait> {
    waits.iter().find(|wait| wait.address.split('#').next() == Some(address))
}
