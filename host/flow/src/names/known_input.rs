//! The input of a run, as far as it is known before the run.

use flowcell_contract::Json;

use crate::{read::RawFlow, triggers, yaml::Tree};

/// Information about a run's input before the run.
pub(crate) enum KnownInput {
    /// The flow has neither a schema nor defaults.
    Unknown,
    /// The schema of the input.
    Schema(serde_json::Value),
    /// The defaults of the input; callers may add members.
    Defaults(Json),
}

impl KnownInput {
    /// Returns the known input of a flow: its schema, otherwise its defaults. If the flow has triggers, the defaults
    /// include the member `trigger`.
    pub(crate) fn of(flow: &RawFlow<'_>) -> KnownInput {
        match (flow.input_schema, flow.input.map(Tree::json)) {
            (Some(schema), _) => KnownInput::Schema(schema.json().to_serde()),
            (None, Some(Json::Object(members))) if !members.is_empty() => {
                let members = members.iter().map(|(key, value)| (key.clone(), value.clone()));
                let trigger = flow.triggers.map(|_| (triggers::MEMBER.into(), Json::Null));
                KnownInput::Defaults(Json::object(members.chain(trigger)))
            }
            _ => KnownInput::Unknown,
        }
    }
}
