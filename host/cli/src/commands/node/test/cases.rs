//! The format of a project's test cases.

use std::{collections::BTreeMap, fs, path::Path};

use flowcell::{
    Json, NodeType,
    cases::fixtures::{FixtureResult, ReplyFixture, point_in_time},
    contract::Example,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{cli_error::CliError, commands::case_file};

/// One test case.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::commands::node) struct Case {
    /// The name of the case, for reports and for `--only`.
    pub(in crate::commands::node) name: String,
    /// The name of the node type.
    #[serde(rename = "type")]
    pub(in crate::commands::node) node_type: String,
    /// The title of an example in the manifest. The case then takes its input, its config and its expected result from
    /// the example.
    pub(in crate::commands::node) example: Option<String>,
    pub(in crate::commands::node) input: Option<Json>,
    pub(in crate::commands::node) config: Option<Json>,
    /// The grants of each capability, as a flow writes them.
    #[serde(default)]
    pub(in crate::commands::node) grants: BTreeMap<String, Value>,
    /// The answer to a question of the node.
    pub(in crate::commands::node) answer: Option<Json>,
    /// The payloads of events that are sent to the run, by event name.
    #[serde(default)]
    pub(in crate::commands::node) emit: BTreeMap<String, Json>,
    /// Messages to the first agent run that has an inbox. The inbox is closed after the last one.
    #[serde(default)]
    pub(in crate::commands::node) messages: Vec<Json>,
    /// The results of the passes of the node's body, in order.
    pub(in crate::commands::node) body: Option<Vec<FixtureResult>>,
    /// Replies to calls that would leave the host. A call gets the first reply whose members fit the call.
    #[serde(default)]
    pub(in crate::commands::node) calls: Vec<ReplyFixture>,
    /// The initial values of the flow's state.
    #[serde(default)]
    pub(in crate::commands::node) state: BTreeMap<String, Json>,
    /// The time at which the run begins, in milliseconds since 1970. Default: 1 January 2030.
    #[serde(default, deserialize_with = "point_in_time")]
    pub(in crate::commands::node) clock: Option<u64>,
    /// The seed of the random values. Default: 0.
    #[serde(default)]
    pub(in crate::commands::node) seed: u64,
    /// The expected result.
    #[serde(default)]
    pub(in crate::commands::node) expect: Expect,
}

/// The expected result of a case. Omitted members are not checked, but an unexpected failure of the node fails the
/// case.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::commands::node) struct Expect {
    /// The whole output.
    pub(super) output: Option<Json>,
    pub(in crate::commands::node) failure: Option<Failing>,
    /// The names of the wakes in the first pause.
    pub(super) pause: Option<Vec<String>>,
    /// Events that the run has to send in this order. Other events may come between them. Members that an expected
    /// event omits are not checked.
    pub(super) events: Vec<Json>,
}

/// An expected failure: its code, or its code with more details.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(in crate::commands::node) enum Failing {
    Code(String),
    ExpectedFailure(ExpectedFailure),
}

/// The details of an expected failure. Omitted members are not checked.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::commands::node) struct ExpectedFailure {
    pub(super) code: String,
    /// A text that the message has to contain.
    pub(super) message: Option<String>,
    pub(super) retryable: Option<bool>,
    /// Members that the details have to contain.
    pub(super) details: Option<Json>,
}

impl Case {
    /// Makes a case from an example alone.
    pub(in crate::commands::node) fn of_example(node_type: &str, title: &str) -> Case {
        let (name, node_type) = (title.to_owned(), node_type.to_owned());
        Case { name, node_type, example: Some(title.to_owned()), ..Case::default() }
    }

    /// Makes a case from a node type alone. The node gets an empty body if it needs one.
    pub(in crate::commands::node) fn of_type(node_type: &str, node: &NodeType) -> Case {
        let body = node.body.as_ref().filter(|body| body.required).map(|_| Vec::new());
        Case { name: node_type.to_owned(), node_type: node_type.to_owned(), body, ..Case::default() }
    }

    /// Returns the case completed with the values of its example.
    pub(in crate::commands::node) fn completed(&self, nodes: &[NodeType], title: &str) -> Result<Case, CliError> {
        let node = nodes.iter().find(|node| *node.name == *self.node_type);
        let found = node.and_then(|node| Some((node, node.examples.iter().find(|example| example.title == title)?)));
        let (node, example) = found.ok_or_else(|| {
            CliError::wrong(format!(
                "the case `{}` names the example `{title}`, which the manifest does not have for `{}`",
                self.name, self.node_type
            ))
        })?;
        let expect = Expect {
            output: example.output.clone().map(Json::from),
            failure: example.failure.clone().map(Failing::Code),
            pause: example.pause.clone(),
            events: self.expect.events.clone(),
        };
        let body = self.body.clone().or_else(|| has_body(node, example).then(Vec::new));
        let input = Some(Json::from(example.input.clone())).filter(|input| !input.is_null());
        Ok(Case { input, config: example.config.clone().map(Json::from), body, expect, ..self.clone() })
    }
}

/// Returns true if the node of the example has to have a body: if the example pauses for a body, or if the node type
/// requires one. An example that expects the failure `missing_body` has none.
fn has_body(node: &NodeType, example: &Example) -> bool {
    let pauses = example.pause.iter().flatten().any(|wake| matches!(wake.as_str(), "body" | "each"));
    let needed = node.body.as_ref().is_some_and(|body| body.required);
    pauses || needed && example.failure.as_deref() != Some("missing_body")
}

/// Reads the cases of all `.yaml` files in a folder, in the order of the file names. A missing folder has no cases.
pub(in crate::commands::node) fn read(folder: &Path) -> Result<Vec<Case>, CliError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let hint = "write { cases: [{ name, type, input, expect: { output } }] }";
        cases.extend(case_file::read::<Case>(&path, hint)?);
    }
    Ok(cases)
}
