//! Draws the state of the screen as lines. Only the rows that fit are drawn.

use std::{collections::BTreeMap, time::Duration};

use flowcell::{
    shape::time,
    tree::{Twig, WaitsFor},
};

use super::{
    frame::{Line, Style, columns, ending, folded, hints, shortened, wrapped},
    model::{Head, Model, View},
    rows::{Item, Row, Wait, count, count_passes, state_of, state_of_pass, tally, wait_of},
};
use crate::{
    arguments::{quote, shell_word},
    duration,
    terminal::counted,
};

/// Maximum number of lines above the rows that show the end of a run.
const MAX_OUTCOME_LINES: usize = 6;
/// Maximum number of lines of a message or a question below the rows.
const MAX_MESSAGE_LINES: usize = 4;
/// The rows keep at least this number of lines.
const MIN_ROWS: usize = 3;
/// The name of a row keeps at least this number of columns.
const MIN_NAME_COLUMNS: usize = 6;
/// Columns by which a row stands to the right of the row above it in the tree.
const INDENT: usize = 2;
/// Maximum number of lines shown of a text.
const MAX_TEXT_LINES: usize = 5_000;
/// The text before a typed answer.
const PROMPT: &str = "> ";

const KEYS: [(&str, &str); 11] = [
    ("↑ ↓, k j", "go to the row above or below; PgUp, PgDn, Home and End go further"),
    (
        "→, l",
        "open the passes of a task, the tasks of a pass, or those of a called flow; the most urgent passes come first",
    ),
    ("←, h", "fold them, or go to the row above in the tree; the space bar opens and folds"),
    ("Enter", "show the attempts of a task with their input, calls, output and error"),
    ("Tab", "go to the next question, or to something else that the run waits for"),
    ("a", "answer the question under the cursor"),
    ("c", "cancel the run"),
    ("r", "repeat a run that has ended, from the node under the cursor"),
    ("o", "show the outputs, or the error, of a run that has ended"),
    ("Ctrl-L", "draw the screen again"),
    ("q", "leave a page or the command; the run goes on"),
];

/// The signs of tasks with their states, the most urgent first.
const STATES: [(&str, &str, &str); 12] = [
    ("!", "blocked", "a person has to decide how it goes on"),
    ("✗", "failed", "it failed"),
    ("?", "asking", "it waits for a person"),
    ("◎", "listening", "it waits for an event or a message"),
    (TIMER, "waiting", "it waits for a time"),
    ("◌", "waiting", "it waits for its own nodes, or for a called flow"),
    ("↻", "retrying", "it waits for its next attempt"),
    ("●", "running", "it is running"),
    ("○", "ready", "it is about to begin"),
    ("⊘", "cancelled", "it was cancelled"),
    ("✓", "succeeded", "it succeeded"),
    ("-", "skipped", "it did not run"),
];

/// The keys below the tree, with the ranks in which a narrow terminal keeps them.
const HINTS: [(u8, &str); 8] = [
    (0, "? help"),
    (1, "q quit"),
    (7, "↑↓ go"),
    (6, "→← open"),
    (4, "Enter details"),
    (2, "a answer"),
    (3, "c cancel"),
    (5, "r repeat"),
];
/// The same keys below the tree of a run that has ended.
const END_HINTS: [(u8, &str); 7] = [
    (0, "? help"),
    (1, "q quit"),
    (6, "↑↓ go"),
    (5, "→← open"),
    (4, "Enter details"),
    (2, "o outputs"),
    (3, "r repeat"),
];

/// Returns the lines of the screen, at most `height`. `now` is the time in milliseconds since 1970.
pub(super) fn frame(model: &mut Model, (width, height): (usize, usize), now: u64) -> Vec<Line> {
    let text = match &model.view {
        View::Tree | View::Confirm { .. } => None,
        View::Help => Some(help(width)),
        View::Details { title, text } => Some(details(model, title, text, width)),
        View::Outcome { text } => Some(outcome(model, text, width)),
        View::Answer { wait, .. } => Some(question(model, wait, width)),
    };
    let mut lines = head(model, now);
    let foot_lines = foot(model, width, 0).len();
    if text.is_none() {
        let room = height.saturating_sub(lines.len() + foot_lines + MIN_ROWS).min(MAX_OUTCOME_LINES);
        lines.extend(
            model.outcome.iter().flat_map(|outcome| outcome.lines((&model.run, &model.selection), width, room)),
        );
    }
    let page = height.saturating_sub(lines.len() + foot_lines).max(1);
    model.page = page;
    let rows_end = lines.len() + page;
    let more = match text {
        Some(text) => {
            model.scroll = model.scroll.min(text.len().saturating_sub(page));
            let shown = text.iter().skip(model.scroll).take(page);
            lines.extend(shown.cloned());
            text.len().saturating_sub(model.scroll + page)
        }
        None => {
            lines.extend(tree(model, width, now));
            0
        }
    };
    lines.resize(rows_end, Line::default());
    lines.extend(foot(model, width, more));
    lines.truncate(height);
    lines.into_iter().map(|line| line.cut(width)).collect()
}

/// Returns the whole tree with its folds as lines, for an output that is not a terminal.
pub(super) fn snapshot(model: &mut Model, now: u64) -> Vec<Line> {
    let mut lines = head(model, now);
    lines.extend(
        model
            .outcome
            .iter()
            .flat_map(|outcome| outcome.lines((&model.run, &model.selection), usize::MAX, MAX_OUTCOME_LINES)),
    );
    lines.extend(
        model.with_rows(|waits, rows, _| {
            rows.iter().map(|row| row_line(row, waits, usize::MAX, now)).collect::<Vec<_>>()
        }),
    );
    lines
}

/// Draws the flow, the run, its state and the states of its tasks.
fn head(model: &mut Model, now: u64) -> Vec<Line> {
    let left_out = model.left_out();
    let (tasks, waits) = model.tasks_and_waits();
    let mut counts = BTreeMap::new();
    count(tasks, &mut counts);
    let open = waits.iter().filter(|wait| wait.question.is_some()).count();
    let Head { flow, status, error, until, .. } = &model.head;
    let first = Line::of(Style::Name, flow).apart(Style::Faint, model.run.as_str());
    let mut second = Line::of(style_of(status), status);
    if let Some(trouble) = &model.trouble {
        second = second.apart(Style::Bad, trouble);
    }
    second = second.apart(Style::Plain, &age(&model.head, now));
    if let Some(error) = error {
        second = second.apart(style_of(status), error);
    }
    if let Some(until) = until.filter(|_| !model.head.has_ended()) {
        second = second.apart(Style::Plain, &format!("until {}", time(until)));
    }
    if open > 0 {
        second = second.apart(Style::Attention, &counted(open, "open question"));
    }
    second = second.apart(Style::Plain, &tally(&counts));
    if left_out > 0 {
        second = second.apart(Style::Attention, &format!("{left_out} later tasks are not shown"));
    }
    vec![first, second]
}

/// Returns how long ago a run began, or how long an ended run took.
fn age(head: &Head, now: u64) -> String {
    let millis = |from: u64, to: u64| duration::show(Duration::from_millis(to.saturating_sub(from)));
    match head.has_ended() {
        true => format!("in {}", millis(head.began, head.changed)),
        false => format!("began {} ago", millis(head.began, now)),
    }
}

/// Draws the rows that fit, with the one under the cursor among them.
fn tree(model: &mut Model, width: usize, now: u64) -> Vec<Line> {
    let (page, before) = (model.page, model.top);
    let (lines, top) = model.with_rows(|waits, rows, at| {
        let last = rows.len().saturating_sub(page);
        let top = before.clamp((at + 1).saturating_sub(page), at).min(last);
        let shown = rows.iter().enumerate().skip(top).take(page).map(|(number, row)| {
            let mut line = row_line(row, waits, width, now);
            line.is_selected = number == at;
            line.parts.insert(0, (Style::Plain, if line.is_selected { "> " } else { "  " }.to_owned()));
            line
        });
        let mut lines: Vec<_> = shown.collect();
        if lines.is_empty() {
            lines.push(Line::of(Style::Faint, "  no task has begun"));
        }
        (lines, top)
    });
    model.top = top;
    lines
}

fn row_line(row: &Row<'_>, waits: &[Wait], width: usize, now: u64) -> Line {
    // A deep row at a narrow terminal still has its sign, the beginning of its name, and its state.
    let indent = " ".repeat((row.depth * INDENT).min(width / 4));
    let fold = match (row.can_open(), row.is_open) {
        (true, true) => "▾ ",
        (true, false) => "▸ ",
        (false, _) => "  ",
    };
    let start = |sign: &str, state: &str, name: &str| {
        let line = Line::of(Style::Plain, &format!("{indent}{fold}"));
        let line = line.with(style_of(state), sign).with(Style::Plain, " ");
        // Two columns are those of the cursor, two separate the state, and one is for the mark of a cut.
        let taken = indent.len() + columns(fold) + 2 + 2 + 2 + state.len() + 1;
        let name = shortened(name, width.saturating_sub(taken).max(MIN_NAME_COLUMNS));
        line.with(Style::Name, &name).apart(style_of(state), state)
    };
    match row.item {
        Item::Task(task) => {
            let name = if task.is_task { task.id.clone() } else { format!("{} (cycle)", task.id) };
            let state = state_of(task);
            let sign = if task.waits_for == Some(WaitsFor::Time) { TIMER } else { sign(state) };
            task_facts(start(sign, state, &name), task, waits, row.place.address(), now)
        }
        Item::Pass(pass) => {
            let mut counts = BTreeMap::new();
            count(&pass.tasks, &mut counts);
            let state = state_of_pass(pass);
            start(sign(state), state, &format!("[{}]", pass.index)).apart(Style::Faint, &tally(&counts))
        }
        Item::Wait(wait) => {
            let style = if wait.question.is_some() { Style::Attention } else { Style::Plain };
            let line = Line::of(Style::Plain, &format!("{indent}  "));
            let line = line.with(style_of(wait.state), sign(wait.state)).with(Style::Plain, " ");
            line.with(Style::Name, &wait.address).apart(style, &wait.text)
        }
        Item::Note(note) => Line::of(Style::Faint, &format!("{indent}    {note}")),
    }
}

fn task_facts(line: Line, task: &Twig, waits: &[Wait], address: &str, now: u64) -> Line {
    let has_ended = matches!(task.status, "succeeded" | "failed" | "skipped" | "cancelled");
    let millis = match task.duration_ms {
        Some(millis) if has_ended => Some(millis),
        _ => task.began.filter(|_| !has_ended).map(|began| now.saturating_sub(began)),
    };
    let passed = task.passes.len() as u64;
    let number = |count: u64, word: &str| counted(usize::try_from(count).unwrap_or(usize::MAX), word);
    let mut line = line.apart(Style::Plain, &millis.map(Duration::from_millis).map(duration::show).unwrap_or_default());
    if task.attempts > 1 {
        line = line.apart(Style::Attention, &number(task.attempts, "attempt"));
    }
    if task.calls > 0 {
        line = line.apart(Style::Faint, &number(task.calls, "call"));
    }
    if passed > 0 {
        let passes = if passed == 1 { "1 pass".to_owned() } else { format!("{passed} passes") };
        line = line.apart(Style::Plain, &format!("{passes}: {}", tally(&count_passes(task))));
    }
    if let Some(undone) = &task.undoes {
        line = line.apart(Style::Faint, &format!("undoes {undone}"));
    }
    if let Some(error) = &task.error {
        let member = |name: &str| error[name].as_str().unwrap_or_default();
        line = line.apart(Style::Bad, &format!("{}: {}", member("code"), member("message")));
    }
    match wait_of(waits, address) {
        Some(wait) => line.apart(Style::Attention, &wait.text),
        None => line,
    }
}

/// Draws the answer of the last action or a prompt, and the keys that count now.
fn foot(model: &Model, width: usize, more: usize) -> Vec<Line> {
    let hint = |text: &str| Line::of(Style::Faint, text);
    let message = |text: &str, style: Style| {
        let lines = folded(text, width, MAX_MESSAGE_LINES);
        lines.iter().map(|line| Line::of(style, line)).collect::<Vec<_>>()
    };
    let below = if more > 0 { format!("{} below", counted(more, "more line")) } else { String::new() };
    match &model.view {
        View::Tree => {
            let mut lines = message(&model.message, Style::Attention);
            lines.push(hint(&hints(if model.head.has_ended() { &END_HINTS } else { &HINTS }, width)));
            lines
        }
        View::Confirm { question, .. } => {
            let mut lines = message(question, Style::Attention);
            lines.push(hint(&hints(&[(0, "y yes"), (1, "any other key: no")], width)));
            lines
        }
        View::Help | View::Details { .. } | View::Outcome { .. } => {
            vec![hint(&below), hint(&hints(&[(1, "↑↓ PgUp PgDn scroll"), (0, "q back")], width))]
        }
        View::Answer { typed, refusal, .. } => {
            // The last letters are visible.
            let end = ending(typed, width.saturating_sub(PROMPT.len() + 2));
            let typed = Line::of(Style::Name, PROMPT).with(Style::Plain, &end).with(Style::Plain, "_");
            let help = match refusal.is_empty() {
                true => {
                    let keys = [(1, "Enter sends"), (3, "Ctrl-U clears"), (2, "Esc back")];
                    let more = (!below.is_empty()).then_some((0, below.as_str()));
                    vec![hint(&hints(&more.into_iter().chain(keys).collect::<Vec<_>>(), width))]
                }
                false => message(refusal, Style::Bad),
            };
            std::iter::once(typed).chain(help).collect()
        }
    }
}

fn help(width: usize) -> Vec<Line> {
    let keys = KEYS.iter().flat_map(|(keys, text)| {
        let lines = wrapped(text, width.saturating_sub(4), usize::MAX);
        let text = lines.into_iter().map(|line| Line::of(Style::Plain, &format!("    {line}")));
        std::iter::once(Line::of(Style::Name, keys)).chain(text)
    });
    let signs = STATES.iter().flat_map(|(sign, state, text)| {
        let lines = wrapped(&format!("{sign} {state}  {text}"), width, usize::MAX);
        lines.into_iter().map(|line| Line::of(style_of(state), &line))
    });
    keys.chain(std::iter::once(Line::default())).chain(signs).collect()
}

/// Draws the details of a task. Of a text that is too long, the last line tells the size.
fn details(model: &Model, task: &str, text: &str, width: usize) -> Vec<Line> {
    let Model { run, selection, .. } = model;
    let command = format!("flowcell runs show {} {}{selection}", shell_word(run.as_str()), quote(task));
    let cut = format!("… cut: the text has {} bytes; `{command}` prints it", text.len());
    bounded(text, width, &cut)
}

/// Draws the end of a run. Of a text that is too long, the last line names the command that prints it.
fn outcome(model: &Model, text: &str, width: usize) -> Vec<Line> {
    let command =
        model.outcome.as_ref().map(|outcome| outcome.command(&model.run, &model.selection)).unwrap_or_default();
    bounded(text, width, &format!("… cut: the text has {} bytes; {command}", text.len()))
}

/// Breaks a text into lines. If it has more than [`MAX_TEXT_LINES`], the line `cut` stands for the rest.
fn bounded(text: &str, width: usize, cut: &str) -> Vec<Line> {
    let lines = wrapped(text, width, MAX_TEXT_LINES + 1);
    let rest = (lines.len() > MAX_TEXT_LINES).then(|| Line::of(Style::Attention, cut));
    let shown = lines.iter().take(MAX_TEXT_LINES).map(|line| Line::of(Style::Plain, line));
    shown.chain(rest).collect()
}

/// Draws a question with its choices.
fn question(model: &Model, wait: &Wait, width: usize) -> Vec<Line> {
    let Model { run, selection, .. } = model;
    let mut lines = vec![Line::of(Style::Name, &wait.address)];
    let command = format!("flowcell answer {} {} --show{selection}", shell_word(run.as_str()), quote(&wait.address));
    let cut = format!("… cut: the question has {} bytes; `{command}` prints it", wait.text.len());
    lines.extend(bounded(&wait.text, width, &cut));
    let choices = wait.question.iter().flat_map(|question| &question.choices).enumerate();
    lines.extend(choices.map(|(number, choice)| {
        Line::of(Style::Name, &format!("  {}", number + 1)).apart(Style::Plain, &choice.value)
    }));
    lines
}

/// The sign of a task that waits for a time. One that waits for its own nodes has another.
const TIMER: &str = "◷";

fn sign(state: &str) -> &'static str {
    let known = STATES.iter().find(|(sign, known, _)| *known == state && *sign != TIMER);
    known.map_or("-", |(sign, ..)| *sign)
}

fn style_of(state: &str) -> Style {
    match state {
        "failed" | "blocked" | "needs_attention" => Style::Bad,
        "succeeded" => Style::Good,
        "skipped" | "cancelled" | "ready" => Style::Faint,
        "running" => Style::Plain,
        _ => Style::Attention,
    }
}
