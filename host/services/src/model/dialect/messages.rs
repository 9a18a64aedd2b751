//! The dialect `messages`: Anthropic Messages.

mod reply;

use flowcell_contract::Json;

pub(super) use self::reply::MessagesReply;
use super::{Body, Pictures, TurnRequest, texts};
use crate::model::{
    profile::DEFAULT_MAX_TOKENS,
    reply::tool_object,
    request::{Block, Image, Message, Role, Source, Tool, ToolChoice},
    schema,
};

/// Builds the request body.
pub(super) fn body(turn: &TurnRequest<'_>) -> Body {
    let request = turn.request;
    let mut body = Body::default();
    body.set("model", turn.model);
    body.set("max_tokens", request.max_tokens.or(turn.profile.max_tokens).unwrap_or(DEFAULT_MAX_TOKENS));
    body.set_some("system", request.system.clone());
    body.set_list("messages", request.messages.iter().filter_map(|one| message(turn, one)).collect());
    body.set_list("tools", request.tools.iter().map(tool).collect());
    body.set_some("tool_choice", choice(&request.tool_choice).filter(|_| !request.tools.is_empty()));
    body.set_some("output_config", output(turn));
    body.set_some("temperature", request.temperature.clone());
    body.set_some("top_p", request.top_p.clone());
    body.set_list("stop_sequences", request.stop.iter().cloned().map(Json::from).collect());
    body.set("stream", true);
    body
}

/// Converts a message; `None` if no block of it can be sent.
fn message(turn: &TurnRequest<'_>, message: &Message) -> Option<Json> {
    let mut blocks: Vec<&Block> = message.content.iter().collect();
    // The provider requires tool results before other blocks.
    blocks.sort_by_key(|block| !matches!(block, Block::ToolResult { .. }));
    let content: Vec<Json> = blocks.into_iter().filter_map(|one| block(turn, one)).collect();
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    (!content.is_empty()).then(|| Json::object([("role", Json::from(role)), ("content", Json::array(content))]))
}

fn block(turn: &TurnRequest<'_>, block: &Block) -> Option<Json> {
    Some(match block {
        Block::Text { text, raw } => match raw.as_ref().and_then(|raw| raw.for_provider(turn.provider)) {
            Some(raw) => raw.clone(),
            None => texts([("type", "text"), ("text", text)]),
        },
        Block::ToolUse { id, name, input, raw } => match raw.as_ref().and_then(|raw| raw.for_provider(turn.provider)) {
            Some(raw) => raw.clone(),
            None => Json::object([
                ("type", Json::from("tool_use")),
                ("id", Json::from(id.clone())),
                ("name", Json::from(name.clone())),
                ("input", tool_object(input)),
            ]),
        },
        Block::ToolResult { tool_use_id, content, is_error } => Json::object([
            ("type", Json::from("tool_result")),
            ("tool_use_id", Json::from(tool_use_id.clone())),
            ("content", Json::array(content.iter().filter_map(|inner| self::block(turn, inner)))),
            ("is_error", Json::from(*is_error)),
        ]),
        Block::Image(image) => picture(image, turn.pictures),
        Block::Raw(raw) => raw.for_provider(turn.provider)?.clone(),
    })
}

fn picture(image: &Image, pictures: &Pictures) -> Json {
    let source = match &image.source {
        Source::Url(url) => texts([("type", "url"), ("url", url)]),
        Source::File(file) => {
            texts([("type", "base64"), ("media_type", &image.mime), ("data", pictures.content(file))])
        }
    };
    Json::object([("type", Json::from("image")), ("source", source)])
}

fn tool(tool: &Tool) -> Json {
    let mut body = Body::default();
    body.set("name", tool.name.clone());
    body.set_some("description", tool.description.clone());
    body.set("input_schema", tool.input_schema.clone());
    body.into_json()
}

fn choice(choice: &ToolChoice) -> Option<Json> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::Any => Some(texts([("type", "any")])),
        ToolChoice::None => Some(texts([("type", "none")])),
        ToolChoice::Tool(name) => Some(texts([("type", "tool"), ("name", name)])),
    }
}

fn output(turn: &TurnRequest<'_>) -> Option<Json> {
    let mut output = Body::default();
    let format =
        turn.request.output_schema.as_ref().map(|schema| {
            Json::object([("type", Json::from("json_schema")), ("schema", schema::for_anthropic(schema))])
        });
    output.set_some("format", format);
    output.set_some("effort", turn.request.effort.clone());
    (!output.0.is_empty()).then(|| output.into_json())
}
