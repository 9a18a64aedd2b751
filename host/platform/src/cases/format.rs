//! The format of a flow's test cases.

use std::{collections::BTreeMap, time::Instant};

use flowcell_contract::{Json, similar};
use flowcell_flow::graph::{Graph, NodeIx};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{
    addresses::{node_of, unusable},
    fixtures::{FixtureResult, ReplyFixture, not_null, point_in_time},
};
use crate::host::loaded::LoadedFlow;

/// One test case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The name of the case, for reports and for `--only`.
    pub name: String,
    /// The input. Its members replace the flow's defaults.
    #[serde(default)]
    pub input: Json,
    /// The answers to gates, by the address of the gate or the id of its node.
    #[serde(default)]
    pub answers: BTreeMap<String, String>,
    /// The results of nodes that do not run. A key is the id of a node, for all its passes, or an address, for one
    /// pass.
    #[serde(default)]
    pub given: BTreeMap<String, FixtureResult>,
    /// Replies to calls that would leave the host. A call gets the first reply whose members fit the call.
    #[serde(default)]
    pub calls: Vec<ReplyFixture>,
    /// The time at which the run begins, in milliseconds since 1970. Default: 1 January 2030.
    #[serde(default, deserialize_with = "point_in_time")]
    pub clock: Option<u64>,
    /// The seed of the random values. Default: 0.
    #[serde(default)]
    pub seed: u64,
    /// The expected result.
    #[serde(default, deserialize_with = "expectation")]
    pub expect: Expect,
}

/// The expected result of a case. Omitted members are not checked.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expect {
    /// The status, by default `succeeded`. `refused` stands for an input that does not fit the flow.
    #[serde(deserialize_with = "status")]
    pub status: String,
    /// The code of the run's error.
    #[serde(deserialize_with = "not_null")]
    pub error: Option<String>,
    /// All outputs. Matchers, such as `{ "$any": true }`, may replace values.
    #[serde(deserialize_with = "expected_outputs")]
    pub outputs: Option<Json>,
    /// The ids of the flow's own nodes that ran, in the order of their ends.
    #[serde(deserialize_with = "not_null")]
    pub route: Option<Vec<String>>,
}

/// Maximum number of unknown nodes that are reported for a case.
const MAX_UNKNOWN: usize = 20;

/// The status of a case whose input does not fit the flow.
pub const REFUSED: &str = "refused";

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

/// Reads `outputs`, which may only be null as the argument of a matcher.
fn expected_outputs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    let outputs = Option::<Json>::deserialize(deserializer)?;
    outputs.map(Some).ok_or_else(|| {
        let why = "`outputs` without a value tests nothing: write the outputs, or `{ $equals: null }` if they are null";
        D::Error::custom(why)
    })
}

fn expectation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Expect, D::Error> {
    not_null(deserializer).map(Option::unwrap_or_default)
}

impl Default for Expect {
    fn default() -> Expect {
        Expect { status: "succeeded".into(), error: None, outputs: None, route: None }
    }
}

/// Returns a sentence for each output under `given` that does not fit the output schema of its node. After the time
/// `until`, a sentence says that the other outputs were not checked.
pub(super) fn misfits(case: &Case, flow: &LoadedFlow, until: Option<Instant>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, given) in &case.given {
        if until.is_some_and(|until| Instant::now() >= until) {
            wrong.push("the check of the outputs under `given` takes too long, and was ended: give fewer".to_owned());
            break;
        }
        let findings = given.output().and_then(|output| flow.check_given_output(node_of(name), output).err());
        let misfit = |findings: Vec<String>| {
            format!("`{name}` under `given`: the output does not fit the node: {}", findings.join("; "))
        };
        wrong.extend(findings.map(misfit));
    }
    wrong
}

/// Returns a sentence for each name of a node in a case that no node of the run can have, for at most [`MAX_UNKNOWN`]
/// names. If the run has called other flows, names under `given` and `calls` may belong to those.
pub(super) fn unknown_nodes(case: &Case, graph: &Graph, has_called: bool) -> Vec<String> {
    let ids: BTreeMap<&str, NodeIx> =
        graph.nodes.iter().enumerate().map(|(index, node)| (node.id.as_str(), NodeIx(index as u32))).collect();
    let given = case.given.keys().map(|name| ("given", name.as_str()));
    let calls = case.calls.iter().filter_map(|call| Some(("calls", call.node()?)));
    let elsewhere = given.chain(calls).filter(|_| !has_called);
    let named = elsewhere.chain(case.answers.keys().map(|name| ("answers", name.as_str())));
    let sentence = |(key, name): (&str, &str)| match ids.get(node_of(name)) {
        Some(node) => unusable(key, name, *node, graph),
        None => {
            let meant = similar(node_of(name), ids.keys().copied()).map(|meant| format!("; did you mean `{meant}`?"));
            Some(format!("`{name}` under `{key}`: unknown node{}", meant.unwrap_or_default()))
        }
    };
    let is_wrong = |&(key, name): &(&str, &str)| {
        ids.get(node_of(name)).is_none_or(|node| unusable(key, name, *node, graph).is_some())
    };
    let mut wrong = named.filter(is_wrong);
    let mut told: Vec<_> = wrong.by_ref().take(MAX_UNKNOWN).filter_map(sentence).collect();
    let more = wrong.count();
    told.extend((more > 0).then(|| format!("and {more} more unknown nodes")));
    told
}
