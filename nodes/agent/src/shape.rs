//! The schema of structured answers, and the parser for such answers.

use flowcell_expr::Json;
use flowcell_sdk::{Failure, Result};
use serde_json::{Value, json};

use crate::settings::Structure;

/// Maximum number of errors in a message to the model.
const MAX_ERRORS: usize = 10;
const MAX_ERROR_CHARS: usize = 300;

/// The compiled schema of the answers of an agent.
pub(crate) struct AnswerSchema {
    /// The schema.
    pub(crate) schema: Value,
    /// Maximum number of requests to repair an answer.
    pub(crate) max_repairs: u32,
    validator: jsonschema::Validator,
}

impl AnswerSchema {
    /// Compiles the schema. References must point to parts of this schema, and its patterns run in linear time.
    pub(crate) fn new(structure: &Structure) -> Result<AnswerSchema> {
        let options = jsonschema::options().offline().with_pattern_options(jsonschema::PatternOptions::regex());
        let validator = options.build(&structure.schema);
        let validator = validator.map_err(|error| Failure::new("invalid_schema", format!("output.schema: {error}")))?;
        Ok(AnswerSchema { schema: structure.schema.clone(), max_repairs: structure.max_repairs, validator })
    }

    /// Parses an answer and checks it against the schema. If the answer does not fit, returns the errors, at most
    /// [`MAX_ERRORS`].
    pub(crate) fn read(&self, text: &str) -> Result<Value, Vec<String>> {
        let value = parse(text).map_err(|error| vec![format!("this is not JSON: {error}")])?;
        let errors: Vec<_> =
            self.validator.iter_errors(&value).take(MAX_ERRORS).map(|error| short_message(&error)).collect();
        if errors.is_empty() { Ok(value) } else { Err(errors) }
    }

    /// Returns the failure for an answer that still does not fit after the last repair. It names these errors.
    pub(crate) fn repairs_failed(&self, errors: &[String]) -> Failure {
        let message =
            format!("the answer does not match its schema after {} repairs: {}", self.max_repairs, errors.join("; "));
        Failure::new("invalid_structured_output", message).details(json!({ "errors": errors }))
    }
}

/// Returns the message that asks the model to repair its answer.
pub(crate) fn repair_request(errors: &[String]) -> String {
    format!(
        "Your answer does not match the JSON Schema:\n- {}\nAnswer again with the complete corrected JSON and nothing \
         else.",
        errors.join("\n- ")
    )
}

/// Parses the whole text as JSON. If it is not JSON, parses the lines between the first code fence and the last
/// one.
fn parse(text: &str) -> serde_json::Result<Value> {
    exact(text.trim()).or_else(|error| match fenced(text) {
        Some(inner) => exact(inner),
        None => Err(error),
    })
}

/// Parses JSON and refuses whole numbers that would lose digits.
fn exact(text: &str) -> serde_json::Result<Value> {
    let value = serde_json::from_str(text)?;
    Json::check_numbers(text).map(|()| value)
}

fn fenced(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("```")?;
    let (_, rest) = rest.split_once('\n')?;
    rest.rsplit_once("```").map(|(inner, _)| inner.trim())
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
