//! The query of a list of runs: the filter, the page and the counts.

use flowcell_runtime::{
    limits::{MAX_COUNT_READS, MAX_COUNTED, MAX_READ_RUNS},
    ports::{Counts, Filter, Group},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{api_error::ApiError, intake::parse_run_id, page::check_limit};

/// The default number of runs in a page.
const DEFAULT_PAGE_RUNS: usize = 50;
/// The maximum number of runs in a page.
pub(crate) const MAX_PAGE_RUNS: usize = 500;

/// The first character of a cursor that is a place in the list, and no run. No id of a run has it.
pub(crate) const PLACE_MARK: char = '@';

/// The status of a run.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ListedStatus {
    #[serde(alias = "active")]
    Running,
    Parked,
    NeedsAttention,
    Succeeded,
    Failed,
    Cancelled,
}

impl ListedStatus {
    /// Returns the name of the status in the store.
    fn store_name(self) -> &'static str {
        match self {
            ListedStatus::Running => "active",
            ListedStatus::Parked => "parked",
            ListedStatus::NeedsAttention => "needs_attention",
            ListedStatus::Succeeded => "succeeded",
            ListedStatus::Failed => "failed",
            ListedStatus::Cancelled => "cancelled",
        }
    }
}

/// The filter and the page of a list of runs. All given members must match. Times are in milliseconds since 1970.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub(crate) struct RunQuery {
    /// List only runs with this status.
    #[param(inline)]
    status: Option<ListedStatus>,
    /// List only runs of this flow.
    #[param(min_length = 1, max_length = 64, pattern = r"^[A-Za-z0-9_-]+$")]
    flow: Option<String>,
    /// List only runs of this version of their flow.
    #[param(minimum = 1, maximum = 2_147_483_647_i64)]
    version: Option<u32>,
    /// List only runs that began at this time or later.
    since: Option<u64>,
    /// List only runs that began before this time.
    before: Option<u64>,
    /// List only failed runs whose error has this code.
    #[param(min_length = 1)]
    error: Option<String>,
    /// List only failed runs whose error message has a word with each of these prefixes.
    text: Option<String>,
    /// List only failed runs in which this node failed; `each.fetch` is a node in the body of `each`.
    #[param(min_length = 1)]
    node: Option<String>,
    /// List only runs with all these labels: `team=billing,tier=gold`.
    #[param(
        pattern = r"^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}=[ -+\--~]{1,63}(,[A-Za-z0-9][A-Za-z0-9_./-]{0,62}=[ -+\--~]{1,63}){0,15}$"
    )]
    labels: Option<String>,
    /// List only runs that this trigger started.
    #[param(min_length = 1)]
    trigger: Option<String>,
    /// List only the runs that this run has called.
    #[param(min_length = 1, max_length = 200, pattern = r"^[A-Za-z0-9_.:/\[\]-]+$")]
    parent: Option<String>,
    /// List only the runs that repeat this run.
    #[param(min_length = 1, max_length = 200, pattern = r"^[A-Za-z0-9_.:/\[\]-]+$")]
    retry_of: Option<String>,
    /// List only runs whose last change of the status was at least this many milliseconds after their start.
    min_duration_ms: Option<u64>,
    /// List only runs whose last change of the status was at most this many milliseconds after their start.
    max_duration_ms: Option<u64>,
    /// Also count the runs of the filter by `status`, `flow`, `version`, `error`, `node`, `trigger` or `label:NAME`.
    #[param(pattern = r"^(status|flow|version|error|node|trigger|label:.+)$")]
    count_by: Option<String>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    #[param(min_length = 1, max_length = 300, pattern = r"^[@A-Za-z0-9_.:/\[\]-]+$")]
    cursor: Option<String>,
}

impl RunQuery {
    /// Returns the maximum number of runs in the page.
    pub(crate) fn page_size(&self) -> Result<usize, ApiError> {
        check_limit(self.limit, DEFAULT_PAGE_RUNS, MAX_PAGE_RUNS)
    }

    /// Removes the cursor from the query and returns it.
    pub(crate) fn take_cursor(&mut self) -> Option<String> {
        self.cursor.take()
    }

    /// Returns the member by which the runs are counted.
    pub(crate) fn group(&self) -> Result<Option<Group>, ApiError> {
        let parse = |by: &str| {
            Group::parse(by).ok_or_else(|| {
                ApiError::bad_request(
                    "`countBy` must be `status`, `flow`, `version`, `error`, `node`, `trigger`, or `label:` and a name",
                )
            })
        };
        self.count_by.as_deref().map(parse).transpose()
    }

    /// Converts the query to a filter of the store. Returns 400 if a member is not valid.
    pub(crate) fn into_filter(self) -> Result<Filter, ApiError> {
        let limit = self.page_size()?;
        let run = |id: Option<String>| id.as_deref().map(parse_run_id).transpose();
        let (mut after, mut after_place) = (None, None);
        match self.cursor.as_deref().map(|cursor| (cursor, cursor.strip_prefix(PLACE_MARK))) {
            None => (),
            Some((cursor, None)) => after = Some(parse_run_id(cursor)?),
            Some((_, Some(place))) => {
                let wrong = |_| ApiError::bad_request("`cursor` must be the `next` of a page");
                after_place = Some(place.parse().map_err(wrong)?);
            }
        }
        let filter = Filter {
            flow: self.flow,
            version: self.version,
            status: self.status.map(|status| status.store_name().to_owned()),
            since: self.since,
            before: self.before,
            error: self.error,
            text: self.text,
            node: self.node,
            labels: self.labels.as_deref().map(parse_labels).transpose()?.unwrap_or_default(),
            trigger: self.trigger,
            parent: run(self.parent)?,
            retry_of: run(self.retry_of)?,
            min_duration_ms: self.min_duration_ms,
            max_duration_ms: self.max_duration_ms,
            after,
            after_place,
            // One more than the page, which shows whether there is another page.
            limit: limit + 1,
        };
        filter.check().map_err(ApiError::bad_request)?;
        Ok(filter)
    }
}

fn parse_labels(text: &str) -> Result<Vec<(String, String)>, ApiError> {
    let parse = |label: &str| {
        let (name, value) = label.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let labels: Option<Vec<_>> = text.split(',').map(parse).collect();
    let labels = labels
        .ok_or_else(|| ApiError::bad_request("`labels` must be a list of labels such as `team=billing,tier=gold`"))?;
    Ok(labels)
}

/// The number of runs with one value.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunCount {
    /// The value; runs without a value have `null`.
    value: Option<String>,
    /// The number of runs.
    runs: u64,
}

/// Returns the counts in the form of the answer.
pub(crate) fn list_counts(counts: Counts) -> Vec<RunCount> {
    let count = |(value, runs): (Option<String>, u64)| {
        let value = value.map(|value| if value == "active" { "running".to_owned() } else { value });
        RunCount { value, runs }
    };
    counts.values.into_iter().map(count).collect()
}

const _: () = assert!(
    MAX_COUNTED == 10_000 && MAX_READ_RUNS == 20_000 && MAX_COUNT_READS == 200_000,
    "the documentation of the route names the limits"
);
