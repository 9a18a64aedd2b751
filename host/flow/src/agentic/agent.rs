//! Agents: Markdown files. The front matter contains the agent's settings and permissions; the text below is its system
//! prompt.

use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

use crate::{
    CheckMode, Source,
    agentic::{
        name::{self, is_kebab_case},
        permission::{self, Permission},
    },
    diagnostic::{Diagnostic, Diagnostics, did_you_mean},
    fields::{check_keys, check_keys_or, entries, flag, for_message, list, map, text, whole_number},
    key_hints, schema_check, syntax_errors,
    yaml::{self, Kind, Span, Tree},
};

/// An agent as its file defines it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentDefinition {
    /// The name of the agent's file without its extension, in kebab-case.
    pub id: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Purpose of the agent, for people and models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// If true, every use of the agent is refused.
    #[serde(default)]
    pub disabled: bool,
    /// The system prompt.
    pub system: String,
    /// Profile of the model provider. Default: the host's default provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Model. Default: the provider's default model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Names of the tools that the agent can call.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Permissions for tool calls. The last matching rule decides.
    #[serde(default)]
    pub permissions: Vec<Permission>,
    /// JSON Schema of the agent's structured output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<serde_json::Value>,
    /// Maximum number of user messages in one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u64>,
    /// Maximum number of model calls in one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_model_calls: Option<u64>,
    /// Sampling parameters: `temperature`, `topP`, `maxTokens`.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub params: serde_json::Map<String, serde_json::Value>,
}

/// The result of reading an agent's file.
#[derive(Debug)]
pub struct CheckedAgent {
    /// The agent; `None` if there are diagnostics of severity `error`.
    pub agent: Option<AgentDefinition>,
    /// All diagnostics, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

const KEYS: [&str; 13] = [
    "name",
    "description",
    "disabled",
    "mode",
    "color",
    "provider",
    "model",
    "tools",
    "permissions",
    "output",
    "maxTurns",
    "maxModelCalls",
    "params",
];
const PARAMS: [&str; 3] = ["temperature", "topP", "maxTokens"];
/// Keys of other agent formats, and the Flowcell keys that replace them.
const RENAMED: [(&str, &str); 6] = [
    ("permission", "permissions"),
    ("disable", "disabled"),
    ("steps", "maxModelCalls"),
    ("temperature", "params: { temperature: … }"),
    ("top_p", "params: { topP: … }"),
    ("maxTokens", "params: { maxTokens: … }"),
];
/// The smallest and the largest value that `maxTurns` and `maxModelCalls` may have.
const TURNS: (u64, u64) = (1, 10_000);
/// The line that starts and ends the front matter.
const FENCE: &str = "---";

/// Reads an agent's file: YAML front matter between two `---` lines, then the system prompt.
pub fn agent(source: &Source) -> CheckedAgent {
    agent_in_mode(source, CheckMode::New)
}

/// Reads an agent's file. `mode` is the check mode of the flow that uses the agent.
pub(crate) fn agent_in_mode(source: &Source, mode: CheckMode) -> CheckedAgent {
    let mut diagnostics = Diagnostics::new(&source.name, &source.text, mode);
    let start = Span { line: 1, column: 1, len: 1, ..Span::default() };
    let id = name::file_stem(&source.name);
    if !is_kebab_case(id) {
        let message = format!("`{}` is not a valid agent name", for_message(id));
        diagnostics.error("bad_file_name", start, message, Some(name::rename_help(&source.name)));
    }
    let mut agent = AgentDefinition { id: id.to_owned(), ..AgentDefinition::default() };
    match split(&source.text) {
        Ok((front, system)) => {
            agent.system = system.trim().to_owned();
            match yaml::parse(&front) {
                Ok(tree) => read(&tree, &mut agent, &mut diagnostics),
                Err(error) => {
                    let error = syntax_errors::explain(&front, error);
                    diagnostics.error("syntax", error.span, error.message, error.help);
                }
            }
        }
        Err(()) => {
            let help = Some("end the front matter with a line `---`".into());
            diagnostics.error("bad_front_matter", start, "the front matter has no end", help);
        }
    }
    if agent.system.is_empty() && !diagnostics.has_errors() {
        let help = Some("describe the agent's role and way of working below the front matter".into());
        diagnostics.warning("no_system_prompt", start, "the agent has no system prompt", help);
    }
    let sound = !diagnostics.has_errors();
    CheckedAgent { agent: sound.then_some(agent), diagnostics: diagnostics.finish() }
}

/// Splits a file into its front matter and the text after it. In the returned front matter, every byte has the same
/// offset as in the file. In a file without front matter, the whole text is the system prompt. Returns an error if no
/// line ends the front matter.
fn split(text: &str) -> Result<(String, &str), ()> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != FENCE {
        return Ok((String::new(), text));
    }
    let mut end = first.len();
    for line in lines {
        if line.trim_end() == FENCE {
            // A comment as long as the dashes keeps the byte offsets.
            return Ok((format!("#{}", &text[1..end]), &text[end + line.len()..]));
        }
        end += line.len();
    }
    Err(())
}

fn read(tree: &Tree, agent: &mut AgentDefinition, diagnostics: &mut Diagnostics<'_>) {
    if matches!(&tree.kind, Kind::Scalar(json) if json.is_null()) {
        return;
    }
    check_keys_or(
        entries(tree, "the front matter", diagnostics),
        &KEYS,
        |entry| key_hints::renamed(entry, &RENAMED),
        diagnostics,
    );
    let mut member = |key| text(tree, key, diagnostics).map(|(text, _)| text);
    agent.name = member("name");
    agent.description = member("description");
    agent.provider = member("provider");
    agent.model = member("model");
    // These keys control the display in other programs; Flowcell only checks them.
    let (mode, _) = (member("mode"), member("color"));
    if let (Some(mode), Some(value)) = (mode, tree.member("mode"))
        && !["primary", "subagent", "all"].contains(&&*mode)
    {
        let help = did_you_mean(&mode, ["primary", "subagent", "all"]);
        diagnostics.error("bad_value", value.span, format!("invalid `mode`: `{}`", for_message(&mode)), help);
    }
    agent.disabled = flag(tree, "disabled", diagnostics).unwrap_or_default();
    agent.max_turns = whole_number(tree, "maxTurns", TURNS, diagnostics);
    agent.max_model_calls = whole_number(tree, "maxModelCalls", TURNS, diagnostics);
    agent.tools = tools(tree, diagnostics);
    agent.permissions = permission::read(tree.member("permissions"), diagnostics);
    agent.output = read_output(tree, diagnostics).map(|schema| schema.json().to_serde());
    read_params(tree, agent, diagnostics);
}

fn tools(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Vec<String> {
    let items = list(tree, "tools", diagnostics);
    for odd in items.iter().filter(|item| item.text().is_none()) {
        let message = format!("`tools` must be a list of names, but an item is {}", odd.type_name());
        diagnostics.error("wrong_type", odd.span, message, Some("write one name per line".into()));
    }
    items.iter().filter_map(|item| Some(item.text()?.to_owned())).collect()
}

fn read_params(tree: &Tree, agent: &mut AgentDefinition, diagnostics: &mut Diagnostics<'_>) {
    let Some(params) = map(tree, "params", diagnostics) else { return };
    let entries = entries(params, "`params`", diagnostics);
    check_keys(entries, &PARAMS, diagnostics);
    for entry in entries {
        let value = entry.value.json();
        let sound = match &*entry.key {
            "temperature" => value.as_f64().is_some_and(|number| (0.0..=2.0).contains(&number)),
            "topP" => value.as_f64().is_some_and(|number| (0.0..=1.0).contains(&number)),
            "maxTokens" => value.as_u64().is_some_and(|number| number > 0),
            _ => continue,
        };
        if !sound {
            let message = format!("invalid `{}`: {}", entry.key, for_message(&value.to_string()));
            let help =
                "`temperature` ranges from 0 to 2, `topP` from 0 to 1; `maxTokens` is a whole number of at least 1";
            diagnostics.error("bad_value", entry.value.span, message, Some(help.into()));
        }
        agent.params.insert(entry.key.to_string(), value.to_serde());
    }
}

/// Reads the schema under `output: { schema: … }`. Reports a schema that does not describe an object, because the
/// object's members become arguments.
pub(crate) fn read_output<'t>(tree: &'t Tree, diagnostics: &mut Diagnostics<'_>) -> Option<&'t Tree> {
    let output = map(tree, "output", diagnostics)?;
    check_keys(entries(output, "`output`", diagnostics), &["schema"], diagnostics);
    let Some(schema) = output.member("schema") else {
        let help = Some("write `output: { schema: { type: object, properties: { … } } }`".into());
        diagnostics.error("missing_key", output.span, "`output` has no `schema`", help);
        return None;
    };
    let schema = map(output, "schema", diagnostics).filter(|_| matches!(schema.kind, Kind::Map(_)))?;
    check_object(schema, "the output of a step", diagnostics);
    Some(schema)
}

/// Reports a schema that is invalid or too large, or whose `type` is not `object`. A missing `type` is allowed.
/// `what` names the described value in the message.
pub(crate) fn check_object(schema: &Tree, what: &str, diagnostics: &mut Diagnostics<'_>) {
    if let Some(kind) = schema.member("type").filter(|kind| kind.text() != Some("object")) {
        let message = format!("{what} must be an object, because its members become arguments");
        diagnostics.error("bad_schema", kind.span, message, Some("write `type: object` and `properties`".into()));
    }
    schema_check::check_schema(schema, "the schema", diagnostics);
}

/// Converts a definition to a JSON object with the same fields. The result is null if the conversion fails.
impl From<&AgentDefinition> for Json {
    fn from(agent: &AgentDefinition) -> Json {
        serde_json::to_value(agent).map(Json::from).unwrap_or_default()
    }
}
