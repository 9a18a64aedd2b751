//! The tools that draw a flow, and list the functions of expressions.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::functions;
use flowcell_flow::draw::{Format, draw as drawn};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::http::{api_error::ApiError, app::Request, start};
use flowcell_platform::shape;

/// A flow to draw.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drawing {
    flow: Box<RawValue>,
    version: Option<u32>,
    #[serde(default = "text")]
    format: Format,
}

fn text() -> Format {
    Format::Text
}

/// Draws a flow. A picture is an image; the other formats are texts.
pub(super) async fn draw(request: Request, asked: Drawing) -> Result<CallToolResult, ApiError> {
    let Drawing { flow, version, format } = asked;
    let flow = start::load_or_check(&request, &flow, version).await?;
    let drawing = request.computing(move |request| Ok(request.host.charged(|| drawn(flow.graph(), format))));
    let drawing = drawing.await?;
    Ok(CallToolResult::success(vec![match format {
        Format::Svg => ContentBlock::image(STANDARD.encode(drawing), "image/svg+xml"),
        _ => ContentBlock::text(drawing),
    }]))
}

/// The name of a function of expressions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FunctionName {
    name: Option<String>,
}

/// Lists the functions of expressions, or describes those with a name.
pub(super) fn functions(asked: &FunctionName) -> Result<Value, ApiError> {
    let Some(name) = &asked.name else {
        return Ok(json!({ "functions": functions::functions().map(shape::function_row).collect::<Vec<_>>() }));
    };
    let found: Vec<_> = functions::functions_named(name).map(shape::function).collect();
    if !found.is_empty() {
        return Ok(json!({ "functions": found }));
    }
    let hint = match functions::similar_function(name) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "flowcell_functions without `name` lists all functions".to_owned(),
    };
    Err(ApiError::bad_request(format!("unknown function `{name}`: {hint}")))
}
