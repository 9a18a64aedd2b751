//! A pack's manifest: its `node.yaml`, read without running the pack.

use std::{collections::HashSet, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    About, BuiltIn, CredentialRequest, Effect, Failure, NodeLimits, credential::MAX_NODE_CREDENTIALS, yaml_error,
};

/// The SHA-256 of a pack's content, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(pub Arc<str>);

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sha256:{}", self.0)
    }
}

/// The manifest of a pack.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The pack's name, the prefix of its node types: `acme` offers `acme.greet`.
    pub name: Arc<str>,
    /// The version of the pack and of every node type in it.
    pub version: semver::Version,
    /// The SPDX expression of the license.
    #[serde(default)]
    pub license: Option<String>,
    /// The purpose of the pack, in one sentence.
    #[serde(default)]
    pub description: Option<String>,
    /// See [`About::icon`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// See [`About::categories`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// See [`About::keywords`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// See [`About::docs`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs: Option<String>,
    /// See [`About::homepage`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub homepage: Option<String>,
    /// See [`About::repository`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// See [`About::deprecated`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<String>,
    /// The node types that the pack offers.
    pub nodes: Vec<NodeType>,
}

/// The names of the packs of this program, which no other pack may use.
pub const BUILT_IN_PACKS: [&str; 7] = ["control", "data", "system", "agent", "script", "http", "file"];

/// One node type of a pack.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeType {
    /// The full name, without a version: `control.if`.
    #[serde(rename = "type")]
    pub name: Arc<str>,
    /// A shorter name for flows in the dialect of steps. It has no dot and is unique in the pack.
    #[serde(default, rename = "shortName", skip_serializing_if = "Option::is_none")]
    pub short_name: Option<Arc<str>>,
    /// The title, two or three words.
    pub title: String,
    /// The behaviour of the node, in a paragraph.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of the input. Properties may carry `x-flowcell` marks, see [`Mark`]. Default: any object.
    #[serde(default = "any_object_schema")]
    pub input: serde_json::Value,
    /// The JSON Schema of the config. Default: an object without members.
    #[serde(default = "empty_object_schema")]
    pub config: serde_json::Value,
    /// The JSON Schema of the output. Default: any value.
    #[serde(default = "any_value_schema")]
    pub output: serde_json::Value,
    /// The traits of the node.
    #[serde(default)]
    pub traits: Vec<Trait>,
    /// The declaration of the body, for node types that own one.
    #[serde(default)]
    pub body: Option<BodyTrait>,
    /// The effect that the node type declares for its calls. Default: [`Effect::Inert`].
    #[serde(default)]
    pub effect: Effect,
    /// The capabilities that the node asks for.
    #[serde(default)]
    pub capabilities: Vec<CapabilityRequest>,
    /// The credentials that the requests of the node need. The host adds them, and the node never sees them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialRequest>,
    /// The limits that the attempts of the type have in place of the usual ones. The operator grants larger limits.
    #[serde(default, skip_serializing_if = "NodeLimits::is_empty")]
    pub limits: NodeLimits,
    /// Example inputs with their results. The tests run each of them.
    #[serde(default)]
    pub examples: Vec<Example>,
    /// The failure codes that the node uses.
    #[serde(default)]
    pub errors: Vec<ErrorDoc>,
    /// The version of the pack, which is also the version of this type. [`Manifest::complete`] sets it.
    #[serde(skip)]
    pub version: Option<semver::Version>,
    /// The digest of the pack; `None` as long as the manifest is neither read from a pack nor added to a catalog.
    #[serde(skip)]
    pub pack: Option<Digest>,
    /// The members of the manifest for people who look for the pack. [`Manifest::complete`] sets it.
    #[serde(skip)]
    pub about: Arc<About>,
    /// The `x-flowcell` marks of the input schema. [`Manifest::complete`] sets them.
    #[serde(skip)]
    pub marks: Vec<Mark>,
}

fn any_object_schema() -> serde_json::Value {
    serde_json::json!({ "type": "object" })
}

fn empty_object_schema() -> serde_json::Value {
    serde_json::json!({ "type": "object", "additionalProperties": false })
}

fn any_value_schema() -> serde_json::Value {
    serde_json::Value::Bool(true)
}

/// A property of a node type that the host must know about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trait {
    /// It invokes agents.
    Agent,
    /// It reads messages that are sent to its agent runs.
    Inbox,
    /// It sends parts of its output before the output is complete.
    Streaming,
    /// It may own a body.
    Body,
}

/// The declarations of a node type about its body. The nodes in the body read its variables as
/// `<owner id>.<variable>`. Every body has the variable `last`, too, except that of a `control.scope`. It is
/// null in passes that run at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BodyTrait {
    /// The names of the variables.
    #[serde(default)]
    pub variables: Vec<Arc<str>>,
    /// True if the node needs a body to work.
    #[serde(default)]
    pub required: bool,
    /// The name of the output member that lists the results of all passes, in order. The host fills this member if the
    /// input field that is marked `collect` is `true`. The node itself never receives the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collects: Option<Arc<str>>,
    /// True if a pass that fails or is cancelled undoes its succeeded nodes before the owner continues. Otherwise they
    /// are undone if a scope around the owner, or the flow, fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undoes: bool,
}

/// The variable to which a field marked [`MarkKind::Alias`] gives a second name, unless the type declares others only.
const ITEM: &str = "item";

impl NodeType {
    /// Returns the variable of the body to which a field marked [`MarkKind::Alias`] gives a second name: `item`, or the
    /// first variable if the type declares variables, but no `item`.
    pub fn aliased_variable(&self) -> &str {
        let variables = self.body.as_ref().map(|body| body.variables.as_slice()).unwrap_or_default();
        match variables.first() {
            Some(first) if variables.iter().all(|name| &**name != ITEM) => first,
            _ => ITEM,
        }
    }
}

/// A capability that a node type asks for, and the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilityRequest {
    /// The name of the capability, such as `log`, `state` or `http`.
    pub name: Arc<str>,
    /// The reason, for the person who decides on the grant.
    pub reason: String,
    /// True if the node also works without the capability.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// An example input and its result. Exactly one of `output`, `failure` and `pause` is set.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The title of the example.
    pub title: String,
    /// The input, as a flow would write it.
    #[serde(default)]
    pub input: serde_json::Value,
    /// The config, if the example needs one.
    #[serde(default)]
    pub config: Option<serde_json::Value>,
    /// The expected output.
    #[serde(default)]
    pub output: Option<serde_json::Value>,
    /// The expected failure code.
    #[serde(default)]
    pub failure: Option<String>,
    /// The names of the wakes that the node pauses for.
    #[serde(default)]
    pub pause: Option<Vec<String>>,
}

/// A failure code and its cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorDoc {
    /// The failure code, in snake_case.
    pub code: String,
    /// The cause of the failure.
    pub description: String,
}

/// The special treatment of one input field by the host. The schema of the field declares it as `x-flowcell: { as:
/// condition, locals: [item] }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The path of the field in the input: keys, with `*` for every item of a list.
    pub path: Vec<Arc<str>>,
    /// The kind of the field.
    pub kind: MarkKind,
    /// Root names, such as `item`, that the node itself provides when it evaluates the field. `*` allows any name.
    /// `values.*` allows the members of the input field `values`.
    pub locals: Vec<Arc<str>>,
    /// True if the host looks up the field's `vars` again each time the node wakes. False if the node keeps the values
    /// that it got at its start.
    pub rebind: bool,
}

/// The kind of a marked field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkKind {
    /// A `when`. The node receives `{ "expr": …, "vars": { path: value } }`, with `"strict": true` from a strict flow.
    Condition,
    /// A template. The node receives `{ "template": …, "vars": { path: value } }`, with `"strict": true` from a strict
    /// flow.
    Template,
    /// A literal `all`, `any` or `settled` that sets the node's join.
    Join,
    /// A literal name under which the nodes in the body read a variable of their pass: `item`, or the first one if there is
    /// no `item`.
    Alias,
    /// The name of a flow to run as a child.
    Flow,
    /// A literal `true` or `false`. With `true` the host keeps the results of all passes; see [`BodyTrait::collects`].
    Collect,
    /// A URL that the node sends requests to through `http`.
    Url,
    /// The text of a script. The host hands it to the node as it stands. Only if the whole text is a single `{{ }}`,
    /// the host renders it.
    Script,
    /// The literal path of a script beside the flow. The node receives `{ "path": …, "text": … }`.
    File,
    /// The facts about the run: `{ "run", "flow", "task", "tenant" }`, with the members that expressions see. The host adds
    /// the field if the flow does not write it, and if the input is not one whole `{{ }}`.
    Facts,
    /// The number of passes that may fail before a fan-out of the node ends with [`code::TOO_MANY_FAILURES`].
    #[serde(rename = "maxFailures")]
    MaxFailures,
    /// The same in percent of all passes, rounded down.
    #[serde(rename = "maxFailuresPercent")]
    MaxFailuresPercent,
}

/// The error of a manifest that was refused.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ManifestError {
    /// The mistake in the manifest, with its place if that is known.
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
    /// Creates a manifest of these node types, without the members for people.
    pub fn new(name: Arc<str>, version: semver::Version, nodes: Vec<NodeType>) -> Manifest {
        let About { icon, categories, keywords, docs, homepage, repository, deprecated } = About::default();
        Manifest {
            name,
            version,
            license: None,
            description: None,
            icon,
            categories,
            keywords,
            docs,
            homepage,
            repository,
            deprecated,
            nodes,
        }
    }

    /// Returns the members for people who look for the pack.
    pub fn about(&self) -> About {
        About {
            icon: self.icon.clone(),
            categories: self.categories.clone(),
            keywords: self.keywords.clone(),
            docs: self.docs.clone(),
            homepage: self.homepage.clone(),
            repository: self.repository.clone(),
            deprecated: self.deprecated.clone(),
        }
    }

    /// Reads a `node.yaml`, or the same as JSON, and checks its consistency.
    pub fn parse(text: &str) -> Result<Manifest, ManifestError> {
        // YAML 1.2: `n`, `no` and `on` are texts, so a schema can have such properties.
        let options = serde_yaml::options! { strict_booleans: true };
        let manifest: Manifest =
            serde_yaml::from_str_with_options(text, options).map_err(|error| ManifestError::new(yaml_error(&error)))?;
        manifest.complete()
    }

    /// Checks the node types, and sets their derived fields: versions and marks.
    pub fn complete(mut self) -> Result<Manifest, ManifestError> {
        self.check_short_names()?;
        let about = Arc::new(self.about());
        about.check().map_err(ManifestError::new)?;
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
                return Err(ManifestError::new(format!("node type `{name}` occurs twice")));
            }
            check_credentials(node).map_err(|why| ManifestError::new(format!("node type `{name}`: {why}")))?;
            node.version = Some(self.version.clone());
            node.about = about.clone();
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
                let message =
                    format!("`{name}` is not a short name: use letters, digits, `_` and `-`, at most 64 characters");
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

/// Checks the credentials that a node type declares. The error is a sentence.
fn check_credentials(node: &NodeType) -> Result<(), String> {
    if node.credentials.len() > MAX_NODE_CREDENTIALS {
        return Err(format!("it declares more than {MAX_NODE_CREDENTIALS} credentials"));
    }
    if !node.credentials.is_empty() && !node.asks_for(BuiltIn::Http.name()) {
        return Err("it declares credentials, so it must ask for the capability `http`".into());
    }
    let mut seen = HashSet::new();
    for request in &node.credentials {
        request.check()?;
        if !seen.insert(&request.name) {
            return Err(format!("it declares the credential `{}` twice", request.name));
        }
    }
    Ok(())
}

/// Collects the `x-flowcell` marks of a schema, under `properties` and `items`.
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
    /// Returns whether the node type has this trait.
    pub fn has(&self, wanted: Trait) -> bool {
        self.traits.contains(&wanted)
    }

    /// Returns whether the node type asks for this capability.
    pub fn asks_for(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|request| &*request.name == capability)
    }

    /// Returns whether the type comes from a pack of this program. No other pack can have such a name.
    pub fn is_built_in(&self) -> bool {
        self.name.split_once('.').is_some_and(|(pack, _)| BUILT_IN_PACKS.contains(&pack))
    }

    /// Returns whether the body reads the output of the pass before as the variable `last`. A `control.scope` has no pass
    /// before.
    pub fn has_last(&self) -> bool {
        &*self.name != "control.scope"
    }

    /// Returns whether several passes of the body may run at the same time. The passes of a `control.foreach` do unless its
    /// field `concurrency` is 1.
    pub fn has_concurrent_passes(&self) -> bool {
        &*self.name == "control.foreach"
    }

    /// Returns the type's name with its version: `control.if@0.1.0`.
    pub fn full_name(&self) -> String {
        match &self.version {
            Some(version) => format!("{}@{version}", self.name),
            None => self.name.to_string(),
        }
    }

    /// Creates a failure with code `invalid_input` that names this type.
    pub fn invalid_input(&self, message: impl fmt::Display) -> Failure {
        Failure::new(crate::code::INVALID_INPUT, format!("{}: {message}", self.name))
    }
}
