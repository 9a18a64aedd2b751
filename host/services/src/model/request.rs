//! The request of a turn, strictly checked. A request means the same to every provider.

mod block;

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{Failure, Json, Object};

pub(super) use self::block::{Block, Image, Message, Role, Source};
use super::object_reader::{ObjectReader, suggest_known, wrong};

/// Maximum characters of a tool's name.
const MAX_TOOL_NAME: usize = 64;
/// Maximum number of texts that end a reply.
const MAX_STOPS: usize = 16;

const MEMBERS: [&str; 15] = [
    "provider",
    "model",
    "system",
    "messages",
    "tools",
    "toolChoice",
    "outputSchema",
    "maxTokens",
    "temperature",
    "topP",
    "stop",
    "seed",
    "effort",
    "params",
    "agentRunId",
];

/// The request of a turn: the parsed arguments of a call of `model`.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) provider: Option<Arc<str>>,
    pub(super) model: Option<Arc<str>>,
    pub(super) system: Option<Arc<str>>,
    pub(super) messages: Vec<Message>,
    pub(super) tools: Vec<Tool>,
    pub(super) tool_choice: ToolChoice,
    pub(super) output_schema: Option<Json>,
    pub(super) max_tokens: Option<u64>,
    pub(super) temperature: Option<Json>,
    pub(super) top_p: Option<Json>,
    pub(super) stop: Vec<Arc<str>>,
    pub(super) seed: Option<u64>,
    pub(super) effort: Option<Arc<str>>,
    pub(super) params: Object,
}

/// A tool that the model may call.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) name: Arc<str>,
    pub(super) description: Option<Arc<str>>,
    pub(super) input_schema: Json,
}

/// Whether and which tools the model calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model calls at least one tool.
    Any,
    /// The model calls no tool.
    None,
    /// The model calls this tool.
    Tool(Arc<str>),
}

impl Request {
    /// Reads the arguments of a call. An error is `invalid_input`.
    pub(super) fn read(args: &Json) -> Result<Request, Failure> {
        let reader = ObjectReader::new(args, "a request", &MEMBERS)?;
        let tools = tools(&reader)?;
        reader.text("agentRunId")?;
        Ok(Request {
            provider: reader.text("provider")?,
            model: reader.text("model")?,
            system: reader.text("system")?.filter(|text| !text.is_empty()),
            messages: messages(&reader)?,
            tool_choice: tool_choice(&reader, &tools)?,
            tools,
            output_schema: reader.object("outputSchema")?.cloned(),
            max_tokens: reader.integer("maxTokens", 1)?,
            temperature: reader.number("temperature", 0.0, 2.0)?,
            top_p: reader.number("topP", 0.0, 1.0)?,
            stop: stop(&reader)?,
            seed: reader.integer("seed", 0)?,
            effort: reader.text("effort")?,
            params: reader.object("params")?.and_then(Json::as_object).cloned().unwrap_or_default(),
        })
    }

    /// Returns the blocks of every message, including those inside tool results.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.messages.iter().flat_map(|message| &message.content).flat_map(|block| {
            let inner = match block {
                Block::ToolResult { content, .. } => content.as_slice(),
                _ => &[],
            };
            std::iter::once(block).chain(inner)
        })
    }

    /// Returns the last text of the user, or an empty string.
    pub(super) fn last_user_text(&self) -> String {
        let texts = self.messages.iter().rev().filter(|message| message.role == Role::User).map(Message::text);
        texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
    }
}

fn messages(reader: &ObjectReader<'_>) -> Result<Vec<Message>, Failure> {
    let items = reader.list("messages")?;
    if items.is_empty() {
        return Err(reader.wrong_member("messages", "a list with at least one message"));
    }
    items.iter().enumerate().map(|(index, item)| Message::read(item, &format!("messages[{index}]"))).collect()
}

fn tools(reader: &ObjectReader<'_>) -> Result<Vec<Tool>, Failure> {
    let mut names = HashSet::new();
    let items = reader.list("tools")?.iter().enumerate();
    let tools = items.map(|(index, item)| {
        let tool = tool(item, &format!("tools[{index}]"))?;
        match names.insert(tool.name.clone()) {
            true => Ok(tool),
            false => Err(wrong(format!("two tools have the name `{}`", tool.name))),
        }
    });
    tools.collect()
}

fn tool(item: &Json, place: &str) -> Result<Tool, Failure> {
    let reader = ObjectReader::new(item, place, &["name", "description", "inputSchema"])?;
    let name = reader.required_text("name")?;
    if !is_tool_name(&name) {
        return Err(reader.wrong_member("name", "up to 64 letters, digits, `_` and `-`"));
    }
    let schema = reader.object("inputSchema")?.ok_or_else(|| reader.wrong_member("inputSchema", "a JSON Schema"))?;
    Ok(Tool { name, description: reader.text("description")?, input_schema: schema.clone() })
}

fn is_tool_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_TOOL_NAME).contains(&name.len()) && name.bytes().all(plain)
}

fn tool_choice(reader: &ObjectReader<'_>, tools: &[Tool]) -> Result<ToolChoice, Failure> {
    let expected = "\"auto\", \"any\", \"none\" or { \"tool\": name }";
    let choice = match reader.get("toolChoice") {
        None => ToolChoice::Auto,
        Some(Json::String(text)) => match &**text {
            "auto" => ToolChoice::Auto,
            "any" => ToolChoice::Any,
            "none" => ToolChoice::None,
            _ => return Err(reader.wrong_member("toolChoice", expected)),
        },
        Some(object) => ToolChoice::Tool(ObjectReader::new(object, "`toolChoice`", &["tool"])?.required_text("tool")?),
    };
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    match &choice {
        ToolChoice::Any if tools.is_empty() => Err(wrong("`toolChoice` is \"any\", but the request has no tools")),
        ToolChoice::Tool(name) if !names.contains(&&**name) => {
            Err(wrong(format!("`toolChoice` names the tool `{name}`; {}", suggest_known(name, &names))))
        }
        _ => Ok(choice),
    }
}

fn stop(reader: &ObjectReader<'_>) -> Result<Vec<Arc<str>>, Failure> {
    let refuse = || reader.wrong_member("stop", "a list of at most 16 non-empty texts");
    let items = reader.list("stop")?;
    if items.len() > MAX_STOPS {
        return Err(refuse());
    }
    let text = |item: &Json| match item {
        Json::String(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err(refuse()),
    };
    items.iter().map(text).collect()
}
