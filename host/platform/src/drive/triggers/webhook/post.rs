//! The content of a post whose sender is known: its body as a value, the id that makes it count once, and challenges.

use flowcell_contract::Json;
use flowcell_flow::triggers::schemes::{Challenge, Place, STANDARD, Scheme};
use http::{HeaderMap, header::CONTENT_TYPE};
use indexmap::IndexMap;
use url::form_urlencoded;

use super::{
    HookError,
    proof::{self, MAX_ID_CHARS},
};

/// The content of a post.
#[derive(Debug, PartialEq)]
pub(super) enum Content {
    /// A post that starts a run.
    Event(Post),
    /// A post that only tests the address. The value is the text that the answer repeats.
    Challenge(Option<String>),
}

/// A post that starts a run.
#[derive(Debug, PartialEq)]
pub(super) struct Post {
    /// The id of the post, the same in every delivery. It is random if the scheme has none.
    pub(super) id: String,
    /// The kind of event, if the scheme has a header for it. `Null` if that header is missing.
    pub(super) event: Option<Json>,
    /// The body.
    pub(super) body: Json,
}

/// Reads the content of a post.
pub(super) fn read(scheme: &Scheme<'_>, headers: &HeaderMap, body: &[u8]) -> Result<Content, HookError> {
    let event = scheme.event.map(|name| proof::single_header(headers, name).map_or(Json::Null, Json::from));
    let body = parse_body(scheme, headers, body)?;
    match scheme.challenge {
        Some(Challenge::Ping) if event.as_ref().and_then(Json::as_str) == Some("ping") => {
            return Ok(Content::Challenge(None));
        }
        Some(Challenge::UrlVerification) => {
            let text = |key| body.get(key).and_then(Json::as_str);
            if let (Some("url_verification"), Some(challenge)) = (text("type"), text("challenge")) {
                return Ok(Content::Challenge(Some(challenge.to_owned())));
            }
        }
        _ => {}
    }
    let id = match scheme.id {
        None => format!("{:032x}", rand::random::<u128>()),
        Some(Place::Header(name)) => id_of_header(headers, name)?,
        Some(Place::Pointer(pointer)) => id_of_body(&body, pointer)?,
    };
    Ok(Content::Event(Post { id, event, body }))
}

fn id_of_header(headers: &HeaderMap, name: &str) -> Result<String, HookError> {
    // The sender is known, so the message need not hide the scheme.
    let id = match proof::single_header(headers, name) {
        Ok(id) if proof::is_id(id) => Ok(id.to_owned()),
        Ok(_) => Err(format!("the header `{name}` must have 1 to {MAX_ID_CHARS} printable ASCII characters")),
        Err(error) => Err(error.to_string()),
    };
    id.map_err(HookError::Id)
}

fn id_of_body(body: &Json, pointer: &str) -> Result<String, HookError> {
    let id = match body.pointer(pointer) {
        Some(Json::String(text)) => text.to_string(),
        Some(number @ Json::Number(_)) => number.to_text(),
        _ => return Err(HookError::Id(format!("the body has no text or number at `{pointer}`"))),
    };
    match (1..=MAX_ID_CHARS).contains(&id.chars().count()) {
        true => Ok(id),
        false => Err(HookError::Id(format!("the text at `{pointer}` must have 1 to {MAX_ID_CHARS} characters"))),
    }
}

/// Parses a body: a form as an object, JSON, or else a string. Standard Webhooks have no forms.
fn parse_body(scheme: &Scheme<'_>, headers: &HeaderMap, body: &[u8]) -> Result<Json, HookError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        _ if scheme.name == STANDARD => parse_text(body),
        "application/x-www-form-urlencoded" => Ok(parse_form(body)),
        kind if kind.starts_with("multipart/") => Err(HookError::Multipart),
        _ => parse_text(body),
    }
}

/// Parses a body as JSON, or else as a string. JSON with numbers that cannot be stored exactly is an error.
fn parse_text(body: &[u8]) -> Result<Json, HookError> {
    let text = String::from_utf8_lossy(body);
    match serde_json::from_str::<Json>(&text) {
        Ok(json) => Json::check_numbers(&text).map(|()| json).map_err(HookError::Body),
        Err(_) => Ok(Json::from(&*text)),
    }
}

/// Parses a form to an object. The values of a name that occurs more than once are a list.
fn parse_form(body: &[u8]) -> Json {
    let mut fields: IndexMap<String, Vec<Json>> = IndexMap::new();
    for (name, value) in form_urlencoded::parse(body) {
        fields.entry(name.into_owned()).or_default().push(Json::from(&*value));
    }
    Json::object(fields.into_iter().map(|(name, mut values)| match (values.pop(), values.is_empty()) {
        (Some(only), true) => (name, only),
        (last, _) => (name, Json::array(values.into_iter().chain(last))),
    }))
}
