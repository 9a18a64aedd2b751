//! The dialects of model providers. A dialect is the wire format of a provider: it turns a request into a body, and a
//! stream of events into a reply.

mod chat;
mod messages;
mod responses;

use std::{collections::HashMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::{Failure, Json, Object};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::{
    attempt_error::AttemptError,
    delta_buffer::Delta,
    object_reader::wrong,
    price::{Spent, Usage},
    profile::{Dialect, Profile},
    reply::{Blocks, Outcome},
    request::{Image, Request, Source},
};
use crate::{code, secret::Key, sse::Event};

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const DEFAULT_ANTHROPIC_VERSION: &str = "2023-06-01";

/// A turn, with everything that a dialect needs to build the request body.
pub(super) struct TurnRequest<'a> {
    pub(super) request: &'a Request,
    pub(super) profile: &'a Profile,
    pub(super) provider: &'a str,
    pub(super) model: &'a str,
    pub(super) pictures: &'a Pictures,
}

/// The images of a request that are files: their content as base64, by file id.
#[derive(Debug, Default)]
pub(super) struct Pictures(HashMap<Arc<str>, String>);

/// A reply that is assembled from the events of a stream.
pub(super) trait Assembly: Send {
    /// Adds an event of the stream to the reply, and calls `tell` with the text and thoughts in the event.
    fn take(&mut self, event: &Event, tell: &mut dyn FnMut(Delta)) -> Result<(), Interrupted>;

    /// Returns true once the end of the reply has arrived.
    fn is_complete(&self) -> bool;

    /// Returns true if the stream may end now. Some servers leave out the last event of a complete reply.
    fn may_end(&self) -> bool {
        self.is_complete()
    }

    /// Returns the usage that the provider has reported so far.
    fn used(&self) -> Used;

    /// Returns the reply. The caller calls this once the reply is complete.
    fn finish(&mut self, blocks: &mut Blocks) -> Result<Outcome, AttemptError>;
}

/// The reason that a stream cannot continue.
#[derive(Debug)]
pub(super) enum Interrupted {
    /// The provider reports an error.
    Reported(Json),
    /// An event violates the dialect.
    Nonsense(String),
}

/// The known usage of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Used {
    /// `None` until the provider reports it.
    pub(super) usage: Option<Usage>,
    pub(super) cost_usd: Option<f64>,
    /// Bytes of text, thoughts and tool inputs received so far.
    pub(super) written: usize,
}

impl Used {
    /// Returns the provider's numbers, or `guess` if it reported none.
    pub(super) fn spent_or(&self, guess: Usage) -> Spent {
        Spent { usage: self.usage.unwrap_or(guess), cost_usd: self.cost_usd }
    }
}

impl Pictures {
    pub(super) fn add(&mut self, file: Arc<str>, bytes: &[u8]) {
        self.0.insert(file, STANDARD.encode(bytes));
    }

    pub(super) fn has(&self, file: &str) -> bool {
        self.0.contains_key(file)
    }

    fn content(&self, file: &str) -> &str {
        self.0.get(file).map_or("", String::as_str)
    }

    /// Returns the URL of an image. For a file, it is a `data:` URL with the content of the file.
    fn image_url(&self, image: &Image) -> String {
        match &image.source {
            Source::Url(url) => url.to_string(),
            Source::File(file) => format!("data:{};base64,{}", image.mime, self.content(file)),
        }
    }
}

impl Dialect {
    /// Builds the request body.
    pub(super) fn body(self, turn: &TurnRequest<'_>) -> Result<Json, Failure> {
        let body = match self {
            Dialect::Messages => messages::body(turn),
            Dialect::Chat => chat::body(turn),
            Dialect::Responses | Dialect::Simulated => responses::body(turn),
        };
        with_params(body, &turn.request.params)
    }

    /// Returns an empty reply of this dialect, to which the events of a stream are added.
    pub(super) fn assembly(self) -> Box<dyn Assembly> {
        match self {
            Dialect::Messages => Box::new(messages::MessagesReply::default()),
            Dialect::Chat => Box::new(chat::ChatReply::default()),
            Dialect::Responses | Dialect::Simulated => Box::new(responses::ResponsesReply::default()),
        }
    }

    /// Refuses members of a request that a provider of this dialect would ignore, although they change what the request
    /// means.
    pub(super) fn check(self, request: &Request) -> Result<(), Failure> {
        match self == Dialect::Responses && !request.stop.is_empty() {
            true => Err(wrong("providers of the dialect `responses` do not support `stop`")),
            false => Ok(()),
        }
    }
}

/// Returns the URL that a provider's requests are posted to.
pub(super) fn request_url(profile: &Profile) -> String {
    let base = profile.base_url.as_deref().unwrap_or_default().trim_end_matches('/');
    let path = match profile.dialect {
        Dialect::Messages => "/v1/messages",
        Dialect::Chat => "/chat/completions",
        Dialect::Responses | Dialect::Simulated => "/responses",
    };
    match &profile.api_version {
        Some(version) if profile.dialect != Dialect::Messages => {
            let version: String = url::form_urlencoded::byte_serialize(version.as_bytes()).collect();
            format!("{base}{path}?api-version={version}")
        }
        _ => format!("{base}{path}"),
    }
}

/// Adds the headers with the API key and the version of the API.
pub(super) fn add_headers(profile: &Profile, key: Option<&Key>, headers: &mut HeaderMap) -> Result<(), Failure> {
    if let Some(key) = key {
        profile.auth.add_header(key, headers).map_err(|why| Failure::new(code::MODEL_AUTH, why))?;
    }
    if profile.dialect == Dialect::Messages {
        let version = profile.api_version.as_deref().unwrap_or(DEFAULT_ANTHROPIC_VERSION);
        headers.insert(ANTHROPIC_VERSION, HeaderValue::from_str(version).map_err(unsendable)?);
    }
    Ok(())
}

fn unsendable<E>(_: E) -> Failure {
    Failure::new(code::MODEL_INVALID_REQUEST, "a header of the provider's profile is invalid")
}

/// A request body under construction. It leaves out members without a value.
#[derive(Default)]
struct Body(Object);

impl Body {
    fn set(&mut self, name: &str, value: impl Into<Json>) {
        self.0.insert(name.into(), value.into());
    }

    fn set_some(&mut self, name: &str, value: Option<impl Into<Json>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    fn set_list(&mut self, name: &str, items: Vec<Json>) {
        if !items.is_empty() {
            self.set(name, Json::array(items));
        }
    }

    fn into_json(self) -> Json {
        Json::object(self.0)
    }
}

/// Adds the request's `params` to the body. A member that both have is merged if both values are objects, and refused
/// otherwise.
fn with_params(body: Body, params: &Object) -> Result<Json, Failure> {
    let mut members = body.0;
    for (name, value) in params {
        let taken = || wrong(format!("`params.{name}` repeats a member of the request"));
        let merged = match (members.get(name), value) {
            (None, value) => value.clone(),
            (Some(Json::Object(own)), Json::Object(more)) => {
                if more.keys().any(|key| own.contains_key(key)) {
                    return Err(taken());
                }
                Json::object(own.iter().chain(more.iter()).map(|(key, value)| (key.clone(), value.clone())))
            }
            _ => return Err(taken()),
        };
        members.insert(name.clone(), merged);
    }
    Ok(Json::object(members))
}

/// Builds an object whose members are all strings.
fn texts<const N: usize>(members: [(&str, &str); N]) -> Json {
    Json::object(members.map(|(name, value)| (name, Json::from(value))))
}

/// Parses the data of an event as JSON.
fn parse_event(event: &Event) -> Result<Json, Interrupted> {
    Json::parse(&event.data).map_err(|error| Interrupted::Nonsense(format!("an event is not JSON: {error}")))
}

/// Returns a string member, or an empty string.
fn text_of<'a>(json: &'a Json, name: &str) -> &'a str {
    json.get(name).and_then(Json::as_str).unwrap_or_default()
}

/// Returns the number of tokens at a JSON Pointer, or `None` if it is missing.
fn tokens(json: &Json, pointer: &str) -> Option<u64> {
    json.pointer(pointer).and_then(Json::as_u64)
}
