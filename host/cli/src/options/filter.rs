//! Options that select runs.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use flowcell::{Filter, RunId, jobs::JobFilter};

use crate::{
    arguments::{run_id, searched_label},
    cli_error::CliError,
    clock::now_ms,
    duration,
};

/// Options that select runs. All given options must match.
#[derive(Args, Default)]
pub(crate) struct FilterArgs {
    /// Select only runs of this flow
    #[arg(long, value_name = "NAME")]
    flow: Option<String>,
    /// Select only runs of this version of their flow
    #[arg(long, value_name = "N")]
    flow_version: Option<u32>,
    /// Select only runs with this status
    #[arg(long, value_parser = parse_status, value_name = "STATUS")]
    status: Option<String>,
    /// Select only runs that began after this time: 2h (ago), or 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<u64>,
    /// Select only runs that began before this time: 2h (ago), or 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    before: Option<u64>,
    /// Select only failed runs whose error has this code, such as http_timeout
    #[arg(long, value_name = "CODE")]
    error: Option<String>,
    /// Select only failed runs whose error message has a word that begins with each of these words
    #[arg(long, value_name = "WORDS")]
    text: Option<String>,
    /// Select only failed runs in which this node failed; each.fetch is a node in the body of each
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Select only runs with this label; may be repeated
    #[arg(short, long = "label", value_name = "NAME=VALUE", value_parser = searched_label)]
    labels: Vec<(String, String)>,
    /// Select only runs that this trigger started
    #[arg(long, value_name = "ID")]
    trigger: Option<String>,
    /// Select only the runs that this run has called
    #[arg(long, value_name = "RUN", value_parser = run_id)]
    parent: Option<RunId>,
    /// Select only the runs that repeat this run
    #[arg(long, value_name = "RUN", value_parser = run_id)]
    retry_of: Option<RunId>,
    /// Select only runs that took at least this long, up to the last change of their status
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    min_duration: Option<Duration>,
    /// Select only runs that took at most this long, up to the last change of their status
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    max_duration: Option<Duration>,
}

impl FilterArgs {
    /// Returns the filter of the store, for at most `limit` runs. Fails if no run can match it.
    pub(crate) fn filter(&self, limit: usize) -> Result<Filter, CliError> {
        let filter = Filter { labels: self.labels.clone(), ..self.without_labels().filter(None, limit) };
        filter.check().map_err(CliError::wrong)?;
        Ok(filter)
    }

    /// Returns the filter of a job. Fails if a label is given twice.
    pub(crate) fn of_job(&self) -> Result<JobFilter, CliError> {
        let labels: BTreeMap<_, _> = self.labels.iter().cloned().collect();
        if labels.len() < self.labels.len() {
            return Err(CliError::wrong("a label is given twice, so no run matches"));
        }
        Ok(JobFilter { labels, ..self.without_labels() })
    }

    fn without_labels(&self) -> JobFilter {
        let millis = |duration: Option<Duration>| duration.map(|duration| duration.as_millis() as u64);
        JobFilter {
            flow: self.flow.clone(),
            version: self.flow_version,
            status: self.status.clone(),
            since: self.since,
            before: self.before,
            error: self.error.clone(),
            text: self.text.clone(),
            node: self.node.clone(),
            labels: BTreeMap::new(),
            trigger: self.trigger.clone(),
            parent: self.parent.clone(),
            retry_of: self.retry_of.clone(),
            min_duration_ms: millis(self.min_duration),
            max_duration_ms: millis(self.max_duration),
        }
    }
}

/// Parses a status of a run. `active` is the stored name of `running`.
fn parse_status(text: &str) -> Result<String, String> {
    const STATUSES: [&str; 6] = ["running", "parked", "needs_attention", "succeeded", "failed", "cancelled"];
    match text {
        "active" => Ok("running".into()),
        other if STATUSES.contains(&other) => Ok(other.into()),
        _ => Err(format!("use one of {}", STATUSES.join(", "))),
    }
}

/// Parses a time: a duration before now, or an instant in RFC 3339. Returns milliseconds since 1970.
fn time(text: &str) -> Result<u64, String> {
    if let Ok(ago) = duration::parse(text) {
        return Ok(now_ms().saturating_sub(ago.as_millis() as u64));
    }
    let instant: jiff::Timestamp =
        text.parse().map_err(|_| format!("`{text}` is no time; write 2h (ago) or 2026-01-31T08:00:00Z"))?;
    u64::try_from(instant.as_millisecond()).map_err(|_| "use a time after 1970".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_duration_ago_or_an_instant() {
        assert_eq!(time("1970-01-01T00:00:01.5Z"), Ok(1_500));
        assert_eq!(time("1970-01-01T01:00:01+01:00"), Ok(1_000));
        let now = time("1ms").unwrap();
        assert!((now - 3_600_000..=now - 3_590_000).contains(&time("1h").unwrap()));
        for wrong in ["", "yesterday", "1969-12-31T00:00:00Z", "2026-01-31", "-1h"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
