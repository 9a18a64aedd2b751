//! The columns of runs that lists search, derived from the record of a run and from its last unit.

use std::collections::BTreeMap;

use flowcell_contract::code;

use crate::{
    fact::{Fact, ParkReason, RunEnd, WaitReason, WaitsFor},
    limits::{MAX_COLUMN_BYTES, MAX_SEARCHED_BYTES},
    ports::{Filter, Record},
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

/// A value in a condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    /// The id of a run.
    Run(String),
    Number(u64),
}

/// The parts of the statements of one kind of store.
pub(crate) struct Dialect {
    /// The table of runs.
    pub(crate) runs: &'static str,
    /// The table of labels.
    pub(crate) labels: &'static str,
    /// The join that reads its left table first.
    pub(crate) join: &'static str,
    /// A condition with two placeholders, for the tenant and the id of the parent.
    pub(crate) parent: &'static str,
    /// A query for the start and the row number of a run, with two placeholders, for the tenant and the id of the run.
    pub(crate) after: &'static str,
    /// A condition with one placeholder, for a part of the words of an error.
    pub(crate) words: &'static str,
}

/// Builds the end of a statement that lists the runs of a filter, from `FROM` to `LIMIT ?`. Returns it with the values
/// of its placeholders, but without the last one, the limit.
pub(crate) fn select(dialect: &Dialect, tenant: &str, filter: &Filter) -> (String, Vec<Value>) {
    let mut search = Search { dialect, tenant, sql: String::new(), values: Vec::new() };
    let Dialect { runs, labels, join, .. } = dialect;
    // The rows of a label are in the order of the list, so a page reads as few rows as it has runs. Values that few runs
    // have are found by their own index.
    let is_rare = [&filter.error, &filter.node, &filter.trigger].iter().any(|value| value.is_some())
        || filter.retry_of.is_some()
        || filter.parent.is_some();
    let first = filter.labels.first().filter(|_| !is_rare);
    let place = if first.is_some() { ["labels.created", "labels.run"] } else { ["runs.created", "runs.id"] };
    match first {
        None => {
            search.sql = format!("FROM {runs} AS runs WHERE runs.tenant = ?");
            search.values.push(search.tenant());
        }
        Some(label) => {
            search.sql = format!(
                "FROM {labels} AS labels {join} {runs} AS runs ON runs.id = labels.run
                WHERE labels.tenant = ? AND labels.name = ? AND labels.value = ?"
            );
            search.values.extend([search.tenant(), text(&label.0), text(&label.1)]);
        }
    }
    search.add("runs.standing <> 'removed'", []);
    search.add_origin(filter);
    search.add_values(filter, place[0]);
    search.add_status(filter.status.as_deref());
    // Only failed runs have a text.
    if filter.text.is_some() && filter.status.as_deref() != Some("failed") {
        search.add_status(Some("failed"));
    }
    for (name, value) in filter.labels.iter().skip(usize::from(first.is_some())) {
        let condition = format!(
            "EXISTS (SELECT 1 FROM {labels} AS more WHERE more.tenant = ? AND more.name = ? AND more.value = ?
            AND more.created = runs.created AND more.run = runs.id)"
        );
        search.add(&condition, [search.tenant(), text(name), text(value)]);
    }
    let words = filter.text.as_deref().map(words);
    if words.as_deref() == Some("") {
        // A text without letters and digits is in no message.
        search.add("1 = 0", []);
    }
    for word in words.iter().flat_map(|words| words.split(' ')).filter(|word| !word.is_empty()) {
        search.add(dialect.words, [Value::Text(format!(" {word}"))]);
    }
    if let Some(after) = &filter.after {
        let condition = format!("({}, {}) < ({})", place[0], place[1], dialect.after);
        search.add(&condition, [search.tenant(), Value::Run(after.to_string())]);
    }
    search.sql.push_str(&format!(" ORDER BY {} DESC, {} DESC LIMIT ?", place[0], place[1]));
    (search.sql, search.values)
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// A statement under construction.
struct Search<'a> {
    dialect: &'a Dialect,
    tenant: &'a str,
    sql: String,
    values: Vec<Value>,
}

impl Search<'_> {
    fn tenant(&self) -> Value {
        text(self.tenant)
    }

    fn add<const N: usize>(&mut self, condition: &str, values: [Value; N]) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.extend(values);
    }

    fn add_origin(&mut self, filter: &Filter) {
        match &filter.parent {
            Some(parent) => self.add(self.dialect.parent, [self.tenant(), Value::Run(parent.to_string())]),
            None => self.add("runs.depth = 0", []),
        }
        if let Some(run) = &filter.retry_of {
            self.add("runs.retry_of = ?", [Value::Text(cut(run.as_str()))]);
        }
    }

    /// Adds the conditions on values. `created` is the column with the time of the start.
    fn add_values(&mut self, filter: &Filter, created: &str) {
        let texts = [
            ("runs.flow = ?", &filter.flow),
            ("runs.error = ?", &filter.error),
            ("runs.failed_node = ?", &filter.node),
            ("runs.started_by = ?", &filter.trigger),
        ];
        for (condition, value) in texts {
            value.iter().for_each(|value| self.add(condition, [Value::Text(cut(value))]));
        }
        let (since, before) = (format!("{created} >= ?"), format!("{created} < ?"));
        let numbers = [
            ("runs.version = ?", filter.version.map(u64::from)),
            (&since, filter.since),
            (&before, filter.before),
            ("runs.updated - runs.created >= ?", filter.min_duration_ms),
            ("runs.updated - runs.created <= ?", filter.max_duration_ms),
        ];
        for (condition, value) in numbers {
            value.iter().for_each(|value| self.add(condition, [Value::Number(*value)]));
        }
    }

    /// Adds the condition of a status. The statement has the status as a literal, so that partial indexes apply.
    fn add_status(&mut self, status: Option<&str>) {
        let condition = match status {
            None => return,
            Some("needs_attention") => "runs.standing = 'parked' AND runs.attention = 1",
            Some("parked") => "runs.standing = 'parked' AND runs.attention = 0",
            Some("active") => "runs.standing = 'active' AND runs.attention = 0",
            Some("succeeded") => "runs.standing = 'succeeded' AND runs.attention = 0",
            Some("failed") => "runs.standing = 'failed' AND runs.attention = 0",
            Some("cancelled") => "runs.standing = 'cancelled' AND runs.attention = 0",
            Some(_) => "1 = 0",
        };
        self.add(condition, []);
    }
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
