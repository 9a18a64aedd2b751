//! The selection of runs for lists, counts and bulk jobs.

use std::{fmt, num::ParseIntError, str::FromStr};

use flowcell_contract::RunId;
use flowcell_flow::{
    is_flow_name,
    labels::{LabelError, check_stored_label},
    limits::LABELS,
};

/// The selection of runs for a list. All given members must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Selects the runs of this flow.
    pub flow: Option<String>,
    /// Selects the runs of this version of their flow.
    pub version: Option<u32>,
    /// Selects the runs with this status.
    pub status: Option<String>,
    /// Selects the runs that began at this time or later, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Selects the runs that began before this time, in milliseconds since 1970.
    pub before: Option<u64>,
    /// Selects the failed runs whose error has this code. `quota_exceeded` also selects the runs that are parked for a
    /// quota.
    pub error: Option<String>,
    /// Selects the failed runs whose error message has a word with this prefix, for each word of this text. Upper and
    /// lower case are equal. Only the first [`MAX_SEARCHED_BYTES`](crate::limits::MAX_SEARCHED_BYTES) of a message are
    /// searched.
    pub text: Option<String>,
    /// Selects the failed runs in which this node failed. A node in a body has the path of its owners: `each.fetch`.
    pub node: Option<String>,
    /// Selects the runs that have each of these labels with this value.
    pub labels: Vec<(String, String)>,
    /// Selects the runs that this trigger started.
    pub trigger: Option<String>,
    /// Selects the runs that this run has called, instead of top runs.
    pub parent: Option<RunId>,
    /// Selects the runs that repeat this run.
    pub retry_of: Option<RunId>,
    /// Selects the runs whose last change of status was at least this many milliseconds after their start. For ended
    /// runs, this is the duration.
    pub min_duration_ms: Option<u64>,
    /// Selects the runs whose last change of status was at most this many milliseconds after their start.
    pub max_duration_ms: Option<u64>,
    /// Selects the runs after this one in the order of the list: the runs that began earlier than this one.
    pub after: Option<RunId>,
    /// Selects the runs after this place instead, where a search ended.
    pub after_place: Option<ListPlace>,
    /// The maximum number of runs. The latest come first.
    pub limit: usize,
}

/// The stored names of the statuses of runs.
const STATUSES: [&str; 6] = ["active", "parked", "needs_attention", "succeeded", "failed", "cancelled"];

impl Filter {
    /// Checks that the filter can select a run. The error is a sentence for people: which member is wrong, and why.
    pub fn check(&self) -> Result<(), String> {
        self.check_numbers()?;
        self.check_labels()?;
        if self.flow.as_deref().is_some_and(|flow| !is_flow_name(flow)) {
            return Err("`flow` is not the name of a flow: use 1 to 64 letters, digits, `_` and `-`".into());
        }
        for (member, run) in [("parent", &self.parent), ("retryOf", &self.retry_of)] {
            if run.as_ref().is_some_and(|run| !RunId::is_named_by(run.as_str())) {
                return Err(format!(
                    "`{member}` is not the id of a run: use 1 to {} letters, digits, and - _ . : / [ ]",
                    RunId::MAX_BYTES
                ));
            }
        }
        for (member, text) in [("node", &self.node), ("trigger", &self.trigger)] {
            let is_wrong = |text: &String| text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace());
            if text.as_ref().is_some_and(is_wrong) {
                return Err(format!("`{member}` must be a text without spaces and control characters"));
            }
        }
        // A component may choose any code.
        if self.error.as_ref().is_some_and(|code| code.is_empty() || code.chars().any(char::is_control)) {
            return Err("`error` must be a code, such as `http_timeout`".into());
        }
        if self.text.as_deref().is_some_and(|text| !text.contains(char::is_alphanumeric)) {
            return Err("`text` needs a word of letters or digits".into());
        }
        self.check_status()?;
        self.check_lineage()
    }

    fn check_numbers(&self) -> Result<(), String> {
        let largest = [self.since, self.before, self.min_duration_ms, self.max_duration_ms].into_iter().flatten().max();
        if largest.is_some_and(|number| i64::try_from(number).is_err()) {
            return Err("times and durations must be below 2^63 milliseconds".into());
        }
        if self.version.is_some_and(|version| version == 0 || i32::try_from(version).is_err()) {
            return Err("`version` must be at least 1 and below 2^31".into());
        }
        if self.before.is_some_and(|before| before <= self.since.unwrap_or(0)) {
            return Err("`before` must be later than `since`, and later than 1970".into());
        }
        if self.max_duration_ms.is_some_and(|max| self.min_duration_ms.is_some_and(|min| min > max)) {
            return Err("the minimum of the duration is larger than its maximum".into());
        }
        Ok(())
    }

    fn check_labels(&self) -> Result<(), String> {
        if self.labels.len() > LABELS {
            return Err(format!("`labels` may have at most {LABELS} labels"));
        }
        let check = |(name, value): &(String, String)| check_stored_label(name, value);
        self.labels.iter().try_for_each(check).map_err(|error: LabelError| error.to_string())?;
        for (index, (name, value)) in self.labels.iter().enumerate() {
            if self.labels[..index].iter().any(|(other, before)| other == name && before != value) {
                return Err(format!("the label `{name}` is given with two values, so no run matches"));
            }
        }
        Ok(())
    }

    fn check_status(&self) -> Result<(), String> {
        if self.status.as_deref().is_none_or(|status| STATUSES.contains(&status)) {
            return Ok(());
        }
        let names = STATUSES.map(|name| format!("`{}`", if name == "active" { "running" } else { name }));
        Err(format!("`status` must be one of {}", names.join(", ")))
    }

    fn check_lineage(&self) -> Result<(), String> {
        if self.parent.is_some() && self.retry_of.is_some() {
            return Err("`parent` and `retryOf` select no run together: a run that was called repeats no run".into());
        }
        Ok(())
    }
}

/// A place in the list of all runs of a tenant. Places stay valid if runs are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPlace {
    /// The time at which the run at this place began, in milliseconds since 1970.
    pub created: u64,
    /// The number of its row in the store.
    pub row: u64,
}

impl fmt::Display for ListPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.created, self.row)
    }
}

impl FromStr for ListPlace {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<ListPlace, ParseIntError> {
        let (created, row) = text.split_once('.').unwrap_or((text, ""));
        // A store has signed numbers.
        let number = |text: &str| text.parse::<i64>().map(|number| number.max(0) as u64);
        Ok(ListPlace { created: number(created)?, row: number(row)? })
    }
}

/// The member of runs by whose values [`Runs::count`](super::Runs::count) groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// The name of the flow.
    Flow,
    /// The version of the flow.
    Version,
    /// The status.
    Status,
    /// The code of the error.
    Error,
    /// The node that failed.
    Node,
    /// The trigger that started the run.
    Trigger,
    /// The value of the label with this name.
    Label(String),
}

impl Group {
    /// Parses the name of a member: `flow`, `version`, `status`, `error`, `node`, `trigger` or `label:NAME`.
    pub fn parse(text: &str) -> Option<Group> {
        Some(match text {
            "flow" => Group::Flow,
            "version" => Group::Version,
            "status" => Group::Status,
            "error" => Group::Error,
            "node" => Group::Node,
            "trigger" => Group::Trigger,
            _ => Group::Label(text.strip_prefix("label:").filter(|name| !name.is_empty())?.to_owned()),
        })
    }
}

/// The numbers of runs with each value of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The values with their numbers of runs, the most frequent first. `None`: the runs without a value.
    pub values: Vec<(Option<String>, u64)>,
    /// True if earlier runs are not counted: the filter selects more than [`MAX_COUNTED`](crate::limits::MAX_COUNTED), or as
    /// many were read as the count may read.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_can_select_no_run_is_refused() {
        let text = |text: &str| Some(text.to_owned());
        let run = |run: &str| Some(RunId::from(run));
        let all = Filter::default;
        let labels = |labels: &[(&str, &str)]| Filter {
            labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..all()
        };
        for filter in [
            all(),
            Filter { flow: text("a-b_1"), version: Some(1), since: Some(1), before: Some(2), ..all() },
            Filter { error: text("http_timeout"), status: text("failed"), node: text("each.fetch"), ..all() },
            Filter { error: text("quota_exceeded"), status: text("needs_attention"), ..all() },
            Filter { text: text("no answer!"), trigger: text("f/hourly"), parent: run("r/1[2]:x"), ..all() },
            Filter { min_duration_ms: Some(1), max_duration_ms: Some(1), retry_of: run("r"), ..all() },
            labels(&[("a", "x y"), ("b", "\u{202e}"), ("a", "x y")]),
        ] {
            assert_eq!(filter.check(), Ok(()), "{filter:?}");
        }
        let long = "x".repeat(201);
        for (filter, member) in [
            (Filter { parent: run("a b"), ..all() }, "`parent` is not the id"),
            (Filter { parent: run(&long), ..all() }, "`parent` is not the id"),
            (Filter { retry_of: run(""), ..all() }, "`retryOf` is not the id"),
            (Filter { flow: text("a b"), ..all() }, "`flow` is not the name"),
            (Filter { flow: text(""), ..all() }, "`flow` is not the name"),
            (Filter { version: Some(0), ..all() }, "`version` must"),
            (Filter { since: Some(5), before: Some(5), ..all() }, "`before` must be later"),
            (Filter { before: Some(0), ..all() }, "`before` must be later"),
            (Filter { since: Some(u64::MAX), ..all() }, "below 2^63"),
            (Filter { min_duration_ms: Some(2), max_duration_ms: Some(1), ..all() }, "larger than its maximum"),
            (Filter { node: text(""), ..all() }, "`node` must"),
            (Filter { trigger: text("a\u{7f}"), ..all() }, "`trigger` must"),
            (Filter { error: text("no\nanswer"), ..all() }, "`error` must"),
            (Filter { text: text(" ?! "), ..all() }, "`text` needs a word"),
            (Filter { status: text("done"), ..all() }, "`status` must be one of `running`"),
            (Filter { parent: run("a"), retry_of: run("b"), ..all() }, "select no run together"),
            (labels(&[("a", "x"), ("a", "y")]), "two values"),
            (labels(&[("a b", "x")]), "label name"),
            (labels(&[("a", "x,y")]), "the value of the label `a`"),
        ] {
            let why = filter.check().unwrap_err();
            assert!(why.contains(member), "{filter:?}: {why}");
        }
    }
}
