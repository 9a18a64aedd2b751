//! A checked flow, ready to run.

mod partial;

use std::sync::Arc;

use flowcell_contract::{Json, NodeType, Tenant, similar};
use flowcell_flow::{
    Diagnostic, Severity,
    agentic::flow_label,
    explain::{Explanation, explain},
    graph::Graph,
};
use flowcell_schema::{Budget, Schema, SchemaError, ValidationError};

use serde_json::Value;

use self::partial::{for_part, is_complete, with_optional_members};
use crate::host::{
    content::Content,
    error::{InputError, StartError},
    folder::Folder,
    home::{Home, grants_tools},
};

/// Maximum number of mismatches that an input check reports.
const MAX_MISMATCHES: usize = 20;
/// Maximum number of characters of a reported mismatch. It quotes the wrong value, which may be as large as the input.
const MAX_MISMATCH_CHARS: usize = 200;
/// The name of the schema in a message about an output.
const OUTPUT_SCHEMA: &str = "the output schema";

/// The result of a flow's check.
pub struct CheckedFlow {
    /// The flow, unless it has errors.
    pub flow: Option<LoadedFlow>,
    /// All diagnostics, in the order of their places.
    pub diagnostics: Vec<Diagnostic>,
}

/// A flow that has passed all checks.
#[derive(Clone)]
pub struct LoadedFlow {
    pub(crate) graph: Arc<Graph>,
    pub(crate) folder: Arc<Folder>,
    /// The content that its runs pin.
    pub(crate) content: Arc<Content>,
    /// The home with the flows that the flow's runs can call. `None` until [`Host::bound`](crate::Host::bound) sets it.
    pub(crate) home: Option<Arc<Home>>,
    /// The version in the library that the flow was loaded from.
    pub(crate) version: Option<u32>,
    /// The diagnostics that do not prevent a run.
    pub(crate) warnings: Arc<[Diagnostic]>,
}

/// The flow has no node with an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the flow has no node `{node}`")]
pub struct UnknownNode {
    /// The id.
    pub node: String,
    /// The id of a node that may be meant.
    pub similar: Option<String>,
}

impl LoadedFlow {
    /// Returns the flow's name.
    pub fn name(&self) -> &str {
        &self.graph.name
    }

    /// Returns the checked graph.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Returns the warnings of the check, in the order of their places.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Explains the flow, or the only node with an id.
    pub fn explain(&self, node: Option<&str>) -> Result<Explanation, UnknownNode> {
        explain(&self.graph, node).ok_or_else(|| {
            let node = node.unwrap_or_default();
            let similar = similar(node, self.graph.nodes.iter().map(|node| node.id.as_str()));
            UnknownNode { node: node.to_owned(), similar: similar.map(str::to_owned) }
        })
    }

    /// Returns whether [`Host::with_home`](crate::Host::with_home) still has to look for flows that the flow calls.
    /// Looks up none of them.
    pub fn needs_home(&self) -> bool {
        self.home.is_none() && (!self.content.flows.is_empty() || grants_tools(&self.graph))
    }

    /// Refuses to run a flow whose file disables it.
    pub(crate) fn check_enabled(&self) -> Result<(), StartError> {
        match flow_label(&self.graph).is_some_and(|label| label.disabled) {
            true => Err(StartError::Disabled(self.name().to_owned())),
            false => Ok(()),
        }
    }

    /// Checks a caller's input, merged over the flow's defaults, against the flow's `inputSchema`. It may block for
    /// about 2 s.
    pub fn check_input(&self, given: Json) -> Result<CheckedInput<'_>, InputError> {
        if !given.is_null() && given.as_object().is_none() {
            return Err(not_an_object(&given));
        }
        let members = [&self.graph.input, &given].into_iter().filter_map(Json::as_object).flatten();
        let whole = Json::object(members.map(|(key, value)| (key.clone(), value.clone())));
        check_whole(&self.graph, &whole)?;
        Ok(CheckedInput { flow: self, given, whole })
    }

    /// Checks a part of an input, whose other members follow later, against the flow's `inputSchema`: against all of it if
    /// no members can follow. It may block for about 2 s.
    pub(crate) fn check_part(&self, given: &Value) -> Result<(), InputError> {
        let Some(schema) = &self.graph.input_schema else { return Ok(()) };
        let part = Json::from(given.clone());
        match is_complete(schema, given) {
            true => self.check_input(part).map(drop),
            false => check(&for_part(schema, given), "its `inputSchema`", &part),
        }
    }

    /// Checks a test's fixture for a node's output against the output schema of the node type. The fixture may omit
    /// members, and unknown nodes are not checked. The error has a sentence for each mismatch. It may block for about
    /// 2 s.
    pub fn check_given_output(&self, node: &str, output: &Json) -> Result<(), Vec<String>> {
        let Some(node) = self.graph.nodes.iter().find(|known| known.id.as_str() == node) else { return Ok(()) };
        check(&with_optional_members(&node.node_type.output), OUTPUT_SCHEMA, output).map_err(mismatches)
    }
}

/// Checks an output that a person records for a task against the output schema of the node type. The error has a
/// sentence for each mismatch. It may block for about 2 s.
pub(crate) fn check_whole_output(node_type: &NodeType, output: &Json) -> Result<(), Vec<String>> {
    check(&node_type.output, OUTPUT_SCHEMA, output).map_err(mismatches)
}

fn mismatches(error: InputError) -> Vec<String> {
    match error {
        InputError::Unfit { findings } => findings,
        InputError::TooCostly(error) => vec![error.to_string()],
    }
}

/// An input that fits its flow. Every new run is prepared from a checked input, so that each input is checked exactly
/// once.
pub struct CheckedInput<'a> {
    pub(super) flow: &'a LoadedFlow,
    /// The input of the caller.
    pub(super) given: Json,
    /// The input of the caller, merged over the defaults of the flow.
    pub(super) whole: Json,
}

/// Checks the whole input of a run, including defaults, against the flow's `inputSchema`. It may block for about 2 s.
pub(crate) fn check_whole(graph: &Graph, input: &Json) -> Result<(), InputError> {
    let Some(schema) = &graph.input_schema else { return Ok(()) };
    // The load of the flow has already reported a schema that does not compile, with its place.
    check(schema, "its `inputSchema`", input)
}

fn check(schema: &Value, name: &str, value: &Json) -> Result<(), InputError> {
    let schema = Schema::compile(schema).map_err(|error| match error {
        SchemaError::TooCostly(error) => InputError::TooCostly(error),
        error => InputError::Unfit { findings: vec![format!("{name} is not a valid schema: {error}")] },
    })?;
    let errors = schema.errors(value, Budget::FULL).map_err(InputError::TooCostly)?;
    if errors.is_empty() {
        return Ok(());
    }
    Err(InputError::Unfit { findings: errors.iter().take(MAX_MISMATCHES).map(describe).collect() })
}

/// Logs the newer rules that a stored flow breaks, with the line of each. Such a flow still runs.
pub(super) fn log_broken_rules(tenant: &Tenant, diagnostics: &[Diagnostic]) {
    let kept = |finding: &&Diagnostic| finding.new_rule && finding.severity == Severity::Warning;
    for Diagnostic { code, location, message, help, .. } in diagnostics.iter().filter(kept) {
        let help = help.as_deref().unwrap_or_default();
        tracing::warn!(tenant = tenant.as_str(), code, "{}:{}: {message}: {help}", location.file, location.line);
    }
}

fn not_an_object(given: &Json) -> InputError {
    InputError::Unfit { findings: vec![format!("it must be an object, not {}", given.type_name())] }
}

fn describe(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let place = place.trim_start_matches('/').replace('/', ".");
    let message = error.to_string();
    // The masked message still explains the mismatch without the value.
    let message = match message.chars().nth(MAX_MISMATCH_CHARS) {
        None => message,
        Some(_) => error.masked().to_string().chars().take(MAX_MISMATCH_CHARS).collect(),
    };
    if place.is_empty() { message } else { format!("`{place}`: {message}") }
}
