//! Describes an event in one line.

use std::time::Duration;

use flowcell::{Event, Json, contract::Question};

use crate::{
    duration,
    terminal::{Paint, inert},
};

/// The task that an event concerns.
#[derive(Debug, PartialEq)]
pub(crate) struct Subject {
    /// The address, as commands use it: `approve`, `process[3].approve`, `review/approve`.
    pub(crate) address: String,
    inner: bool,
}

/// A line of text about a task.
pub(crate) struct Line {
    address: String,
    tone: Tone,
    text: String,
    routine: bool,
}

enum Tone {
    Good,
    Bad,
    Odd,
    Faint,
}

impl Subject {
    /// Reads the task from an event of the run `root` or of its children. Returns `None` for an event without a task.
    pub(crate) fn of(event: &Event, root: &str) -> Option<Subject> {
        let task = event.data.get("taskId")?.as_str()?;
        let scope = event.data.get("scope").and_then(Json::as_str);
        let callers = caller_prefix(event.run_id.as_str(), root);
        let inner = scope.is_some() || !callers.is_empty();
        let here = scope.map_or_else(|| task.to_owned(), |scope| format!("{scope}.{task}"));
        Some(Subject { address: format!("{callers}{here}"), inner })
    }
}

/// Returns the address of the tasks that called a child run of `root`, such as `review/`. For `root` itself, it is
/// empty. A child's id consists of the parent's id, the address of the calling task, and the attempt, separated by
/// dots. Since node ids are never numbers, a number ends an address.
pub(crate) fn caller_prefix(run: &str, root: &str) -> String {
    let below = run.strip_prefix(root).unwrap_or_default();
    below.split('.').filter(|part| !part.is_empty()).fold(String::new(), |address, part| {
        let between = match part.split(['-', '~']).all(|part| part.parse::<u32>().is_ok()) {
            true => return address + "/",
            false if address.is_empty() || address.ends_with('/') => "",
            false => ".",
        };
        address + between + part
    })
}

impl Line {
    /// Describes an event. Returns `None` for events that people need not see.
    pub(crate) fn about(event: &Event, subject: &Subject) -> Option<Line> {
        let data = &event.data;
        let (tone, text) = match event.kind {
            "task:complete" => (Tone::Good, format!("done{}", duration_text(data))),
            "task:failed" => (Tone::Bad, format!("failed{}: {}", duration_text(data), failure(data))),
            "task:cancelled" => (Tone::Odd, "cancelled".into()),
            "task:skipped" => (Tone::Faint, format!("skipped{}", skip_reason(data))),
            "task:retry" => (Tone::Odd, retry_text(data)),
            "call:held" => (Tone::Odd, "waits until a quota renews".into()),
            "task:blocked" => (Tone::Odd, format!("blocked: {}", member(data, "message"))),
            "task:paused" => (Tone::Faint, pause_text(data)?),
            "call:start" => (Tone::Faint, approval_question(data)?),
            "log" => (Tone::Faint, format!("[{}] {}", member(data, "level"), member(data, "message"))),
            _ => return None,
        };
        let routine = subject.inner && matches!(event.kind, "task:complete" | "task:skipped");
        Some(Line { address: subject.address.clone(), tone, text, routine })
    }

    /// Returns true if the line reports that a task in a body or in a called run has succeeded or was skipped.
    pub(crate) fn is_routine(&self) -> bool {
        self.routine
    }

    /// Returns the text for a terminal or a file.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let text = inert(&self.text);
        let text = match self.tone {
            Tone::Good => paint.success(&text),
            Tone::Bad => paint.error(&text),
            Tone::Odd => paint.warning(&text),
            Tone::Faint => paint.faint(&text),
        };
        format!("  {} {text}", paint.name(&self.address))
    }
}

/// Lists the answers that a question accepts, such as `yes|no`, `yes|no|text` or `text`.
pub(crate) fn shown_choices(question: &Question) -> String {
    let mut choices: Vec<_> = question.choices.iter().map(|choice| choice.value.as_str()).collect();
    if question.allow_text || choices.is_empty() {
        choices.push("text");
    }
    choices.join("|")
}

fn member<'a>(data: &'a Json, key: &str) -> &'a str {
    data.get(key).and_then(Json::as_str).unwrap_or_default()
}

fn duration_text(data: &Json) -> String {
    let millis = data.get("durationMs").and_then(Json::as_u64);
    millis.map_or_else(String::new, |millis| format!(" in {}", duration::show(Duration::from_millis(millis))))
}

fn failure(data: &Json) -> String {
    let Some(error) = data.get("error") else { return "for an unknown reason".into() };
    format!("{}: {}", member(error, "code"), member(error, "message"))
}

fn skip_reason(data: &Json) -> String {
    match member(data, "reason") {
        "" => String::new(),
        "when" => ": its `when` is false".into(),
        "join" => ": its edges did not fire".into(),
        "unreached" => ": no edge can reach it any more".into(),
        other => format!(": {}", other.replace('_', " ")),
    }
}

fn retry_text(data: &Json) -> String {
    let delay = data.get("delayMs").and_then(Json::as_u64).unwrap_or_default();
    let attempt = data.get("attempt").and_then(Json::as_u64).unwrap_or_default();
    let delay = duration::show(Duration::from_millis(delay));
    format!("attempt {attempt} failed, next attempt in {delay}: {}", failure(data))
}

/// Returns the question about a call, or `None` if the call needs no approval.
fn approval_question(data: &Json) -> Option<String> {
    let call = data.get("call").and_then(Json::as_u64).unwrap_or_default();
    Some(format!("asks about its call {call}: {}", member(data.get("question")?, "prompt")))
}

/// Describes the answer or the event that a pause waits for. Returns `None` for other pauses, such as those for a
/// timer or for the passes of a body.
fn pause_text(data: &Json) -> Option<String> {
    if let Some(question) = data.get("question") {
        return Some(format!("asks: {}", member(question, "prompt")));
    }
    let event = data.get("event")?.as_str()?;
    Some(format!("waits for the event `{event}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_addressed_through_the_tasks_that_called_it() {
        let cases = [
            ("run-1", ""),
            ("run-1.review.1", "review/"),
            ("run-1.process[3].review.2", "process[3].review/"),
            ("run-1.review.1.inner.1", "review/inner/"),
        ];
        for (run, address) in cases {
            assert_eq!(caller_prefix(run, "run-1"), address, "{run}");
        }
    }
}
