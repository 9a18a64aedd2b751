//! `data.validate`.

use flowcell_sdk::prelude::*;

/// Errors that are told at most.
const MAX_ERRORS: usize = 100;

#[derive(Deserialize)]
pub(crate) struct Input {
    #[serde(default)]
    value: Value,
    schema: Value,
}

/// Checks a value against a JSON Schema, given as an object or as JSON text. No `$ref` leaves the document.
pub(crate) fn run(input: Input) -> Result<Value> {
    let schema = match input.schema {
        Value::String(text) => serde_json::from_str(&text).map_err(|error| invalid(&error))?,
        schema => schema,
    };
    let options = jsonschema::options().offline().with_pattern_options(jsonschema::PatternOptions::regex());
    let validator = options.build(&schema).map_err(|error| invalid(&error))?;
    let place = |error: jsonschema::ValidationError<'_>| match error.instance_path().as_str() {
        "" => error.to_string(),
        path => format!("{path}: {error}"),
    };
    let errors: Vec<_> = validator.iter_errors(&input.value).take(MAX_ERRORS).map(place).collect();
    Ok(if errors.is_empty() { json!({ "valid": true }) } else { json!({ "valid": false, "errors": errors }) })
}

fn invalid(error: &dyn std::fmt::Display) -> Failure {
    Failure::new("invalid_schema", error)
}
