//! Names and arguments of tools.

use serde_json::Value;

use crate::http::api_error::ApiError;
pub(super) use crate::http::authoring::input_schema;

/// The prefix of the names of the built-in tools. A flow with such a name is not a tool.
pub(super) const PREFIX: &str = "flowcell_";

/// Parses the arguments of a tool like a JSON body of HTTP. Returns 400 if they do not match.
pub(super) fn parse<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, ApiError> {
    // Some types keep parts of their JSON text unparsed, so the value is converted to text first.
    let read = serde_json::from_str(&arguments.to_string());
    read.map_err(|error| ApiError::bad_request(format!("the arguments do not fit the tool: {error}")))
}
