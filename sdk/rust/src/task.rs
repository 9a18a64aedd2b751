//! The parts of a task. The sandbox copies a part from the host only when the node reads the part. Reading one field of
//! a large input copies only that field.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    failure::{Failure, Result},
    wit::flowcell::node::context::{self, Part},
};

/// One task of a node: its input and config, and after a pause the state and the wake of that pause.
///
/// The paths in its methods are JSON Pointers: `""` is the whole value, `/items/0/name` a part of it.
#[derive(Debug)]
pub struct Task(Parts);

/// The source of the parts: the host, or the values of a test.
#[derive(Debug)]
enum Parts {
    Host,
    Given(Box<Given>),
}

/// The parts of a task for a test. By default input, config and task are empty objects, as for a node to which the flow
/// gives neither input nor config.
#[derive(Clone, Debug)]
pub struct Given {
    /// The input.
    pub input: Value,
    /// The config.
    pub config: Value,
    /// The state of the last pause; none if the attempt has not paused yet.
    pub state: Option<Value>,
    /// The wake that ended the last pause; none if the attempt has not paused yet.
    pub woken: Option<Value>,
    /// Information about the task, see [`Info`].
    pub task: Value,
}

impl Default for Given {
    fn default() -> Given {
        let empty = || Value::Object(Map::new());
        Given { input: empty(), config: empty(), state: None, woken: None, task: empty() }
    }
}

/// Information about a task. Later versions may add fields.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Info {
    /// The id of the run.
    pub run_id: String,
    /// The node's id in its flow.
    pub node_id: String,
    /// The node type, without its version.
    pub node_type: String,
    /// The path of the pass of the body that contains the node. Empty outside of a body.
    pub scope: Value,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Number of pauses of this attempt that have ended.
    pub resumes: u32,
    /// True if the flow gives the node a body.
    pub has_body: bool,
    /// The time that the attempt sees as now, in ms since 1970. A repetition of the attempt gets the same time.
    pub now_ms: u64,
    /// A seed for random generators. A repetition of the attempt gets the same seed.
    pub seed: Value,
}

/// The wake that ended the last pause.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Woken {
    /// The index of the wake in [`Pause::until`](crate::Pause::until).
    pub index: usize,
    /// The name of the wake: `after`, `event`, `answer`, `body`, `each`, `flow` or `now`.
    pub wake: String,
    /// The value of the wake. `after` has `{ elapsedMs }`, `event` has `{ name, payload }`, and `answer` has
    /// `{ content, choice? }`. `body` has the outcome of the pass, `each` the list of all outcomes, and `flow` has
    /// `{ outputs }`.
    #[serde(default)]
    pub value: Value,
    /// The failure of the body or the called flow that ended the pause; none if the pause ended without a failure.
    #[serde(default)]
    pub error: Option<WokenError>,
}

/// The failure of a body or a called flow, which ended a pause.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WokenError {
    /// The code.
    pub code: String,
    /// The message.
    pub message: String,
    /// True if a retry may help.
    #[serde(default)]
    pub retryable: bool,
    /// Details for programs.
    #[serde(default)]
    pub details: Option<Value>,
}

impl WokenError {
    /// Converts the failure of the body or the called flow into a failure of this node.
    pub fn into_failure(self) -> Failure {
        let failure = Failure::new(self.code, self.message);
        Failure { retryable: self.retryable, details: self.details, ..failure }
    }
}

/// Distinguishes `null` from an absent field: `#[serde(default, deserialize_with = "flowcell_sdk::given")]` reads
/// `null` as `Some(null)` and an absent field as none.
pub fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Task {
    /// Creates the task whose parts are read from the host.
    pub(crate) fn from_host() -> Task {
        Task(Parts::Host)
    }

    /// Creates a task for a test.
    pub fn given(parts: Given) -> Task {
        Task(Parts::Given(Box::new(parts)))
    }

    /// Reads the whole input. Fails with `invalid_input` if it does not have the form of `T`.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.json(Part::Input, "").unwrap_or_else(|| "null".into());
        read(&text).map_err(|problem| Failure::invalid_input(format!("input{problem}")))
    }

    /// Reads one part of the input. Returns none if the part does not exist. Fails with `invalid_input` if it does
    /// not have the form of `T`.
    pub fn input_at<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let Some(text) = self.json(Part::Input, path) else { return Ok(None) };
        let refuse = |problem| Failure::invalid_input(format!("input at `{path}`{problem}"));
        read(&text).map(Some).map_err(refuse)
    }

    /// Returns true if the input has a part at this path, even if the part is null. Copies no list, object or text.
    pub fn has_input(&self, path: &str) -> bool {
        self.input_len(path).is_some() || self.json(Part::Input, path).is_some()
    }

    /// Returns a text of the input, or none if the part is absent or not a text.
    pub fn input_text(&self, path: &str) -> Option<String> {
        match &self.0 {
            Parts::Host => context::get_text(Part::Input, path),
            Parts::Given(given) => given.input.pointer(path)?.as_str().map(str::to_owned),
        }
    }

    /// Returns the number of items of a list, of keys of an object, or of bytes of a text. None for other values and
    /// absent parts.
    pub fn input_len(&self, path: &str) -> Option<u32> {
        let len = match &self.0 {
            Parts::Host => return context::len(Part::Input, path),
            Parts::Given(given) => match given.input.pointer(path)? {
                Value::Array(items) => items.len(),
                Value::Object(members) => members.len(),
                Value::String(text) => text.len(),
                _ => return None,
            },
        };
        u32::try_from(len).ok()
    }

    /// Reads the config. Fails with `invalid_config` if it does not have the form of `T`.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.json(Part::Config, "").unwrap_or_else(|| "{}".into());
        read(&text).map_err(|problem| Failure::new("invalid_config", format!("config{problem}")))
    }

    /// Reads the state of the last pause; none if the attempt has not paused yet.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let text = self.json(Part::State, "");
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// Reads the wake that ended the last pause; none if the attempt has not paused yet.
    pub fn woken(&self) -> Result<Option<Woken>> {
        let text = self.json(Part::Woken, "");
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// Reads the wake that ended the last pause, but not its value, which may be large: [`Woken::value`] is null.
    /// Returns none if the attempt has not paused yet.
    pub fn woken_by(&self) -> Result<Option<Woken>> {
        let Some(wake) = self.json(Part::Woken, "/wake") else { return Ok(None) };
        let error = self.json(Part::Woken, "/error").map(|text| serde_json::from_str(&text)).transpose()?;
        let index = self.json(Part::Woken, "/index").map_or(Ok(0), |text| serde_json::from_str(&text))?;
        Ok(Some(Woken { index, wake: serde_json::from_str(&wake)?, value: Value::Null, error }))
    }

    /// Reads the information about the task.
    pub fn info(&self) -> Result<Info> {
        let text = self.json(Part::Task, "").unwrap_or_else(|| "{}".into());
        Ok(serde_json::from_str(&text)?)
    }

    fn json(&self, part: Part, path: &str) -> Option<String> {
        let given = match &self.0 {
            Parts::Host => return context::get_json(part, path),
            Parts::Given(given) => given,
        };
        let value = match part {
            Part::Input => &given.input,
            Part::Config => &given.config,
            Part::State => given.state.as_ref()?,
            Part::Woken => given.woken.as_ref()?,
            Part::Task => &given.task,
        };
        value.pointer(path).map(Value::to_string)
    }
}

/// Parses JSON text. The error says which field is wrong and why.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = error.path().to_string();
        let message = error.inner().to_string();
        // The host wrote the text, so its line numbers do not help the author of the flow.
        let message = message.split(" at line ").next().unwrap_or_default();
        if field == "." { format!(": {message}") } else { format!(".{field}: {message}") }
    })
}
