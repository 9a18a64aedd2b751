//! Draws the state of the screen as lines. Only the rows that fit are drawn.

use std::{collections::BTreeMap, time::Duration};

use flowcell::{shape::time, tree::Twig};

use super::{
    frame::{Line, Style, wrapped},
    model::{Head, Model, View},
    rows::{Item, Row, Wait, count, tally, wait_of},
};
use crate::{duration, terminal::counted};

/// The number of lines above the rows, and of those below them.
const HEAD_LINES: usize = 2;
const FOOT_LINES: usize = 2;
/// Columns by which a row stands to the right of the row above it in the tree.
const INDENT: usize = 2;
/// Maximum number of lines shown of a text.
const MAX_TEXT_LINES: usize = 5_000;
/// The text before a typed answer.
const PROMPT: &str = "> ";

const KEYS: [(&str, &str); 10] = [
    ("↑ ↓, k j", "go to the row above or below; PgUp, PgDn, Home and End go further"),
    ("→, l", "open the passes of a task, or the tasks of a pass; the most urgent passes come first"),
    ("←, h", "fold them, or go to the row above in the tree; the space bar opens and folds"),
    ("Enter", "show the attempts of a task with their input, calls, output and error"),
    ("Tab", "go to the next question, or to something else that the run waits for"),
    ("a", "answer the question under the cursor"),
    ("c", "cancel the run"),
    ("r", "repeat a run that has ended, from the node under the cursor"),
    ("Ctrl-L", "draw the screen again"),
    ("q", "leave a page or the command; the run goes on"),
];

/// Returns the lines of the screen, at most `height`. `now` is the time in milliseconds since 1970.
pub(super) fn frame(model: &mut Model, (width, height): (usize, usize), now: u64) -> Vec<Line> {
    model.page = height.saturating_sub(HEAD_LINES + FOOT_LINES).max(1);
    let mut lines = head(model, now);
    let page = model.page;
    let text = match &model.view {
        View::Tree | View::Confirm { .. } => None,
        View::Help => Some(help(width)),
        View::Details { title, text } => Some(details(model.run.as_str(), title, text, width)),
        View::Answer { wait, .. } => Some(question(wait, width)),
    };
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
    lines.resize(HEAD_LINES + page, Line::default());
    lines.extend(foot(model, width, more));
    lines.truncate(height);
    lines.into_iter().map(|line| line.cut(width)).collect()
}

/// Returns the whole tree with its folds as lines, for an output that is not a terminal.
pub(super) fn snapshot(model: &mut Model, now: u64) -> Vec<Line> {
    let mut lines = head(model, now);
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
    let mut second = Line::of(style_of(status), status).apart(Style::Plain, &age(&model.head, now));
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
    match &model.trouble {
        Some(trouble) => vec![first, Line::of(Style::Bad, trouble).apart(Style::Plain, &second.text())],
        None => vec![first, second],
    }
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
    // A deep row at a narrow terminal still has its sign and the beginning of its name.
    let indent = " ".repeat((row.depth * INDENT).min(width / 3));
    let fold = match (row.can_open(), row.is_open) {
        (true, true) => "▾ ",
        (true, false) => "▸ ",
        (false, _) => "  ",
    };
    let start = |status: &str, name: &str| {
        let line = Line::of(Style::Plain, &format!("{indent}{fold}"));
        line.with(style_of(status), sign(status)).with(Style::Plain, " ").with(Style::Name, name)
    };
    match row.item {
        Item::Task(task) => {
            let name = if task.is_task { task.id.clone() } else { format!("{} (cycle)", task.id) };
            let line = start(task.status, &name).apart(style_of(task.status), task.status);
            task_facts(line, task, waits, row.place.address(), now)
        }
        Item::Pass(pass) => {
            let mut counts = BTreeMap::new();
            count(&pass.tasks, &mut counts);
            start(pass.status(), &format!("[{}]", pass.index))
                .apart(style_of(pass.status()), pass.status())
                .apart(Style::Faint, &tally(&counts))
        }
        Item::Wait(wait) => {
            let style = if wait.question.is_some() { Style::Attention } else { Style::Plain };
            let line = Line::of(Style::Plain, &indent).with(Style::Attention, "  ? ");
            line.with(Style::Name, &wait.address).apart(style, &wait.text)
        }
    }
}

fn task_facts(line: Line, task: &Twig, waits: &[Wait], address: &str, now: u64) -> Line {
    let has_ended = matches!(task.status, "succeeded" | "failed" | "skipped" | "cancelled");
    let millis = match task.duration_ms {
        Some(millis) if has_ended => Some(millis),
        _ => task.began.filter(|_| !has_ended).map(|began| now.saturating_sub(began)),
    };
    let passes = task.pass_counts();
    let passed: u64 = passes.values().sum();
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
        line = line.apart(Style::Plain, &format!("{passes}: {}", tally(&task.pass_counts())));
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
    match &model.view {
        View::Tree => vec![
            Line::of(Style::Attention, &model.message),
            hint("? help  q quit  ↑↓ go  →← open  Enter details  a answer  c cancel  r repeat"),
        ],
        View::Confirm { question, .. } => vec![Line::of(Style::Attention, question), hint("y yes  any other key: no")],
        View::Help | View::Details { .. } => vec![
            hint(&if more > 0 { format!("{} below", counted(more, "more line")) } else { String::new() }),
            hint("↑↓ PgUp PgDn scroll  q back"),
        ],
        View::Answer { typed, refusal, .. } => {
            // The last letters are visible.
            let hidden = typed.chars().count().saturating_sub(width.saturating_sub(PROMPT.len() + 2));
            let end: String = typed.chars().skip(hidden).collect();
            let typed = Line::of(Style::Name, PROMPT).with(Style::Plain, &end).with(Style::Plain, "_");
            let below = if more > 0 { format!("{}  ", counted(more, "more line")) } else { String::new() };
            let help = hint(&format!("{below}Enter sends  Ctrl-U clears  Esc back"));
            vec![typed, if refusal.is_empty() { help } else { Line::of(Style::Bad, refusal) }]
        }
    }
}

fn help(width: usize) -> Vec<Line> {
    let keys = KEYS.iter().flat_map(|(keys, text)| {
        let lines = wrapped(text, width.saturating_sub(4), usize::MAX);
        let text = lines.into_iter().map(|line| Line::of(Style::Plain, &format!("    {line}")));
        std::iter::once(Line::of(Style::Name, keys)).chain(text)
    });
    keys.collect()
}

/// Draws the details of a task. Of a text that is too long, the last line tells the size.
fn details(run: &str, task: &str, text: &str, width: usize) -> Vec<Line> {
    let cut = format!("… cut: the text has {} bytes; `flowcell runs show {run} '{task}'` prints it", text.len());
    bounded(text, width, &cut)
}

/// Breaks a text into lines. If it has more than [`MAX_TEXT_LINES`], the line `cut` stands for the rest.
fn bounded(text: &str, width: usize, cut: &str) -> Vec<Line> {
    let lines = wrapped(text, width, MAX_TEXT_LINES + 1);
    let rest = (lines.len() > MAX_TEXT_LINES).then(|| Line::of(Style::Attention, cut));
    let shown = lines.iter().take(MAX_TEXT_LINES).map(|line| Line::of(Style::Plain, line));
    shown.chain(rest).collect()
}

/// Draws a question with its choices.
fn question(wait: &Wait, width: usize) -> Vec<Line> {
    let mut lines = vec![Line::of(Style::Name, &wait.address)];
    let cut = format!("… cut: the question has {} bytes; `flowcell answer --show` prints it", wait.text.len());
    lines.extend(bounded(&wait.text, width, &cut));
    let choices = wait.question.iter().flat_map(|question| &question.choices).enumerate();
    lines.extend(choices.map(|(number, choice)| {
        Line::of(Style::Name, &format!("  {}", number + 1)).apart(Style::Plain, &choice.value)
    }));
    lines
}

fn sign(status: &str) -> &'static str {
    match status {
        "blocked" => "!",
        "failed" => "✗",
        "waiting" => "?",
        "retrying" => "↻",
        "running" => "●",
        "ready" => "○",
        "cancelled" => "⊘",
        "succeeded" => "✓",
        _ => "-",
    }
}

fn style_of(status: &str) -> Style {
    match status {
        "failed" | "blocked" | "needs_attention" => Style::Bad,
        "succeeded" => Style::Good,
        "skipped" | "cancelled" | "ready" => Style::Faint,
        "running" => Style::Plain,
        _ => Style::Attention,
    }
}
