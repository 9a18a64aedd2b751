//! What a node is given, read lazily: one field of a large input costs one field.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    failure::{Failure, Result},
    wit::flowcell::node::context::{self, Part},
};

/// One task: its input and config, and what is left of earlier pauses.
///
/// Paths are JSON Pointers: `""` is the whole value, `/items/0/name` a part.
#[derive(Debug)]
pub struct Task(Parts);

/// Where the parts come from.
#[derive(Debug)]
enum Parts {
    Host,
    Given(Box<Given>),
}

/// The parts of a task, given by a test. By default input, config and task are empty objects, as the host gives them to a
/// node for which the flow says nothing.
#[derive(Clone, Debug)]
pub struct Given {
    /// The input.
    pub input: Value,
    /// The config.
    pub config: Value,
    /// What the last pause remembered; none: the first run.
    pub state: Option<Value>,
    /// What woke the node; none: the first run.
    pub woken: Option<Value>,
    /// What the task is about, see [`Info`].
    pub task: Value,
}

impl Default for Given {
    fn default() -> Given {
        let empty = || Value::Object(Map::new());
        Given { input: empty(), config: empty(), state: None, woken: None, task: empty() }
    }
}

/// What a task is about. More may come.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Info {
    /// The run.
    pub run_id: String,
    /// The node's id in its flow.
    pub node_id: String,
    /// The node type, without its version.
    pub node_type: String,
    /// The body pass in which the node runs; empty at the top.
    pub scope: Value,
    /// The attempt, from 1.
    pub attempt: u32,
    /// How often this attempt paused before.
    pub resumes: u32,
    /// Whether the flow gives the node a body.
    pub has_body: bool,
    /// The time, in ms since 1970. The same again if the attempt is replayed.
    pub now_ms: u64,
    /// A number for random generators. The same again if the attempt is replayed.
    pub seed: Value,
}

/// What ended the last pause.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Woken {
    /// Which wake of the pause it was.
    pub index: usize,
    /// Its name: `after`, `event`, `answer`, `body`, `each`, `flow` or `now`.
    pub wake: String,
    /// What came: `{ elapsedMs }`, `{ name, payload }`, `{ content, choice? }`, the outcome of a pass, the list of all
    /// outcomes, or `{ outputs }`.
    #[serde(default)]
    pub value: Value,
    /// Why a body or a flow gave nothing.
    #[serde(default)]
    pub error: Option<WokenError>,
}

/// The failure of a body or a flow.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WokenError {
    /// Its code.
    pub code: String,
    /// Its message.
    pub message: String,
    /// Whether trying again may help.
    #[serde(default)]
    pub retryable: bool,
    /// For programs.
    #[serde(default)]
    pub details: Option<Value>,
}

impl WokenError {
    /// The same failure as this node's own.
    pub fn into_failure(self) -> Failure {
        let failure = Failure::new(self.code, self.message);
        Failure { retryable: self.retryable, details: self.details, ..failure }
    }
}

/// Tells `null` from a field that is absent: `#[serde(default, deserialize_with = "flowcell_sdk::given")]` makes the
/// former `Some(null)` and the latter none.
pub fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Task {
    /// The task that the host runs.
    pub(crate) fn of_host() -> Task {
        Task(Parts::Host)
    }

    /// A task for a test.
    pub fn given(parts: Given) -> Task {
        Task(Parts::Given(Box::new(parts)))
    }

    /// The whole input.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.json(Part::Input, "").unwrap_or_else(|| "null".into());
        read(&text).map_err(|problem| Failure::invalid_input(format!("input{problem}")))
    }

    /// One part of the input; none: there is no such part.
    pub fn input_at<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let Some(text) = self.json(Part::Input, path) else { return Ok(None) };
        let refuse = |problem| Failure::invalid_input(format!("input at `{path}`{problem}"));
        read(&text).map(Some).map_err(refuse)
    }

    /// Whether the input has such a part, which may be null. Costs nothing where the part is large.
    pub fn has_input(&self, path: &str) -> bool {
        self.input_len(path).is_some() || self.json(Part::Input, path).is_some()
    }

    /// A text in the input; none: absent or no text.
    pub fn input_text(&self, path: &str) -> Option<String> {
        match &self.0 {
            Parts::Host => context::get_text(Part::Input, path),
            Parts::Given(given) => given.input.pointer(path)?.as_str().map(str::to_owned),
        }
    }

    /// Items of a list, keys of an object, bytes of a text; none: absent or a scalar.
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

    /// The config.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.json(Part::Config, "").unwrap_or_else(|| "{}".into());
        read(&text).map_err(|problem| Failure::new("invalid_config", format!("config{problem}")))
    }

    /// What the last pause remembered; none on the first run.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let text = self.json(Part::State, "");
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// What ended the last pause; none on the first run.
    pub fn woken(&self) -> Result<Option<Woken>> {
        let text = self.json(Part::Woken, "");
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// What ended the last pause, without its value, which may be large; none on the first run.
    pub fn woken_by(&self) -> Result<Option<Woken>> {
        let Some(wake) = self.json(Part::Woken, "/wake") else { return Ok(None) };
        let error = self.json(Part::Woken, "/error").map(|text| serde_json::from_str(&text)).transpose()?;
        let index = self.json(Part::Woken, "/index").map_or(Ok(0), |text| serde_json::from_str(&text))?;
        Ok(Some(Woken { index, wake: serde_json::from_str(&wake)?, value: Value::Null, error }))
    }

    /// What the task is about.
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

/// Reads a value, or says what is wrong and in which field.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = error.path().to_string();
        let message = error.inner().to_string();
        // The text is the host's, so that a line in it says nothing to whoever wrote the flow.
        let message = message.split(" at line ").next().unwrap_or_default();
        if field == "." { format!(": {message}") } else { format!(".{field}: {message}") }
    })
}
