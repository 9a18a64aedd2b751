//! The statements that list the runs of a filter.
//!
//! Few filters have an index of their own, so a list is read in parts. A part ends after a number of entries of one index,
//! and the statement of a part reads no others. Of the indexes that fit a filter, the one is read whose entries reach back
//! the furthest.

use super::search::{cut, words};
use crate::ports::{Filter, ListPlace};

/// The first part of a list is this fraction of all that may be read: most pages are full after few runs.
const FIRST_PART: usize = 25;

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
    /// A condition with two placeholders, for the tenant and the id of a run.
    pub(crate) run: &'static str,
    /// A condition with one placeholder, for a part of the words of an error.
    pub(crate) words: &'static str,
    /// Makes a statement read an index of runs, or is empty where the server chooses by its statistics.
    pub(crate) hint: fn(&str) -> String,
    /// The index of all runs, with the condition of its entries.
    pub(crate) latest: Entries,
    /// The index of the runs of a flow, with the condition of its entries after that of the flow.
    pub(crate) of_flow: Entries,
    /// The same for a status. `None`: the status has no index.
    pub(crate) of_status: fn(Status) -> Option<Entries>,
    /// True if an index whose condition has `depth = 0` has no removed runs.
    pub(crate) tops_are_listed: bool,
    /// The indexes of errors, failed nodes, triggers, repeated runs, and runs below another one.
    pub(crate) others: [&'static str; 5],
}

/// The name of an index, and a condition of its entries.
pub(crate) type Entries = (&'static str, &'static str);

/// A status of runs, as a store keeps it: its name, and whether a person has to decide.
pub(crate) type Status = (&'static str, bool);

/// A part of a list: the runs behind a place, to a last one. `None`: from the begin, or to the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub(crate) after: Option<ListPlace>,
    pub(crate) last: Option<ListPlace>,
}

/// A statement with the values of its placeholders.
pub(crate) type Statement = (String, Vec<Value>);

/// A condition on runs.
struct Condition {
    /// The condition on the table of its index.
    sql: String,
    /// The same condition, if a statement reads another index.
    beside: String,
    values: Vec<Value>,
    index: Index,
}

/// The index of a condition.
enum Index {
    None,
    /// The name of an index of runs, and the condition of its entries, which may be more than `Condition::sql` selects.
    Runs(&'static str, String),
    /// The table of labels.
    Labels,
}

/// The statements for a filter of a tenant.
pub(crate) struct Search<'a> {
    dialect: &'a Dialect,
    tenant: &'a str,
    filter: &'a Filter,
    conditions: Vec<Condition>,
}

/// Returns the sizes of the parts of a list that reads at most `reads` runs.
pub(crate) fn parts(reads: usize) -> impl Iterator<Item = usize> {
    let first = (reads / FIRST_PART).max(1);
    [first, reads.saturating_sub(first)].into_iter().filter(|size| *size > 0)
}

/// Returns the end that is the furthest back, and its index. An index without an end in the part has no more entries.
pub(crate) fn furthest(ends: Vec<(Option<ListPlace>, Option<usize>)>) -> (Option<ListPlace>, Option<usize>) {
    ends.into_iter().min().unwrap_or_default()
}

impl<'a> Search<'a> {
    pub(crate) fn new(dialect: &'a Dialect, tenant: &'a str, filter: &'a Filter) -> Search<'a> {
        let mut search = Search { dialect, tenant, filter, conditions: Vec::new() };
        search.add_texts();
        search.add_labels();
        search.add_status(filter.status.as_deref());
        // Only failed runs have a text.
        if filter.text.is_some() && filter.status.as_deref() != Some("failed") {
            search.add_status(Some("failed"));
        }
        search.add_words();
        let numbers = [
            ("runs.version = ?", filter.version.map(u64::from)),
            ("runs.updated - runs.created >= ?", filter.min_duration_ms),
            ("runs.updated - runs.created <= ?", filter.max_duration_ms),
        ];
        for (condition, value) in numbers {
            value.into_iter().for_each(|value| search.add(condition, Value::Number(value)));
        }
        search
    }

    fn tenant(&self) -> Value {
        text(self.tenant)
    }

    fn add(&mut self, condition: &str, value: Value) {
        let sql = condition.to_owned();
        self.conditions.push(Condition { beside: sql.clone(), sql, values: vec![value], index: Index::None });
    }

    /// Adds the conditions on columns that have an index of their own.
    fn add_texts(&mut self) {
        let Filter { flow, error, node, trigger, retry_of, .. } = self.filter;
        let retry_of = retry_of.as_ref().map(|run| run.to_string());
        let [of_error, of_node, of_trigger, of_retry, _] = self.dialect.others;
        let columns = [
            ("runs.error", error, (of_error, "")),
            ("runs.failed_node", node, (of_node, "")),
            ("runs.started_by", trigger, (of_trigger, "")),
            ("runs.retry_of", &retry_of, (of_retry, "")),
            ("runs.flow", flow, self.dialect.of_flow),
        ];
        for (column, value, (name, more)) in columns {
            let Some(value) = value else { continue };
            let sql = format!("{column} = ?");
            let index = Index::Runs(name, format!("{sql}{more}"));
            self.conditions.push(Condition { beside: sql.clone(), sql, values: vec![Value::Text(cut(value))], index });
        }
    }

    fn add_labels(&mut self) {
        for (name, value) in &self.filter.labels {
            let same = |table: &str| format!("{table}.tenant = ? AND {table}.name = ? AND {table}.value = ?");
            let beside = format!(
                "EXISTS (SELECT 1 FROM {} AS more WHERE {} AND more.created = runs.created AND more.run = runs.id)",
                self.dialect.labels,
                same("more")
            );
            let values = vec![self.tenant(), text(name), text(value)];
            self.conditions.push(Condition { sql: same("labels"), beside, values, index: Index::Labels });
        }
    }

    /// Adds the condition of a status. The statement has the status as a literal, so that partial indexes apply.
    fn add_status(&mut self, status: Option<&str>) {
        let status: Status = match status {
            None => return,
            Some("needs_attention") => ("parked", true),
            Some("parked") => ("parked", false),
            Some("active") => ("active", false),
            Some("succeeded") => ("succeeded", false),
            Some("failed") => ("failed", false),
            Some("cancelled") => ("cancelled", false),
            Some(_) => return self.add("1 = ?", Value::Number(0)),
        };
        let (standing, attention) = (status.0, u8::from(status.1));
        let index = match (self.dialect.of_status)(status) {
            None => Index::None,
            Some((name, more)) => Index::Runs(name, format!("runs.standing = '{standing}'{more}")),
        };
        let sql = format!("runs.standing = '{standing}' AND runs.attention = {attention}");
        self.conditions.push(Condition { beside: sql.clone(), sql, values: Vec::new(), index });
    }

    fn add_words(&mut self) {
        let Some(words) = self.filter.text.as_deref().map(words) else { return };
        if words.is_empty() {
            // A text without letters and digits is in no message.
            self.add("1 = ?", Value::Number(0));
        }
        for word in words.split(' ').filter(|word| !word.is_empty()) {
            self.add(self.dialect.words, Value::Text(format!(" {word}")));
        }
    }

    /// Returns the statement that finds the place of a run.
    pub(crate) fn place_of(&self, run: &str) -> Statement {
        let Dialect { runs, run: condition, .. } = self.dialect;
        let sql = format!("SELECT created, id FROM {runs} AS runs WHERE {condition}");
        (sql, vec![self.tenant(), Value::Run(run.to_owned())])
    }

    /// Returns true if an index selects exactly the runs of the filter.
    fn is_exact(&self) -> bool {
        let entries = match &self.conditions[..] {
            [] => self.dialect.latest.1,
            [Condition { index: Index::Runs(_, entries), .. }] => entries,
            _ => return false,
        };
        // Other indexes also have runs below other ones, or removed ones.
        self.dialect.tops_are_listed && entries.contains("runs.depth = 0") && self.filter.parent.is_none()
    }

    /// Returns for each index of the filter a statement that finds the place of its last entry in a part of `size`
    /// entries. If it finds none, the index has fewer entries. The list is empty if a page reads only the runs that it has.
    pub(crate) fn ends(&self, after: Option<ListPlace>, size: usize) -> Vec<(Option<usize>, Statement)> {
        if self.is_exact() {
            return Vec::new();
        }
        let indexed = |at: &usize| !matches!(self.conditions[*at].index, Index::None);
        // Runs below another one are not in all indexes.
        let mut indexes: Vec<_> = (0..self.conditions.len()).filter(indexed).map(Some).collect();
        if indexes.is_empty() || self.filter.parent.is_some() {
            indexes = vec![None];
        }
        let end = |index: Option<usize>| (index, self.end(index, after, size));
        indexes.into_iter().map(end).collect()
    }

    fn end(&self, index: Option<usize>, after: Option<ListPlace>, size: usize) -> Statement {
        let Dialect { labels, latest, .. } = self.dialect;
        let condition = index.map(|at| &self.conditions[at]);
        let (table, place) = match condition {
            Some(Condition { index: Index::Labels, .. }) => (format!("{labels} AS labels"), LABEL_PLACE),
            _ => (self.runs_by(condition), RUN_PLACE),
        };
        let mut text = Text::new(format!("SELECT {}, {} FROM {table} WHERE ", place.0, place.1));
        match condition {
            Some(Condition { index: Index::Labels, sql, values, .. }) => text.push(sql, values.clone()),
            Some(Condition { index: Index::Runs(_, sql), values, .. }) => {
                text.push("runs.tenant = ?", [self.tenant()]);
                text.push(sql, values.clone());
            }
            _ => match &self.filter.parent {
                Some(parent) => text.push(self.dialect.parent, [self.tenant(), Value::Run(parent.to_string())]),
                None => {
                    text.push("runs.tenant = ?", [self.tenant()]);
                    text.push(latest.1, []);
                }
            },
        }
        text.push_part(place, self.filter, Part { after, last: None });
        text.sql.push_str(&format!(" ORDER BY {} DESC, {} DESC LIMIT 1 OFFSET ?", place.0, place.1));
        text.values.push(Value::Number(size as u64 - 1));
        (text.sql, text.values)
    }

    /// Returns the table of runs, as the index of a condition reads it.
    fn runs_by(&self, condition: Option<&Condition>) -> String {
        let name = match condition {
            Some(Condition { index: Index::Runs(name, _), .. }) => *name,
            _ if self.filter.parent.is_some() => self.dialect.others[4],
            _ => self.dialect.latest.0,
        };
        format!("{} AS runs{}", self.dialect.runs, (self.dialect.hint)(name))
    }

    /// Returns the end of the statement that lists at most `limit` runs of a part, from `FROM` on. `index` is the
    /// condition whose index it reads.
    pub(crate) fn page(&self, index: Option<usize>, part: Part, limit: usize) -> Statement {
        let Dialect { runs, labels, join, .. } = self.dialect;
        let index = index.or_else(|| (self.is_exact() && !self.conditions.is_empty()).then_some(0));
        let condition = index.map(|at| &self.conditions[at]);
        let label = condition.filter(|condition| matches!(condition.index, Index::Labels));
        let (mut text, place) = match label {
            None => (Text::new(format!("FROM {} WHERE ", self.runs_by(condition))), RUN_PLACE),
            Some(_) => {
                let tables = format!("FROM {labels} AS labels {join} {runs} AS runs ON runs.id = labels.run WHERE ");
                (Text::new(tables), LABEL_PLACE)
            }
        };
        if label.is_none() {
            text.push("runs.tenant = ?", [self.tenant()]);
        }
        text.push("runs.standing <> 'removed'", []);
        match &self.filter.parent {
            Some(parent) => text.push(self.dialect.parent, [self.tenant(), Value::Run(parent.to_string())]),
            None => text.push("runs.depth = 0", []),
        }
        for (at, Condition { sql, beside, values, .. }) in self.conditions.iter().enumerate() {
            text.push(if index == Some(at) { sql } else { beside }, values.clone());
        }
        text.push_part(place, self.filter, part);
        text.sql.push_str(&format!(" ORDER BY {} DESC, {} DESC LIMIT ?", place.0, place.1));
        text.values.push(Value::Number(limit as u64));
        (text.sql, text.values)
    }
}

/// The columns of a place.
type PlaceColumns = (&'static str, &'static str);

const RUN_PLACE: PlaceColumns = ("runs.created", "runs.id");
const LABEL_PLACE: PlaceColumns = ("labels.created", "labels.run");

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// A statement under construction, up to its conditions.
struct Text {
    sql: String,
    values: Vec<Value>,
    has_condition: bool,
}

impl Text {
    fn new(sql: String) -> Text {
        Text { sql, values: Vec::new(), has_condition: false }
    }

    fn push(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        if self.has_condition {
            self.sql.push_str(" AND ");
        }
        self.has_condition = true;
        self.sql.push_str(condition);
        self.values.extend(values);
    }

    /// Adds the conditions on places: those of the filter and of the part.
    fn push_part(&mut self, (created, id): PlaceColumns, filter: &Filter, part: Part) {
        for (comparison, time) in [(">=", filter.since), ("<", filter.before)] {
            time.into_iter().for_each(|time| self.push(&format!("{created} {comparison} ?"), [Value::Number(time)]));
        }
        // Each is a range of the index: no server finds one in a comparison of pairs.
        if let Some(ListPlace { created: time, row }) = part.after {
            let behind = format!("{created} <= ? AND ({created} < ? OR {id} < ?)");
            self.push(&behind, [time, time, row].map(Value::Number));
        }
        if let Some(ListPlace { created: time, row }) = part.last {
            let before = format!("{created} >= ? AND ({created} > ? OR {id} >= ?)");
            self.push(&before, [time, time, row].map(Value::Number));
        }
    }
}
