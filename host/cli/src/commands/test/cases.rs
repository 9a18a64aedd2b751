//! The cases of a flow, as they are written.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use flowcell::{Json, LoadedFlow, graph::Graph, script::ENDING, similar};
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{
    commands::{
        case_file,
        given::{GivenReply, GivenResult, point_in_time},
    },
    problem::Problem,
    session::answers::node_of,
};

/// One case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// What it is about.
    pub(super) name: String,
    /// Members that win over the flow's defaults.
    #[serde(default)]
    pub(super) input: Json,
    /// Answers of gates.
    #[serde(default)]
    pub(super) answers: BTreeMap<String, String>,
    /// Results of nodes, which are not run then: by id, or by address for one pass.
    #[serde(default)]
    pub(super) given: BTreeMap<String, GivenResult>,
    /// Replies of calls that leave the host, the first that fits.
    #[serde(default)]
    pub(super) calls: Vec<GivenReply>,
    /// The time at which the run begins, in milliseconds since 1970; none: that of every test.
    #[serde(default, deserialize_with = "point_in_time")]
    pub(super) clock: Option<u64>,
    /// What must come of it.
    #[serde(default)]
    pub(super) expect: Expect,
}

/// What must come of a case. What is left out is not looked at.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Expect {
    /// `succeeded` if it is left out; `refused` of an input that does not fit the flow.
    #[serde(deserialize_with = "status")]
    pub(super) status: String,
    /// The code of the run's error.
    pub(super) error: Option<String>,
    /// All outputs. Matchers stand for values.
    pub(super) outputs: Option<Json>,
    /// The nodes of the flow itself that ran, in the order in which they ended.
    pub(super) route: Option<Vec<String>>,
}

/// The status of a case whose input does not fit the flow.
pub(super) const REFUSED: &str = "refused";

/// Every status that a case may expect.
const STATUSES: [&str; 6] = ["succeeded", "failed", "parked", "cancelled", "needs_attention", REFUSED];

/// Reads a status. Refuses a word that is none.
fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if STATUSES.contains(&text.as_str()) {
        return Ok(text);
    }
    let begins = |status: &&str| text.get(..4).is_some_and(|begin| status.starts_with(begin));
    let meant = STATUSES.into_iter().find(begins).or_else(|| similar(&text, STATUSES));
    let meant = meant.map(|meant| format!(": did you mean `{meant}`?")).unwrap_or_default();
    Err(D::Error::custom(format!("there is no status `{text}`{meant} (the statuses are {})", STATUSES.join(", "))))
}

impl Default for Expect {
    fn default() -> Expect {
        Expect { status: "succeeded".into(), error: None, outputs: None, route: None }
    }
}

/// Where the cases of a flow are.
pub(super) fn beside(flow: &Path) -> PathBuf {
    let file = flow.file_name().unwrap_or_default().to_string_lossy();
    match file.strip_suffix(ENDING) {
        Some(name) => flow.with_file_name(format!("{name}.test.yaml")),
        None => flow.with_extension("test.yaml"),
    }
}

/// Reads the cases beside a flow.
pub(super) fn read(flow: &Path) -> Result<Vec<Case>, Problem> {
    let path = beside(flow);
    let hint =
        "the cases of `triage.yaml` are in `triage.test.yaml`: { cases: [{ name, input, expect: { outputs } }] }";
    let cases: Vec<Case> = case_file::read(&path, hint)?;
    if cases.is_empty() {
        let problem = Problem::wrong(format!("the list `cases` of {} is empty", path.display()));
        return Err(problem.hint("write a case, such as `{ name: it works, input: {}, expect: { outputs: {} } }`"));
    }
    Ok(cases)
}

/// Returns a sentence for each output under `given` that its node could not give.
pub(super) fn misfits(case: &Case, flow: &LoadedFlow) -> Vec<String> {
    let misfit = |(name, given): (&String, &GivenResult)| {
        let findings = flow.check_given_output(node_of(name), given.output()?).err()?;
        Some(format!("`{name}` under `given`: its node has no such output: {}", findings.join("; ")))
    };
    case.given.iter().filter_map(misfit).collect()
}

/// Returns a sentence for each node that a case names and the flow has not. Where the run has called other flows, nodes
/// under `given` and `calls` may be theirs.
pub(super) fn unknown_nodes(case: &Case, graph: &Graph, has_called: bool) -> Vec<String> {
    let ids = || graph.nodes.iter().map(|node| node.id.as_str());
    let given = case.given.keys().map(|name| ("given", name.as_str()));
    let calls = case.calls.iter().filter_map(|call| Some(("calls", call.node()?)));
    let elsewhere = given.chain(calls).filter(|_| !has_called);
    let named = elsewhere.chain(case.answers.keys().map(|name| ("answers", name.as_str())));
    let unknown = named.filter(|(_, name)| !ids().any(|id| id == node_of(name)));
    let sentence = |(key, name): (&str, &str)| {
        let meant = similar(node_of(name), ids()).map(|meant| format!("; did you mean `{meant}`?"));
        format!("`{name}` under `{key}`: the flow has no such node{}", meant.unwrap_or_default())
    };
    unknown.map(sentence).collect()
}
