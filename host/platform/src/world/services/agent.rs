//! A service that asks a model in one turn, with a prompt.

use std::sync::Arc;

use flowcell_contract::{Call, Failure, Grants, Json, Object, Outgoing, Prepared, Value};
use flowcell_services::model;
use serde::Deserialize;

use super::invalid_call;

/// Members of a request that the caller must not set.
const RESERVED: [&str; 5] = ["provider", "messages", "tools", "toolChoice", "agentRunId"];

/// The model of the service, and its default options.
///
/// | member | value | default |
/// |---|---|---|
/// | `provider` | the name of a profile of models | the default one |
/// | `model` | the model of calls that name none | the profile's |
/// | `models` | patterns of models that calls may name | `model`; if that is missing, any model |
/// | `options` | default members of a request: `system`, `maxTokens`, `temperature` … | none |
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ModelService {
    provider: Option<String>,
    model: Option<String>,
    models: Vec<String>,
    options: Json,
}

impl ModelService {
    pub(super) fn read(json: &Json) -> Result<ModelService, String> {
        let read: ModelService = serde_path_to_error::deserialize(json.to_serde())
            .map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
        match read.options.is_null() || read.options.as_object().is_some() {
            true => Ok(read),
            false => Err(format!("options: must be an object, not {}", read.options.type_name())),
        }
    }

    /// Builds the model's turn for a call. The first argument is a prompt, or an object with the member `prompt`. More
    /// members of the model's request may be in that object, or in an object as the second argument.
    pub(super) fn turn(&self, args: &[Json], outgoing: &Outgoing) -> Result<Outgoing, Failure> {
        let mut request = self.options.as_object().cloned().unwrap_or_default();
        let named = [("provider", &self.provider), ("model", &self.model)];
        let named = named.into_iter().filter_map(|(name, value)| Some((name.into(), Json::from(value.as_deref()?))));
        request.extend(named);
        let (prompt, files) = read_arguments(args, &mut request)?;
        let text = [("type", Json::from("text")), ("text", Json::from(prompt))];
        let blocks = files.iter().map(image).chain([Ok(Json::object(text))]).collect::<Result<Vec<_>, _>>()?;
        let message = [("role", Json::from("user")), ("content", Json::array(blocks))];
        request.insert("messages".into(), Json::array([Json::object(message)]));
        let call = Call {
            interface: model::INTERFACE.into(),
            function: "generate".into(),
            args: Value::from(Json::object(request)),
        };
        let mut caller = outgoing.caller.clone();
        // The operator configured the service's model, so the flow needs no grant for it.
        let grants = Json::array(self.allowed_models().into_iter().map(Json::from));
        caller.grants = Arc::new(Grants([(model::INTERFACE.to_owned(), grants)].into_iter().collect()));
        Ok(Outgoing { call, caller, prepared: Prepared::default(), ..outgoing.clone() })
    }

    /// Returns patterns of the models that calls may use, as grants of the capability `model`.
    fn allowed_models(&self) -> Vec<String> {
        let provider = self.provider.as_deref().unwrap_or("*");
        let own = self.model.iter().chain(&self.models).map(|model| format!("{provider}/{model}"));
        let own: Vec<_> = own.collect();
        if own.is_empty() { vec![format!("{provider}/*")] } else { own }
    }
}

/// Returns the prompt and the files in the arguments, and copies the other members into the request.
fn read_arguments(args: &[Json], request: &mut Object) -> Result<(String, Vec<Json>), Failure> {
    let wanted = "the arguments must be a prompt or an object with `prompt`, and optionally an object with options";
    let (first, more) = match args {
        [first] => (first, None),
        [first, more] => (first, Some(more).filter(|more| !more.is_null())),
        _ => return Err(invalid_call(wanted)),
    };
    let mut asked = match first {
        Json::String(prompt) => Object::from_iter([("prompt".into(), Json::from(prompt.clone()))]),
        other => other.as_object().cloned().ok_or_else(|| invalid_call(wanted))?,
    };
    if let Some(more) = more {
        let more = more.as_object().ok_or_else(|| invalid_call(wanted))?;
        asked.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    let prompt = asked.shift_remove("prompt").and_then(|prompt| prompt.as_str().map(str::to_owned));
    let prompt = prompt.filter(|prompt| !prompt.trim().is_empty()).ok_or_else(|| invalid_call(wanted))?;
    let files = match asked.shift_remove("files") {
        None | Some(Json::Null) => Vec::new(),
        Some(Json::Array(files)) => files.to_vec(),
        Some(one) => vec![one],
    };
    if let Some(reserved) = asked.keys().find(|name| RESERVED.contains(&&***name)) {
        return Err(invalid_call(&format!("the caller cannot set `{reserved}`")));
    }
    request.extend(asked);
    Ok((prompt, files))
}

/// Converts a file to an image block for the model.
fn image(file: &Json) -> Result<Json, Failure> {
    let blob = Value::from(file.clone()).blob();
    let blob = blob.ok_or_else(|| invalid_call("`files` must be files, `{ \"kind\": \"file\", \"fileId\": … }`"))?;
    let members =
        [("type", Json::from("image")), ("mime", Json::from(blob.mime)), ("fileId", Json::from(blob.file_id))];
    Ok(Json::object(members))
}

/// Converts a model's reply to the service's result.
pub(super) fn answer(reply: &Value) -> Value {
    let reply = reply.json();
    let blocks = reply.get("content").and_then(Json::as_array).unwrap_or_default().iter();
    let text = blocks.filter_map(|block| block.get("text").and_then(Json::as_str)).collect::<String>();
    let meta = ["provider", "model", "stop", "usage"].into_iter();
    let meta = Json::object(meta.filter_map(|name| Some((name, reply.get(name)?.clone()))));
    Value::from(Json::object([("kind", Json::from("text")), ("value", Json::from(text)), ("meta", meta)]))
}
