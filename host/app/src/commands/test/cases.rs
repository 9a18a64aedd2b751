//! The cases of a flow, as they are written.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use flowcell::{Json, graph::Graph, script::ENDING, similar};
use serde::Deserialize;

use crate::{
    commands::{
        given::{GivenReply, GivenResult, point_in_time},
        run::answers::node_of,
    },
    problem::Problem,
};

/// What is written in `<flow>.test.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cases: Vec<Case>,
}

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
    pub(super) status: String,
    /// The code of the run's error.
    pub(super) error: Option<String>,
    /// All outputs. Matchers stand for values.
    pub(super) outputs: Option<Json>,
    /// The nodes of the flow itself that ran, in the order in which they ended.
    pub(super) route: Option<Vec<String>>,
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
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Problem::wrong(format!("cannot read {}", path.display())).because(&error).hint(
            "the cases of `triage.yaml` are in `triage.test.yaml`: { cases: [{ name, input, expect: { outputs } }] }",
        )
    })?;
    let file: File = serde_yaml::from_str(&text).map_err(|error| {
        let cause = error.to_string();
        let problem = Problem::wrong(format!("{} holds no cases", path.display())).cause(&cause);
        match meant(&cause) {
            Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
            None => problem,
        }
    })?;
    if file.cases.is_empty() {
        let problem = Problem::wrong(format!("the list `cases` of {} is empty", path.display()));
        return Err(problem.hint("write a case, such as `{ name: it works, input: {}, expect: { outputs: {} } }`"));
    }
    Ok(file.cases)
}

/// The known name nearest to the unknown one that an error of `serde` tells of: "unknown field `a`, expected one of b, c".
fn meant(cause: &str) -> Option<&str> {
    let (_, told) = cause.lines().next()?.split_once("unknown ")?;
    let (unknown, known) = told.split_once("`, expected ")?;
    let known = known.trim_start_matches("one of ").split(|sign: char| !sign.is_alphanumeric() && sign != '_');
    similar(unknown.split_once('`')?.1, known.filter(|word| !word.is_empty()))
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

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn the_nearest_key_is_named() {
        for (cause, expected) in [
            ("cases[0]: unknown field `inptu`, expected one of `name`, `input`\n | inptu", Some("input")),
            ("error: line 1 column 1: unknown field `case`, expected one of cases", Some("cases")),
            ("unknown variant `outptu`, expected `output` or `error`", Some("output")),
            ("unknown field `zzzzzz`, expected `cases`", None),
            ("invalid type: string \"x\", expected a sequence", None),
        ] {
            assert_eq!(meant(cause), expected, "{cause}");
        }
    }
}
