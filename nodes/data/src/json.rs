//! The nodes `data.json.parse` and `data.json.stringify`: convert between JSON text and values.

use flowcell_expr::Json;
use flowcell_sdk::{file, prelude::*};

#[derive(Deserialize)]
pub(crate) struct Text {
    text: String,
}

/// Parses a text as JSON. If the text is not JSON, fails with `invalid_json`, and names the line and column of the
/// error.
pub(crate) fn parse(input: Text) -> Result<Value> {
    match Json::parse(&input.text) {
        Ok(value) => Ok(json!({ "value": value })),
        Err(error) => {
            Err(Failure::new("invalid_json", &error).details(json!({ "line": error.line(), "column": error.column() })))
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct ValueInput {
    #[serde(default)]
    value: Json,
}

/// Writes a value as compact JSON.
pub(crate) fn stringify(input: ValueInput) -> Result<Value> {
    match input.value.is_file() {
        true => Err(file::content_needed("value")),
        false => Ok(json!({ "text": input.value.to_text() })),
    }
}
