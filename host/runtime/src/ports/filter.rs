//! The selection of runs for lists, counts and bulk jobs.

use std::{fmt, num::ParseIntError, str::FromStr};

use flowcell_contract::RunId;

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
