//! The cases of a flow, as they are written.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use flowcell::{Given, GivenCall, Json, contract::Failure, script::ENDING};
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
    /// Replies of calls that leave the host, the first that fits.
    #[serde(default)]
    pub(super) calls: Vec<GivenReply>,
    /// What must come of it.
    #[serde(default)]
    pub(super) expect: Expect,
}

/// A reply, and the calls that get it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenReply {
    node: Option<String>,
    method: Option<String>,
    url: Option<String>,
    service: Option<String>,
    times: Option<Times>,
    reply: Option<Reply>,
    result: Option<Json>,
    error: Option<GivenError>,
}

/// How many calls get a reply.
#[derive(Deserialize)]
#[serde(untagged)]
enum Times {
    Number(u32),
    Word(Any),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Any {
    Any,
}

/// An answer of a server.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    json: Option<Json>,
    text: Option<String>,
}

fn ok() -> u16 {
    200
}

impl GivenReply {
    pub(super) fn as_given(&self) -> GivenCall {
        let about = [("method", &self.method), ("url", &self.url), ("service", &self.service)];
        let about = about.into_iter().filter_map(|(key, value)| Some((key.to_owned(), Json::from(value.as_deref()?))));
        let reply = match &self.error {
            Some(error) => Err(error.as_failure()),
            None if self.service.is_some() => Ok(self.result.clone().unwrap_or_default()),
            None => Ok(self.reply.as_ref().map_or_else(|| Reply::default().as_json(), Reply::as_json)),
        };
        let times = match self.times {
            None => Some(1),
            Some(Times::Number(times)) => Some(times),
            Some(Times::Word(Any::Any)) => None,
        };
        let interface = if self.service.is_some() { "services" } else { "http" };
        GivenCall { interface: Some(interface.into()), node: self.node.clone(), about: about.collect(), reply, times }
    }
}

impl Default for Reply {
    fn default() -> Reply {
        Reply { status: ok(), headers: BTreeMap::new(), json: None, text: None }
    }
}

impl Reply {
    fn as_json(&self) -> Json {
        let header = |name: &str, value: &str| Json::array([Json::from(name.to_lowercase()), Json::from(value)]);
        let mut headers: Vec<_> = self.headers.iter().map(|(name, value)| header(name, value)).collect();
        let text = match (&self.json, &self.text) {
            (Some(json), _) => {
                headers.push(header("content-type", "application/json"));
                Some(json.to_text())
            }
            (None, text) => text.clone(),
        };
        let body = text.map_or(Json::Null, |text| Json::object([("text", Json::from(text))]));
        let status = Json::from(u32::from(self.status));
        Json::object([("status", status), ("headers", Json::array(headers)), ("body", body)])
    }
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
            GivenResult::Error(error) => Given::Failure(error.as_failure()),
        }
    }
}

impl GivenError {
    fn as_failure(&self) -> Failure {
        Failure { retryable: self.retryable, ..Failure::new(&self.code, &self.message) }
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
