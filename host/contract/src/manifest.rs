//! What a pack says of itself: its `node.yaml`, read without running it.

use std::{collections::HashSet, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Effect, Failure, yaml_error};

/// The content of a pack, by SHA-256 in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(pub Arc<str>);

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sha256:{}", self.0)
    }
}

/// A pack's manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The pack's name, the prefix of its node types: `acme` offers `acme.greet`.
    pub name: Arc<str>,
    /// The version of the pack and of every node type in it.
    pub version: semver::Version,
    /// SPDX expression.
    #[serde(default)]
    pub license: Option<String>,
    /// One sentence.
    #[serde(default)]
    pub description: Option<String>,
    /// What the pack offers.
    pub nodes: Vec<NodeType>,
}

/// One node type.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeType {
    /// Its full name, without a version: `control.if`.
    #[serde(rename = "type")]
    pub name: Arc<str>,
    /// What flows of steps may call it too: no dot, and once in a pack.
    #[serde(default, rename = "shortName", skip_serializing_if = "Option::is_none")]
    pub short_name: Option<Arc<str>>,
    /// Two or three words.
    pub title: String,
    /// What it does, in a paragraph.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the input. Properties may carry `x-flowcell` marks, see [`Mark`].
    #[serde(default = "any_object")]
    pub input: serde_json::Value,
    /// JSON Schema of the config.
    #[serde(default = "no_config")]
    pub config: serde_json::Value,
    /// JSON Schema of the output.
    #[serde(default = "anything")]
    pub output: serde_json::Value,
    /// What kind of node it is.
    #[serde(default)]
    pub traits: Vec<Trait>,
    /// For nodes that own a body: what its nodes can name.
    #[serde(default)]
    pub body: Option<BodyTrait>,
    /// What its calls do to the world, if nothing else is said.
    #[serde(default)]
    pub effect: Effect,
    /// What it asks to use.
    #[serde(default)]
    pub capabilities: Vec<CapabilityRequest>,
    /// Inputs with what they give; the tests run every one.
    #[serde(default)]
    pub examples: Vec<Example>,
    /// The failure codes it gives.
    #[serde(default)]
    pub errors: Vec<ErrorDoc>,
    /// The version of the pack; set when the manifest is read.
    #[serde(skip)]
    pub version: Option<semver::Version>,
    /// The content of the pack; set when the pack is read.
    #[serde(skip)]
    pub pack: Option<Digest>,
    /// The marks of the input schema; set when the manifest is read.
    #[serde(skip)]
    pub marks: Vec<Mark>,
}

fn any_object() -> serde_json::Value {
    serde_json::json!({ "type": "object" })
}

fn no_config() -> serde_json::Value {
    serde_json::json!({ "type": "object", "additionalProperties": false })
}

fn anything() -> serde_json::Value {
    serde_json::Value::Bool(true)
}

/// What kind of node a type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trait {
    /// It invokes agents.
    Agent,
    /// It reads messages sent to it.
    Inbox,
    /// It publishes partial output.
    Streaming,
    /// It may own a body.
    Body,
}

/// What a body's nodes can name of their owner, as `<owner id>.<variable>`; `last` is always there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BodyTrait {
    /// Names of variables.
    #[serde(default)]
    pub variables: Vec<Arc<str>>,
    /// Whether the node makes no sense without a body.
    #[serde(default)]
    pub required: bool,
    /// The output member into which the host puts what each pass gave, in order, if the input field that is marked
    /// `collect` is `true`. The node itself never holds the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collects: Option<Arc<str>>,
}

/// A capability and why it is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilityRequest {
    /// `log`, `state`, `http` …
    pub name: Arc<str>,
    /// For whoever decides on the grant.
    pub reason: String,
    /// The node does something without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// An input and what it gives. One of `output`, `failure`, `pause` is set.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// What it shows.
    pub title: String,
    /// The input, as a flow would write it.
    #[serde(default)]
    pub input: serde_json::Value,
    /// The config.
    #[serde(default)]
    pub config: Option<serde_json::Value>,
    /// The output.
    #[serde(default)]
    pub output: Option<serde_json::Value>,
    /// The code of the failure.
    #[serde(default)]
    pub failure: Option<String>,
    /// The names of the wakes that it pauses for.
    #[serde(default)]
    pub pause: Option<Vec<String>>,
}

/// A failure code and its cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorDoc {
    /// The code.
    pub code: String,
    /// When it is given.
    pub description: String,
}

/// How the host treats one input field, written in its schema as `x-flowcell: { as: condition, locals: [item] }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where the field is: keys, and `*` for every item of a list.
    pub path: Vec<Arc<str>>,
    /// What it is.
    pub kind: MarkKind,
    /// Root names that the node itself provides when it evaluates the field; `*` allows any, and `values.*` the members
    /// of the input's field `values`.
    pub locals: Vec<Arc<str>>,
    /// Captured again by the event that wakes the node.
    pub rebind: bool,
}

/// What a marked field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkKind {
    /// A `when`: reaches the node as `{ "expr": …, "vars": { path: value } }`, with `"strict": true` from a strict flow.
    Condition,
    /// A template: reaches the node as `{ "template": …, "vars": { path: value } }`, with `"strict": true` from a strict flow.
    Template,
    /// A literal `all`, `any` or `settled` that sets the node's join.
    Join,
    /// A literal name that body nodes may use for the item.
    Alias,
    /// The name of a flow to run as a child.
    Flow,
    /// A literal `true` or `false`: whether the host keeps what each pass of the body gives, see [`BodyTrait::collects`].
    Collect,
    /// A URL that the node sends requests to through `http`.
    Url,
    /// A script, which means itself, `{{` and all, unless it is wholly one binding.
    Script,
    /// The literal path of a script beside the flow: reaches the node as `{ "path": …, "text": … }`.
    File,
}

/// Why a manifest was refused.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ManifestError {
    /// What is wrong, with its place where there is one.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMark {
    #[serde(rename = "as")]
    kind: MarkKind,
    #[serde(default)]
    locals: Vec<Arc<str>>,
    #[serde(default)]
    rebind: bool,
}

impl Manifest {
    /// Reads a `node.yaml` (or the same as JSON) and checks that it fits together.
    pub fn parse(text: &str) -> Result<Manifest, ManifestError> {
        // YAML 1.2: `n`, `no` and `on` are texts, so that a schema can have such properties.
        let options = serde_yaml::options! { strict_booleans: true };
        let manifest: Manifest =
            serde_yaml::from_str_with_options(text, options).map_err(|error| ManifestError::new(yaml_error(&error)))?;
        manifest.complete()
    }

    /// Checks the types, and sets what follows from the rest: versions and marks.
    pub fn complete(mut self) -> Result<Manifest, ManifestError> {
        self.check_short_names()?;
        let mut seen = HashSet::new();
        for node in &mut self.nodes {
            let name = &node.name;
            let prefix = name.split_once('.').map(|(prefix, _)| prefix);
            if prefix != Some(&*self.name) {
                return Err(ManifestError::new(format!("node type `{name}` must begin with `{}.`", self.name)));
            }
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')) {
                let message = format!("node type `{name}` has characters other than a-z, 0-9, `.`, `_`, `-`");
                return Err(ManifestError::new(message));
            }
            if !seen.insert(name.clone()) {
                return Err(ManifestError::new(format!("node type `{name}` stands twice")));
            }
            node.version = Some(self.version.clone());
            node.marks.clear();
            collect_marks(&node.input, &mut Vec::new(), &mut node.marks)
                .map_err(|message| ManifestError::new(format!("node type `{name}`: {message}")))?;
        }
        Ok(self)
    }

    fn check_short_names(&self) -> Result<(), ManifestError> {
        let mut seen = HashSet::new();
        for name in self.nodes.iter().filter_map(|node| node.short_name.as_deref()) {
            let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
            if !plain || !(1..=64).contains(&name.len()) {
                let message = format!("`{name}` is no short name: letters, digits, `_` and `-`, at most 64");
                return Err(ManifestError::new(message));
            }
            if !seen.insert(name) {
                return Err(ManifestError::new(format!("two node types have the short name `{name}`")));
            }
        }
        Ok(())
    }
}

impl ManifestError {
    fn new(message: impl fmt::Display) -> ManifestError {
        ManifestError { message: message.to_string() }
    }
}

/// Walks `properties` and `items` for `x-flowcell`.
fn collect_marks(schema: &serde_json::Value, path: &mut Vec<Arc<str>>, marks: &mut Vec<Mark>) -> Result<(), String> {
    if let Some(mark) = schema.get("x-flowcell") {
        let RawMark { kind, locals, rebind } = serde_json::from_value(mark.clone())
            .map_err(|error| format!("x-flowcell at `{}`: {error}", path.join(".")))?;
        marks.push(Mark { path: path.clone(), kind, locals, rebind });
    }
    if let Some(properties) = schema.get("properties").and_then(|properties| properties.as_object()) {
        for (key, property) in properties {
            path.push(key.as_str().into());
            collect_marks(property, path, marks)?;
            path.pop();
        }
    }
    if let Some(items) = schema.get("items") {
        path.push("*".into());
        collect_marks(items, path, marks)?;
        path.pop();
    }
    Ok(())
}

impl NodeType {
    /// Whether the type has a trait.
    pub fn has(&self, wanted: Trait) -> bool {
        self.traits.contains(&wanted)
    }

    /// Whether the type asks for a capability.
    pub fn asks_for(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|request| &*request.name == capability)
    }

    /// The type with its version: `control.if@0.1.0`.
    pub fn full_name(&self) -> String {
        match &self.version {
            Some(version) => format!("{}@{version}", self.name),
            None => self.name.to_string(),
        }
    }

    /// A failure that says the attempt's input does not fit.
    pub fn invalid_input(&self, message: impl fmt::Display) -> Failure {
        Failure::new(crate::code::INVALID_INPUT, format!("{}: {message}", self.name))
    }
}
