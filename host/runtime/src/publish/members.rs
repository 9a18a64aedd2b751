//! Members of events that need no projector.

use flowcell_contract::{Choice, Json, Question, ScopePath, Wake, text::revealed};

use super::Members;
use crate::{
    fact::{Note, RunEnd},
    question::QuestionRef,
    quota::QuotaHold,
};

/// Describes the end of a run that took this many milliseconds.
pub(super) fn end_members(end: &RunEnd, duration_ms: u64) -> Members {
    let (success, status) = match end {
        RunEnd::Succeeded { .. } => (true, "succeeded"),
        RunEnd::Failed { .. } => (false, "failed"),
        RunEnd::Cancelled { .. } => (false, "cancelled"),
    };
    let mut members =
        vec![("success", Json::from(success)), ("status", Json::from(status)), ("durationMs", Json::from(duration_ms))];
    if let RunEnd::Failed { failure, task, .. } = end {
        members.push(("error", failure.to_json()));
        members.extend(task.as_deref().map(|task| ("task", Json::from(task))));
    }
    members
}

/// Adds the path of passes, unless it is that of the flow itself.
pub(super) fn add_scope(path: ScopePath, members: &mut Members) {
    if !path.as_str().is_empty() {
        members.push(("scope", Json::from(path.0)));
    }
}

/// Describes the question that an answer refers to.
pub(super) fn reference_members(asked: QuestionRef) -> impl Iterator<Item = (&'static str, Json)> {
    let digest = asked.digest.map(|digest| ("digest", Json::from(&*digest)));
    asked.attempt.map(|attempt| ("attempt", Json::from(attempt))).into_iter().chain(digest)
}

/// Describes the question of a gate.
pub(super) fn question_members(address: String, question: &Question, asked: QuestionRef) -> Members {
    let choice = |choice: &Choice| Json::from(choice.value.as_str());
    let mut members = vec![
        ("address", Json::from(address)),
        ("prompt", Json::from(revealed(&question.prompt))),
        ("choices", Json::array(question.choices.iter().map(choice))),
        ("allowText", Json::from(question.allow_text)),
    ];
    members.extend(question.schema.as_ref().map(|schema| ("schema", schema.clone())));
    members.extend(reference_members(asked));
    members
}

/// Describes the time at which a question closes by itself, if a timer of its pause closes it. The pause begins at `ts`.
pub(super) fn expiry_members(until: &[Wake], ts: u64) -> Option<(&'static str, Json)> {
    let timers = until.iter().filter_map(|wake| match wake {
        Wake::After(ms) => Some(ts.saturating_add(*ms)),
        _ => None,
    });
    timers.min().map(|expires| ("expires", Json::from(expires)))
}

/// Describes a quota that is used up, and when it renews.
pub(super) fn quota_members(hold: &QuotaHold) -> Members {
    vec![("quota", Json::from(&*hold.quota)), ("until", Json::from(hold.until))]
}

/// Names and describes a log line or a measurement.
pub(super) fn note_members(note: &Note) -> (&'static str, Members) {
    match note {
        Note::Log { level, message } => {
            ("log", vec![("level", Json::from(level.as_str())), ("message", Json::from(message.as_str()))])
        }
        Note::Metric { name, value, tags } => {
            ("metric", vec![("name", Json::from(name.as_str())), ("value", value.clone()), ("tags", tags.clone())])
        }
    }
}

/// Returns the name of an enum variant in the journal.
pub(super) fn name_of(choice: &impl serde::Serialize) -> Json {
    serde_json::to_value(choice).map(Json::from).unwrap_or_default()
}
