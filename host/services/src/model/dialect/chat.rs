//! The dialect `chat`: OpenAI Chat Completions, which most servers support.

mod calls;
mod reply;

use flowcell_contract::Json;

pub(super) use self::reply::ChatReply;
use super::{Body, TurnRequest, texts};
use crate::model::{
    reply::tool_object,
    request::{Block, Message, Role, Tool, ToolChoice},
    schema,
};

/// Builds the request body.
pub(super) fn body(turn: &TurnRequest<'_>) -> Body {
    let (request, profile) = (turn.request, turn.profile);
    let mut body = Body::default();
    body.set("model", turn.model);
    let system = request.system.iter().map(|text| texts([("role", "system"), ("content", text)]));
    body.set_list("messages", system.chain(request.messages.iter().flat_map(|one| messages(turn, one))).collect());
    body.set_list("tools", request.tools.iter().map(tool).collect());
    body.set_some("tool_choice", choice(&request.tool_choice).filter(|_| !request.tools.is_empty()));
    body.set_some("response_format", request.output_schema.as_ref().map(format));
    let limit = if profile.legacy_max_tokens { "max_tokens" } else { "max_completion_tokens" };
    body.set_some(limit, request.max_tokens.or(profile.max_tokens));
    body.set_some("temperature", request.temperature.clone());
    body.set_some("top_p", request.top_p.clone());
    body.set_some("seed", request.seed);
    body.set_some("reasoning_effort", request.effort.clone());
    body.set_list("stop", request.stop.iter().cloned().map(Json::from).collect());
    body.set("stream", true);
    if profile.reports_usage {
        body.set("stream_options", Json::object([("include_usage", Json::from(true))]));
    }
    body
}

/// Converts a message of a request to messages of the dialect: each tool result becomes a separate message.
fn messages(turn: &TurnRequest<'_>, message: &Message) -> Vec<Json> {
    match message.role {
        Role::Assistant => assistant(turn, message).into_iter().collect(),
        Role::User => {
            let mut parts = Vec::new();
            let mut all = Vec::new();
            for block in &message.content {
                match block {
                    Block::ToolResult { tool_use_id, content, is_error } => {
                        all.push(result(tool_use_id, content, *is_error));
                        // A tool result is text in this dialect; its images follow in a separate message.
                        parts.extend(
                            content.iter().filter(|inner| inner.text().is_none()).filter_map(|one| part(turn, one)),
                        );
                    }
                    other => parts.extend(part(turn, other)),
                }
            }
            all.extend(user(parts));
            all
        }
    }
}

fn user(parts: Vec<Json>) -> Option<Json> {
    let content = match parts.as_slice() {
        [] => return None,
        [one] if one.get("text").is_some() => one.get("text").cloned().unwrap_or_default(),
        _ => Json::array(parts),
    };
    Some(Json::object([("role", Json::from("user")), ("content", content)]))
}

fn part(turn: &TurnRequest<'_>, block: &Block) -> Option<Json> {
    match block {
        Block::Text { text, .. } => Some(texts([("type", "text"), ("text", text)])),
        Block::Image(image) => {
            let url = Json::object([("url", Json::from(turn.pictures.image_url(image)))]);
            Some(Json::object([("type", Json::from("image_url")), ("image_url", url)]))
        }
        Block::Raw(raw) => raw.for_provider(turn.provider).cloned(),
        Block::ToolUse { .. } | Block::ToolResult { .. } => None,
    }
}

fn result(id: &str, content: &[Block], is_error: bool) -> Json {
    let text = content.iter().filter_map(Block::text).collect::<Vec<_>>().join("\n");
    let text = if is_error { format!("error: {text}") } else { text };
    texts([("role", "tool"), ("tool_call_id", id), ("content", &text)])
}

/// Converts a message of the model. Raw blocks become members of the message.
fn assistant(turn: &TurnRequest<'_>, message: &Message) -> Option<Json> {
    let mut body = Body::default();
    body.set("role", "assistant");
    let text = message.text();
    body.set("content", if text.is_empty() { Json::Null } else { Json::from(text.as_str()) });
    let mut calls = Vec::new();
    for block in &message.content {
        match block {
            Block::ToolUse { id, name, input, .. } => calls.push(call(id, name, input)),
            Block::Raw(raw) => {
                let members = raw.for_provider(turn.provider).and_then(Json::as_object);
                members.into_iter().flatten().for_each(|(key, value)| body.set(key, value.clone()));
            }
            _ => {}
        }
    }
    let says_nothing = text.is_empty() && calls.is_empty();
    body.set_list("tool_calls", calls);
    (!says_nothing).then(|| body.into_json())
}

fn call(id: &str, name: &str, input: &Json) -> Json {
    let function = texts([("name", name), ("arguments", &tool_object(input).to_text())]);
    Json::object([("id", Json::from(id)), ("type", Json::from("function")), ("function", function)])
}

fn tool(tool: &Tool) -> Json {
    let mut function = Body::default();
    function.set("name", tool.name.clone());
    function.set_some("description", tool.description.clone());
    function.set("parameters", tool.input_schema.clone());
    Json::object([("type", Json::from("function")), ("function", function.into_json())])
}

fn choice(choice: &ToolChoice) -> Option<Json> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::Any => Some(Json::from("required")),
        ToolChoice::None => Some(Json::from("none")),
        ToolChoice::Tool(name) => {
            Some(Json::object([("type", Json::from("function")), ("function", texts([("name", name)]))]))
        }
    }
}

fn format(schema: &Json) -> Json {
    let named = Json::object([
        ("name", Json::from(schema::NAME)),
        ("strict", Json::from(schema::is_strict(schema))),
        ("schema", schema.clone()),
    ]);
    Json::object([("type", Json::from("json_schema")), ("json_schema", named)])
}
