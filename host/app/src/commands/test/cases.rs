//! The cases of a flow, as they are written.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use flowcell::{Json, script::ENDING};
use serde::Deserialize;

use crate::{
    commands::given::{GivenReply, GivenResult, point_in_time},
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
    let file: File = serde_yaml::from_str(&text)
        .map_err(|error| Problem::wrong(format!("{} holds no cases", path.display())).cause(&error.to_string()))?;
    Ok(file.cases)
}
