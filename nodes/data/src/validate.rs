//! The node `data.validate`: checks a value against a JSON Schema.

use flowcell_sdk::{
    file::{content_needed, is_file},
    prelude::*,
};

/// Maximum number of errors that are reported.
const MAX_ERRORS: usize = 100;
/// Maximum number of characters of one error. An error quotes the invalid value, which may be the whole of a large
/// input.
const MAX_ERROR_CHARS: usize = 500;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(default)]
    value: Value,
    schema: Value,
}

/// Checks a value against a JSON Schema, which is an object or JSON text. References must point to parts of this
/// schema.
pub(crate) fn run(input: Input) -> Result<Value> {
    if is_file(&input.value) {
        return Err(content_needed("value"));
    }
    let schema = match input.schema {
        Value::String(text) => serde_json::from_str(&text).map_err(|error| invalid(&error))?,
        schema => schema,
    };
    let options = jsonschema::options().offline().with_pattern_options(jsonschema::PatternOptions::regex());
    let validator = options.build(&schema).map_err(|error| invalid(&error))?;
    let errors: Vec<_> =
        validator.iter_errors(&input.value).take(MAX_ERRORS).map(|error| short_message(&error)).collect();
    Ok(if errors.is_empty() { json!({ "valid": true }) } else { json!({ "valid": false, "errors": errors }) })
}

/// Returns an error with its place, cut to [`MAX_ERROR_CHARS`] characters.
fn short_message(error: &jsonschema::ValidationError<'_>) -> String {
    let message = match error.instance_path().as_str() {
        "" => error.to_string(),
        path => format!("{path}: {error}"),
    };
    match message.char_indices().nth(MAX_ERROR_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

fn invalid(error: &dyn std::fmt::Display) -> Failure {
    Failure::new("invalid_schema", error)
}
