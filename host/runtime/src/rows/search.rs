//! The columns of runs that lists search, derived from the record of a run and from its last unit.

use std::collections::BTreeMap;

use flowcell_contract::code;

use crate::{
    fact::{Fact, ParkReason, RunEnd, WaitReason, WaitsFor},
    limits::{MAX_COLUMN_BYTES, MAX_SEARCHED_BYTES},
    ports::Record,
};

/// The searched columns of a failed run, or of one that is parked for a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorColumns {
    /// The code of the error.
    pub(crate) code: String,
    /// The node that failed, with the path of its owners and without passes. `None`: no node failed.
    pub(crate) node: Option<String>,
    /// The words of the message: see [`words`]. For a run that parks for a quota: see [`wait_text`].
    pub(crate) words: String,
}

impl ErrorColumns {
    /// Returns the columns of a run that fails with the facts of a unit, or that parks for a quota. Returns `None` for other
    /// units.
    pub(crate) fn of_facts(facts: &[Fact]) -> Option<ErrorColumns> {
        if let Some(Fact::RunParked { quota: Some(_), .. }) = facts.last() {
            let words = wait_text(facts).unwrap_or_default();
            return Some(ErrorColumns { code: code::QUOTA_EXCEEDED.to_owned(), node: None, words });
        }
        let end = facts.iter().rev().find_map(|fact| match fact {
            Fact::RunEnded { end } => Some(&**end),
            _ => None,
        })?;
        let RunEnd::Failed { failure, task, .. } = end else { return None };
        let node = task.as_deref().map(|task| cut(&without_passes(task)));
        Some(ErrorColumns { code: cut(&failure.code), node, words: words(&failure.message) })
    }
}

/// Returns the text of the column `error_words` of a run that these facts park: the first item that it waits for, as
/// JSON. Returns `None` if they do not park it, or if it waits only for a timer.
///
/// The column has the words of an error only for a failed run, and this text only for a parked one. So the text needs no
/// column of its own, and no index changes when a run parks.
pub(crate) fn wait_text(facts: &[Fact]) -> Option<String> {
    let (reason, waits_for) = facts.iter().rev().find_map(|fact| match fact {
        Fact::RunParked { reason, waits_for, .. } => Some((reason, waits_for.as_deref())),
        _ => None,
    })?;
    let whole_run = |reason| WaitsFor { reason, task: None, others: 0 };
    let waits_for = match reason {
        ParkReason::CrashLoop => whole_run(WaitReason::CrashLoop),
        ParkReason::Restored => whole_run(WaitReason::Restored),
        ParkReason::Waiting | ParkReason::NeedsAttention | ParkReason::QuotaExceeded => waits_for?.clone(),
    };
    serde_json::to_string(&waits_for).ok()
}

/// Parses [`wait_text`]. Returns `None` for a text that another version wrote in another form.
pub(crate) fn parse_wait(text: Option<String>) -> Option<WaitsFor> {
    serde_json::from_str(&text?).ok()
}

/// Removes the numbers of passes from the address of a task: `each[3].fetch` becomes `each.fetch`.
fn without_passes(address: &str) -> String {
    let mut depth = 0_u32;
    let kept = |letter: &char| match letter {
        '[' => {
            depth += 1;
            false
        }
        ']' => {
            depth = depth.saturating_sub(1);
            false
        }
        _ => depth == 0,
    };
    address.chars().filter(kept).collect()
}

/// Returns the words of a text for the search: letters and digits in lower case, with a space before each word. Only
/// the first [`MAX_SEARCHED_BYTES`] of the text count.
pub(crate) fn words(text: &str) -> String {
    let mut words = String::new();
    let text = &text[..text.floor_char_boundary(MAX_SEARCHED_BYTES)];
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()) {
        words.push(' ');
        words.extend(word.chars().flat_map(char::to_lowercase));
    }
    words
}

/// The labels of a run as a JSON object. `None`: the run has no labels.
pub(crate) fn labels_text(record: &Record) -> Option<String> {
    let text = || serde_json::to_string(&record.labels).unwrap_or_default();
    (!record.labels.is_empty()).then(text)
}

/// Returns the run that a top run repeats, cut to the size of its column. The ids of child runs have no limit, and no
/// list searches for the repeats of child runs.
pub(crate) fn retry_of(record: &Record) -> Option<String> {
    record.repeats.as_ref().filter(|_| record.depth == 0).map(|run| cut(run.as_str()))
}

/// Returns the trigger that started a run, cut to the size of its column. An embedder may choose an id of any length.
pub(crate) fn started_by(record: &Record) -> Option<String> {
    record.trigger.as_deref().map(cut)
}

/// Parses [`labels_text`].
pub(crate) fn parse_labels(text: Option<String>) -> BTreeMap<String, String> {
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Cuts a searched value to the size of its column, [`MAX_COLUMN_BYTES`].
pub(crate) fn cut(value: &str) -> String {
    value[..value.floor_char_boundary(MAX_COLUMN_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_in_lower_case_and_bounded() {
        let long = "é".repeat(MAX_SEARCHED_BYTES);
        let table = [
            ("", ""),
            ("HTTP 503: try-again, ÄRGER_1", " http 503 try again ärger 1"),
            ("%_'\"\\", ""),
            (&long, &format!(" {}", &long[..MAX_SEARCHED_BYTES / 2 * 2])),
        ];
        for (text, expected) in table {
            assert_eq!(words(text), expected, "{text:.20}");
        }
    }

    #[test]
    fn a_wait_is_kept_as_a_short_text() {
        let park = |reason, waits_for: Option<WaitsFor>| {
            [
                Fact::PhaseStarted,
                Fact::RunParked { due: Some(1), reason, waits_for: waits_for.map(Box::new), quota: None },
            ]
        };
        let gate = WaitsFor { reason: WaitReason::Gate, task: Some("each[3].\"ok\"".into()), others: 2 };
        let restored = WaitsFor { reason: WaitReason::Restored, task: None, others: 0 };
        for (facts, expected) in [
            (park(ParkReason::Waiting, Some(gate.clone())), Some(gate)),
            (park(ParkReason::Waiting, None), None),
            (park(ParkReason::Restored, None), Some(restored)),
        ] {
            assert_eq!(parse_wait(wait_text(&facts)), expected, "{facts:?}");
        }
        assert_eq!(wait_text(&[Fact::PhaseStarted]), None);
        assert_eq!(parse_wait(Some(" 503 try again".into())), None);
    }

    #[test]
    fn an_address_loses_its_passes() {
        for (address, expected) in [("a", "a"), ("a[0].b[12].c", "a.b.c"), ("a[0", "a"), ("a]b", "ab")] {
            assert_eq!(without_passes(address), expected);
        }
    }
}
