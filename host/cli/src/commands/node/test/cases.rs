//! The cases of a project, as they are written.

use std::{collections::BTreeMap, fs, path::Path};

use flowcell::{Json, Manifest, NodeType, contract::Example};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    commands::{
        case_file,
        given::{GivenReply, GivenResult, point_in_time},
    },
    problem::Problem,
};

/// One case.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// What it is about.
    pub(super) name: String,
    /// The node type.
    #[serde(rename = "type")]
    pub(super) node_type: String,
    /// The title of an example in the manifest, which says input, config and what must come of it.
    pub(super) example: Option<String>,
    pub(super) input: Option<Json>,
    pub(super) config: Option<Json>,
    /// By capability, as a flow writes them.
    #[serde(default)]
    pub(super) grants: BTreeMap<String, Value>,
    /// What the node is answered if it asks.
    pub(super) answer: Option<Json>,
    /// Events that are sent to the run, by name.
    #[serde(default)]
    pub(super) emit: BTreeMap<String, Json>,
    /// What is written to the first agent run that has an inbox; then nobody writes any more.
    #[serde(default)]
    pub(super) messages: Vec<Json>,
    /// What the passes of the node's body give, in order.
    pub(super) body: Option<Vec<GivenResult>>,
    /// Replies of calls that leave the host, the first that fits.
    #[serde(default)]
    pub(super) calls: Vec<GivenReply>,
    /// Values that the flow has kept before.
    #[serde(default)]
    pub(super) state: BTreeMap<String, Json>,
    /// The time at which it begins, in milliseconds since 1970; none: that of every test.
    #[serde(default, deserialize_with = "point_in_time")]
    pub(super) clock: Option<u64>,
    /// What must come of it.
    #[serde(default)]
    pub(super) expect: Expect,
}

/// What must come of a case. What is left out is not looked at, but the node must not fail.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Expect {
    /// All of the output.
    pub(super) output: Option<Json>,
    pub(super) failure: Option<Failing>,
    /// The names of the wakes of the first pause.
    pub(super) pause: Option<Vec<String>>,
    /// Events of the run that are told in this order, perhaps with others between; members that are left out are not looked at.
    pub(super) events: Vec<Json>,
}

/// A failure, by its code or with more of what it says.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Failing {
    Code(String),
    Told(Told),
}

/// A failure. What is left out is not looked at.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Told {
    pub(super) code: String,
    /// A part of its message.
    pub(super) message: Option<String>,
    pub(super) retryable: Option<bool>,
    /// A part of its details.
    pub(super) details: Option<Json>,
}

impl Case {
    /// The case that an example is by itself.
    pub(super) fn of_example(node_type: &str, title: &str) -> Case {
        let (name, node_type) = (title.to_owned(), node_type.to_owned());
        Case { name, node_type, example: Some(title.to_owned()), ..Case::default() }
    }

    /// The case with what its example says.
    pub(super) fn completed(&self, manifest: &Manifest, title: &str) -> Result<Case, Problem> {
        let node = manifest.nodes.iter().find(|node| *node.name == *self.node_type);
        let found = node.and_then(|node| Some((node, node.examples.iter().find(|example| example.title == title)?)));
        let (node, example) = found.ok_or_else(|| {
            Problem::wrong(format!(
                "the case `{}`: the manifest has no example `{title}` of `{}`",
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

/// A type that needs a body has one, but in an example about its absence.
fn has_body(node: &NodeType, example: &Example) -> bool {
    let pauses = example.pause.iter().flatten().any(|wake| matches!(wake.as_str(), "body" | "each"));
    let needed = node.body.as_ref().is_some_and(|body| body.required);
    pauses || needed && example.failure.as_deref() != Some("missing_body")
}

/// Reads the cases of a folder, by the names of its files. It need not be there.
pub(super) fn read(folder: &Path) -> Result<Vec<Case>, Problem> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let hint = "a file of cases is { cases: [{ name, type, input, expect: { output } }] }";
        cases.extend(case_file::read::<Case>(&path, hint)?);
    }
    Ok(cases)
}
