//! The node `system.metrics`: records a measurement.

use std::collections::BTreeMap;

use flowcell_sdk::{metrics, prelude::*};

#[derive(Deserialize)]
pub(crate) struct Input {
    name: String,
    value: f64,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

/// Records one measurement among the run's events.
pub(crate) fn run(_task: &Task, input: Input) -> Result<Step> {
    let tags: Vec<_> = input.tags.into_iter().collect();
    metrics::measure(&input.name, input.value, &tags);
    Step::value(json!({ "ok": true }))
}
