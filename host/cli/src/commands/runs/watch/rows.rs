//! The rows of a run: its tasks, the passes of opened bodies, and its waits.

use std::collections::{BTreeMap, HashSet};

use flowcell::{
    Json, QuestionRef,
    contract::Question,
    tree::{Pass, Twig, rank},
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
    /// The question. `None` for another wait.
    pub(super) question: Option<Question>,
    /// The reference to the question, which binds an answer to it.
    pub(super) asked: QuestionRef,
}

impl Wait {
    /// Reads a wait from the list of a run.
    pub(super) fn of(waits: &Value) -> Wait {
        let member = |name: &str| waits[name].as_str().unwrap_or_default();
        let (text, question) = match member("kind") {
            "gate" => {
                let question = answers::read_question(&Json::from(waits.clone()));
                (question.prompt.clone(), Some(question))
            }
            "event" => (format!("waits for the event `{}`", member("event")), None),
            "message" => ("waits for a message".to_owned(), None),
            "more" => (format!("{} more waits are not shown", waits["leftOut"]), None),
            _ => (format!("needs a decision: {}", member("message")), None),
        };
        let asked = QuestionRef::of_json(&Json::from(waits.clone()));
        Wait { address: member("address").to_owned(), text, question, asked }
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
            Item::Task(task) => !task.passes.is_empty(),
            Item::Pass(pass) => !pass.tasks.is_empty(),
            Item::Wait(_) => false,
        }
    }
}

/// Returns the rows of a run. `opened` has the addresses of the tasks and passes that are not folded.
pub(super) fn rows<'a>(tasks: &'a [Twig], waits: &'a [Wait], opened: &HashSet<String>) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    add_tasks(tasks, "", 0, opened, &mut rows);
    rows.extend(waits.iter().map(|wait| Row {
        item: Item::Wait(wait),
        place: Place::Wait(wait.address.clone()),
        depth: 0,
        is_open: false,
    }));
    rows
}

fn add_tasks<'a>(tasks: &'a [Twig], prefix: &str, depth: usize, opened: &HashSet<String>, rows: &mut Vec<Row<'a>>) {
    for task in tasks {
        let address = format!("{prefix}{}", task.id);
        let is_open = opened.contains(&address);
        rows.push(Row { item: Item::Task(task), place: Place::Tree(address.clone()), depth, is_open });
        if !is_open {
            continue;
        }
        // The pass that needs a person is not searched for among thousands.
        let mut passes: Vec<_> = task.passes.iter().collect();
        passes.sort_by_cached_key(|pass| rank(pass.status()));
        for pass in passes {
            let address = format!("{address}[{}]", pass.index);
            let is_open = opened.contains(&address);
            rows.push(Row { item: Item::Pass(pass), place: Place::Tree(address.clone()), depth: depth + 1, is_open });
            if is_open {
                add_tasks(&pass.tasks, &format!("{address}."), depth + 2, opened, rows);
            }
        }
    }
}

/// Counts the tasks of a run by their states, those in bodies, too.
pub(super) fn count(tasks: &[Twig], counts: &mut BTreeMap<&'static str, u64>) {
    for task in tasks {
        if task.is_task {
            *counts.entry(task.status).or_default() += 1;
        }
        task.passes.iter().for_each(|pass| count(&pass.tasks, counts));
    }
}

/// Writes counts by states, the most urgent first: `2 failed, 1 running, 7 succeeded`.
pub(super) fn tally(counts: &BTreeMap<&'static str, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(status, _)| rank(status));
    counts.iter().map(|(status, count)| format!("{count} {status}")).collect::<Vec<_>>().join(", ")
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
