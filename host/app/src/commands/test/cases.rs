//! The cases of a flow, as they are written.

use std::{collections::BTreeMap, path::Path};

use flowcell::{Given, Json, contract::Failure};
use serde::Deserialize;

use crate::problem::Problem;

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
    /// What must come of it.
    #[serde(default)]
    pub(super) expect: Expect,
}

/// What a node gives without being run.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum GivenResult {
    /// Its output.
    Output(Json),
    /// Its failure.
    Error(GivenError),
}

/// A failure.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenError {
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    retryable: bool,
}

/// What must come of a case. What is left out is not looked at.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Expect {
    /// `succeeded` if it is left out.
    pub(super) status: String,
    /// The code of the run's error.
    pub(super) error: Option<String>,
    /// All outputs.
    pub(super) outputs: Option<Json>,
    /// The nodes of the flow itself that ran, in the order in which they ended.
    pub(super) route: Option<Vec<String>>,
}

impl Default for Expect {
    fn default() -> Expect {
        Expect { status: "succeeded".into(), error: None, outputs: None, route: None }
    }
}

impl GivenResult {
    pub(super) fn as_given(&self) -> Given {
        match self {
            GivenResult::Output(output) => Given::Output(output.clone()),
            GivenResult::Error(error) => {
                let failure = Failure::new(&error.code, &error.message);
                Given::Failure(Failure { retryable: error.retryable, ..failure })
            }
        }
    }
}

/// Reads the cases beside a flow.
pub(super) fn read(flow: &Path) -> Result<Vec<Case>, Problem> {
    let path = flow.with_extension("test.yaml");
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Problem::wrong(format!("cannot read {}", path.display())).because(&error).hint(
            "the cases of `triage.yaml` are in `triage.test.yaml`: { cases: [{ name, input, expect: { outputs } }] }",
        )
    })?;
    let file: File = serde_yaml::from_str(&text)
        .map_err(|error| Problem::wrong(format!("{} holds no cases", path.display())).cause(&error.to_string()))?;
    Ok(file.cases)
}
