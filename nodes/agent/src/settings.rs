//! The settings of an agent. The input overrides the config, and the config overrides the preset.

use flowcell_sdk::{
    Failure, Result, Task,
    model::{Message, Sampling},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::{conversation, preset::Preset};

/// Default maximum number of messages that wait in an inbox.
const DEFAULT_INBOX_CAPACITY: u32 = 64;

#[derive(Deserialize)]
struct Input {
    #[serde(default, deserialize_with = "present")]
    input: Option<Value>,
    prompt: Option<String>,
    messages: Option<Vec<Value>>,
    tools: Option<Vec<String>>,
    system: Option<String>,
    model: Option<String>,
    metadata: Option<Map<String, Value>>,
    args: Option<Map<String, Value>>,
    previous: Option<String>,
    from: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    provider: Option<String>,
    model: Option<String>,
    system: Option<String>,
    tools: Option<Vec<String>>,
    mcp: Vec<String>,
    max_turns: u32,
    max_model_calls: u32,
    max_tool_calls: u32,
    budget: Budget,
    output: Option<Structure>,
    inbox: Option<Listening>,
    fallback_model: Option<String>,
    sampling: Sampling,
    params: Map<String, Value>,
    agent: Option<String>,
    session: Option<Session>,
}

/// The maximum that an agent may spend. `None` means no limit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Budget {
    /// Cost in US dollars.
    pub(crate) usd: Option<f64>,
    /// Number of input and output tokens together.
    pub(crate) tokens: Option<u64>,
}

/// The form of the answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Structure {
    /// JSON Schema of the answer.
    pub(crate) schema: Value,
    /// Maximum number of requests to repair the answer.
    #[serde(default = "default_max_repairs")]
    pub(crate) max_repairs: u32,
}

/// The settings of an inbox. An agent with an inbox waits for messages after each answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listening {
    capacity: Option<u32>,
    /// Maximum time in milliseconds to wait for a message. `None`: the agent waits as long as a message can arrive.
    pub(crate) idle_close_ms: Option<u32>,
    #[serde(default)]
    mode: Mode,
}

/// The moment at which a message that arrived during a turn is added to the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Within the turn, after the next results of tools. If the model calls no more tools, after the turn.
    #[default]
    Steer,
    /// When the turn has ended, one message per turn.
    Queue,
}

/// The session of an agentic flow: the conversation of earlier runs that the agent continues.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Session {
    /// The flow that the history belongs to.
    pub(crate) flow: String,
    /// The step that the history belongs to.
    pub(crate) step: String,
    /// True if each run starts with a copy of the history of the preceding step, provided that `same_agent` lists
    /// this step. In any other case, the run continues the history of its own step.
    #[serde(default)]
    pub(crate) fork: bool,
    /// The steps with the same agent, whose history a fork may copy.
    #[serde(default)]
    pub(crate) same_agent: Vec<String>,
    /// The name that people choose for the session. Without a name, no history is stored.
    pub(crate) prefix: Option<String>,
}

/// The merged settings of an agent.
pub(crate) struct Settings {
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) system: Option<String>,
    /// Patterns of tool names. The model may call the tools that match one of them and that the flow grants.
    pub(crate) tools: Vec<String>,
    /// True if the patterns in `tools` come from the preset. Then it is no failure if the flow grants no tools.
    pub(crate) tools_of_preset: bool,
    pub(crate) max_turns: u32,
    pub(crate) max_model_calls: u32,
    pub(crate) max_tool_calls: u32,
    pub(crate) budget: Budget,
    pub(crate) output: Option<Structure>,
    /// The inbox settings. Without them the agent ends with its first answer.
    pub(crate) inbox: Option<Listening>,
    pub(crate) fallback_model: Option<String>,
    pub(crate) sampling: Sampling,
    pub(crate) params: Map<String, Value>,
    pub(crate) session: Option<Session>,
    pub(crate) args: Option<Map<String, Value>>,
    /// The step whose result is in `previous`.
    pub(crate) from: Option<String>,
    agent: Option<String>,
    metadata: Option<Map<String, Value>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            provider: None,
            model: None,
            system: None,
            tools: None,
            mcp: Vec::new(),
            max_turns: 12,
            max_model_calls: 50,
            max_tool_calls: 50,
            budget: Budget::default(),
            output: None,
            inbox: None,
            fallback_model: None,
            sampling: Sampling::default(),
            params: Map::new(),
            agent: None,
            session: None,
        }
    }
}

fn default_max_repairs() -> u32 {
    2
}

/// Reads a member that is present. Null counts as a value.
fn present<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(reader).map(Some)
}

/// Reads the settings of a task, and the first messages of the conversation.
pub(crate) fn read(task: &Task, preset: &Preset) -> Result<(Settings, Vec<Message>)> {
    let input: Input = task.input()?;
    let config = task.config::<Option<Config>>()?.unwrap_or_default();
    let messages = first_messages(&input)?;
    let system = input.system.or(config.system);
    if let (None, None, Some(agent)) = (&system, preset.system, &config.agent) {
        let message = format!("unknown agent `{agent}`: it has no prompt");
        return Err(Failure::new("unknown_agent", message));
    }
    let of_preset = || preset.tools.iter().map(|pattern| (*pattern).to_owned()).collect();
    let chosen = input.tools.or(config.tools);
    let tools_of_preset = chosen.is_none() && config.mcp.is_empty();
    let mut tools: Vec<String> = chosen.unwrap_or_else(of_preset);
    tools.extend(config.mcp.iter().map(|server| format!("mcp:{server}/*")));
    let of_preset = preset.schema.map(serde_json::from_str).transpose()?;
    let of_preset = of_preset.map(|schema| Structure { schema, max_repairs: default_max_repairs() });
    let settings = Settings {
        provider: config.provider,
        model: input.model.or(config.model),
        system: system.or_else(|| preset.system.map(str::to_owned)),
        tools,
        tools_of_preset,
        max_turns: config.max_turns,
        max_model_calls: config.max_model_calls,
        max_tool_calls: config.max_tool_calls,
        budget: config.budget,
        output: config.output.or(of_preset),
        inbox: config.inbox,
        fallback_model: config.fallback_model,
        sampling: config.sampling,
        params: config.params,
        session: config.session,
        args: input.args,
        from: input.from,
        agent: config.agent,
        metadata: input.metadata,
    };
    Ok((settings, messages))
}

/// Returns the first messages of the conversation: the result of the preceding step, if there is one, then those of the
/// input.
fn first_messages(input: &Input) -> Result<Vec<Message>> {
    let own = match (&input.input, &input.prompt, &input.messages) {
        (Some(Value::String(text)), None, None) | (None, Some(text), None) => vec![Message::user(text.as_str())],
        (Some(value), None, None) => vec![Message::user(value.to_string())],
        (None, None, Some(messages)) => messages.iter().map(conversation::read_message).collect::<Result<_>>()?,
        _ => return Err(Failure::invalid_input("give exactly one of `input`, `prompt` and `messages`")),
    };
    conversation::check_last_message(&own)?;
    let before = input.previous.as_ref().filter(|previous| !previous.is_empty()).map(|previous| {
        let step = input.from.as_ref().map(|step| format!(", `{step}`,")).unwrap_or_default();
        Message::user(format!("The step before{step} gave:\n\n{previous}"))
    });
    Ok(before.into_iter().chain(own).collect())
}

impl Settings {
    /// Returns the moment at which messages that arrive during a turn are added to the conversation.
    pub(crate) fn mode(&self) -> Mode {
        self.inbox.as_ref().map_or(Mode::Steer, |inbox| inbox.mode)
    }

    /// Returns the description of the agent that the event `agent:start` shows.
    pub(crate) fn description_for_start_event(&self, tools: &[&str]) -> Value {
        let capacity = self.inbox.as_ref().and_then(|inbox| inbox.capacity).unwrap_or(DEFAULT_INBOX_CAPACITY);
        let mut about = json!({ "tools": tools, "inbox": { "capacity": capacity } });
        let texts = [("agent", &self.agent), ("provider", &self.provider), ("model", &self.model)];
        for (key, text) in texts {
            if let Some(text) = text {
                about[key] = text.as_str().into();
            }
        }
        if let Some(metadata) = &self.metadata {
            about["metadata"] = metadata.clone().into();
        }
        about
    }
}
