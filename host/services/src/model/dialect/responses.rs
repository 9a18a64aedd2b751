//! The dialect `responses`: OpenAI Responses. The provider stores no conversation: the items of each request carry
//! everything that it needs.

mod reply;

use flowcell_contract::Json;

pub(super) use self::reply::ResponsesReply;
use super::{Body, TurnRequest, texts};
use crate::model::{
    reply::tool_object,
    request::{Block, Message, Role, Tool, ToolChoice},
    schema,
};

/// Builds the request body.
pub(super) fn body(turn: &TurnRequest<'_>) -> Body {
    let request = turn.request;
    let mut body = Body::default();
    body.set("model", turn.model);
    body.set_some("instructions", request.system.clone());
    body.set_list("input", request.messages.iter().flat_map(|one| items(turn, one)).collect());
    body.set_list("tools", request.tools.iter().map(tool).collect());
    body.set_some("tool_choice", choice(&request.tool_choice).filter(|_| !request.tools.is_empty()));
    body.set_some("text", request.output_schema.as_ref().map(format));
    body.set_some("max_output_tokens", request.max_tokens.or(turn.profile.max_tokens));
    body.set_some("temperature", request.temperature.clone());
    body.set_some("top_p", request.top_p.clone());
    body.set_some("reasoning", request.effort.as_ref().map(|effort| texts([("effort", effort)])));
    body.set("store", false);
    body.set("include", Json::array([Json::from("reasoning.encrypted_content")]));
    body.set("stream", true);
    body
}

/// Converts a message to items. Adjacent texts and images share one item; every other block is an item of its own.
fn items(turn: &TurnRequest<'_>, message: &Message) -> Vec<Json> {
    let mut items = Vec::new();
    let mut parts = Vec::new();
    for block in &message.content {
        match part(turn, message.role, block) {
            Some(part) => parts.push(part),
            None => {
                items.extend(of_parts(message.role, &mut parts));
                items.extend(item(turn, block));
            }
        }
    }
    items.extend(of_parts(message.role, &mut parts));
    items
}

fn of_parts(role: Role, parts: &mut Vec<Json>) -> Option<Json> {
    let role = match role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let content = std::mem::take(parts);
    let members =
        [("type", Json::from("message")), ("role", Json::from(role)), ("content", Json::array(content.clone()))];
    (!content.is_empty()).then(|| Json::object(members))
}

/// Converts a block to a part of a message; `None` if the block is an item of its own.
fn part(turn: &TurnRequest<'_>, role: Role, block: &Block) -> Option<Json> {
    match block {
        Block::Text { raw, .. } if raw.as_ref().is_some_and(|raw| raw.for_provider(turn.provider).is_some()) => None,
        Block::Text { text, .. } => {
            let kind = if role == Role::User { "input_text" } else { "output_text" };
            Some(texts([("type", kind), ("text", text)]))
        }
        Block::Image(image) => Some(texts([("type", "input_image"), ("image_url", &turn.pictures.image_url(image))])),
        _ => None,
    }
}

fn item(turn: &TurnRequest<'_>, block: &Block) -> Option<Json> {
    match block {
        Block::Raw(raw) => raw.for_provider(turn.provider).cloned(),
        Block::Text { raw, .. } => raw.as_ref()?.for_provider(turn.provider).cloned(),
        Block::ToolUse { id, name, input, raw } => {
            let own = raw.as_ref().and_then(|raw| raw.for_provider(turn.provider)).cloned();
            Some(own.unwrap_or_else(|| {
                let arguments = tool_object(input).to_text();
                texts([("type", "function_call"), ("call_id", id), ("name", name), ("arguments", &arguments)])
            }))
        }
        Block::ToolResult { tool_use_id, content, is_error } => Some(Json::object([
            ("type", Json::from("function_call_output")),
            ("call_id", Json::from(tool_use_id.clone())),
            ("output", output(turn, content, *is_error)),
        ])),
        Block::Image(_) => None,
    }
}

/// Converts a tool result to text, or to parts if it has images.
fn output(turn: &TurnRequest<'_>, content: &[Block], is_error: bool) -> Json {
    if content.iter().any(|block| matches!(block, Block::Image(_))) {
        return Json::array(content.iter().filter_map(|block| part(turn, Role::User, block)));
    }
    let text = content.iter().filter_map(Block::text).collect::<Vec<_>>().join("\n");
    Json::from(if is_error { format!("error: {text}") } else { text })
}

fn tool(tool: &Tool) -> Json {
    let mut body = Body::default();
    body.set("type", "function");
    body.set("name", tool.name.clone());
    body.set_some("description", tool.description.clone());
    body.set("parameters", tool.input_schema.clone());
    body.set("strict", schema::is_strict(&tool.input_schema));
    body.into_json()
}

fn choice(choice: &ToolChoice) -> Option<Json> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::Any => Some(Json::from("required")),
        ToolChoice::None => Some(Json::from("none")),
        ToolChoice::Tool(name) => Some(texts([("type", "function"), ("name", name)])),
    }
}

fn format(schema: &Json) -> Json {
    let named = Json::object([
        ("type", Json::from("json_schema")),
        ("name", Json::from(schema::NAME)),
        ("strict", Json::from(schema::is_strict(schema))),
        ("schema", schema.clone()),
    ]);
    Json::object([("format", named)])
}
