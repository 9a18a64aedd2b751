//! The format of a flow's test cases.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use flowcell::{Json, LoadedFlow, graph::Graph, script::ENDING, similar};
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{
    cli_error::CliError,
    commands::{
        case_file,
        fixtures::{FixtureResult, ReplyFixture, point_in_time},
    },
    session::answers::node_of,
};

/// One test case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// The name of the case, for reports and for `--only`.
    pub(super) name: String,
    /// The input. Its members replace the flow's defaults.
    #[serde(default)]
    pub(super) input: Json,
    /// The answers to gates, by the address of the gate or the id of its node.
    #[serde(default)]
    pub(super) answers: BTreeMap<String, String>,
    /// The results of nodes that do not run. A key is the id of a node, for all its passes, or an address, for one
    /// pass.
    #[serde(default)]
    pub(super) given: BTreeMap<String, FixtureResult>,
    /// Replies to calls that would leave the host. A call gets the first reply whose members fit the call.
    #[serde(default)]
    pub(super) calls: Vec<ReplyFixture>,
    /// The time at which the run begins, in milliseconds since 1970. Default: 1 January 2030.
    #[serde(default, deserialize_with = "point_in_time")]
    pub(super) clock: Option<u64>,
    /// The seed of the random values. Default: 0.
    #[serde(default)]
    pub(super) seed: u64,
    /// The expected result.
    #[serde(default)]
    pub(super) expect: Expect,
}

/// The expected result of a case. Omitted members are not checked.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Expect {
    /// The status, by default `succeeded`. `refused` stands for an input that does not fit the flow.
    #[serde(deserialize_with = "status")]
    pub(super) status: String,
    /// The code of the run's error.
    pub(super) error: Option<String>,
    /// All outputs. Matchers, such as `{ "$any": true }`, may replace values.
    pub(super) outputs: Option<Json>,
    /// The ids of the flow's own nodes that ran, in the order of their ends.
    pub(super) route: Option<Vec<String>>,
}

/// The status of a case whose input does not fit the flow.
pub(super) const REFUSED: &str = "refused";

/// Every status that a case may expect.
const STATUSES: [&str; 6] = ["succeeded", "failed", "parked", "cancelled", "needs_attention", REFUSED];

/// Reads a status. An unknown word is an error that names the nearest status.
fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if STATUSES.contains(&text.as_str()) {
        return Ok(text);
    }
    let begins = |status: &&str| text.get(..4).is_some_and(|begin| status.starts_with(begin));
    let meant = STATUSES.into_iter().find(begins).or_else(|| similar(&text, STATUSES));
    let meant = meant.map(|meant| format!(": did you mean `{meant}`?")).unwrap_or_default();
    Err(D::Error::custom(format!("unknown status `{text}`{meant} (the statuses are {})", STATUSES.join(", "))))
}

impl Default for Expect {
    fn default() -> Expect {
        Expect { status: "succeeded".into(), error: None, outputs: None, route: None }
    }
}

/// Returns the path of a flow's cases: `triage.test.yaml` for `triage.yaml`.
pub(in crate::commands) fn cases_path(flow: &Path) -> PathBuf {
    let file = flow.file_name().unwrap_or_default().to_string_lossy();
    match file.strip_suffix(ENDING) {
        Some(name) => flow.with_file_name(format!("{name}.test.yaml")),
        None => flow.with_extension("test.yaml"),
    }
}

/// Reads the cases of a flow. An empty list is an error.
pub(super) fn read(flow: &Path) -> Result<Vec<Case>, CliError> {
    let path = cases_path(flow);
    let hint =
        "write the cases of `triage.yaml` into `triage.test.yaml`: { cases: [{ name, input, expect: { outputs } }] }";
    let cases: Vec<Case> = case_file::read(&path, hint)?;
    if cases.is_empty() {
        let problem = CliError::wrong(format!("the list `cases` of {} is empty", path.display()));
        return Err(problem.hint("write a case, such as `{ name: it works, input: {}, expect: { outputs: {} } }`"));
    }
    Ok(cases)
}

/// Returns a sentence for each output under `given` that does not fit the output schema of its node.
pub(super) fn misfits(case: &Case, flow: &LoadedFlow) -> Vec<String> {
    let misfit = |(name, given): (&String, &FixtureResult)| {
        let findings = flow.check_given_output(node_of(name), given.output()?).err()?;
        Some(format!("`{name}` under `given`: the output does not fit the node: {}", findings.join("; ")))
    };
    case.given.iter().filter_map(misfit).collect()
}

/// Returns a sentence for each node that a case names and the flow does not have. If the run has called other flows,
/// nodes under `given` and `calls` may belong to those.
pub(super) fn unknown_nodes(case: &Case, graph: &Graph, has_called: bool) -> Vec<String> {
    let ids = || graph.nodes.iter().map(|node| node.id.as_str());
    let given = case.given.keys().map(|name| ("given", name.as_str()));
    let calls = case.calls.iter().filter_map(|call| Some(("calls", call.node()?)));
    let elsewhere = given.chain(calls).filter(|_| !has_called);
    let named = elsewhere.chain(case.answers.keys().map(|name| ("answers", name.as_str())));
    let unknown = named.filter(|(_, name)| !ids().any(|id| id == node_of(name)));
    let sentence = |(key, name): (&str, &str)| {
        let meant = similar(node_of(name), ids()).map(|meant| format!("; did you mean `{meant}`?"));
        format!("`{name}` under `{key}`: unknown node{}", meant.unwrap_or_default())
    };
    unknown.map(sentence).collect()
}
