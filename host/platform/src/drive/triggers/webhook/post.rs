//! The content of a post whose sender is known: its body as a value, the id that makes it count once, and challenges.

use flowcell_contract::Json;
use flowcell_flow::triggers::schemes::{Challenge, Place, STANDARD, Scheme};
use futures_util::stream;
use http::{HeaderMap, header::CONTENT_TYPE};
use indexmap::IndexMap;
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use super::{
    HookError,
    proof::{self, MAX_ID_CHARS},
    shown,
};
use crate::files::FileError;

/// Maximum number of parts of a body.
const MAX_PARTS: usize = 1_000;

/// Keeps a file of a post with its name, and returns its file value.
pub(super) type KeepFile<'a> = &'a (dyn Fn(&str, Vec<u8>) -> Result<Json, FileError> + Sync);

/// The content of a post.
#[derive(Debug, PartialEq)]
pub(super) enum Content {
    /// A post that starts a run.
    Event(Post),
    /// A post that only tests the address.
    Challenge(ChallengeReply),
}

/// The answer to a post that only tests the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChallengeReply {
    /// 200 with an empty object.
    Empty,
    /// 200 with this `challenge` of the post.
    Repeat(String),
    /// 204 without a body.
    NoContent,
    /// 200 with `{ "type": 1 }`.
    Pong,
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
    /// True if the body has several parts. A repeated delivery separates them by another text.
    pub(super) has_parts: bool,
}

/// Reads the content of a post.
pub(super) async fn read(
    scheme: &Scheme<'_>,
    headers: &HeaderMap,
    bytes: &[u8],
    keep: KeepFile<'_>,
) -> Result<Content, HookError> {
    let event = scheme.event.map(|name| proof::single_header(headers, name).map_or(Json::Null, Json::from));
    let (body, has_parts) = match boundary(scheme, headers)? {
        Some(boundary) => (parse_parts(bytes, &boundary, keep).await?, true),
        None => (parse_body(scheme, headers, bytes)?, false),
    };
    match scheme.challenge {
        Some(Challenge::Ping) if event.as_ref().and_then(Json::as_str) == Some("ping") => {
            return Ok(Content::Challenge(ChallengeReply::Empty));
        }
        Some(Challenge::UrlVerification) => {
            let text = |key| body.get(key).and_then(Json::as_str);
            if let (Some("url_verification"), Some(challenge)) = (text("type"), text("challenge")) {
                return Ok(Content::Challenge(ChallengeReply::Repeat(challenge.to_owned())));
            }
        }
        Some(Challenge::TypedPing) => match body.get("type").and_then(Json::as_u64) {
            Some(0) => return Ok(Content::Challenge(ChallengeReply::NoContent)),
            Some(1) if body.get("event").is_none() => return Ok(Content::Challenge(ChallengeReply::Pong)),
            _ => {}
        },
        _ => {}
    }
    let id = match scheme.id {
        None => format!("{:032x}", rand::random::<u128>()),
        Some(Place::Header(name)) => id_of_header(headers, name)?,
        Some(Place::Pointer(pointer)) if scheme.digests && body.pointer(pointer).is_none() => {
            hex::encode(Sha256::digest(bytes))
        }
        Some(Place::Pointer(pointer)) => id_of_body(&body, pointer)?,
    };
    Ok(Content::Event(Post { id, event, body, has_parts }))
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

/// Returns the media type of the body in lowercase, without its parameters.
fn media_type(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the text between the parts of a body, or `None` if the body is one part. Standard Webhooks have no forms.
fn boundary(scheme: &Scheme<'_>, headers: &HeaderMap) -> Result<Option<String>, HookError> {
    match media_type(headers).as_str() {
        _ if scheme.name == STANDARD => Ok(None),
        "multipart/form-data" => {
            let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            multer::parse_boundary(kind).map(Some).map_err(|error| HookError::Parts(error.to_string()))
        }
        kind if kind.starts_with("multipart/") => Err(HookError::Multipart),
        _ => Ok(None),
    }
}

/// Parses a body: a form as an object, JSON, or else a string. Standard Webhooks have no forms.
fn parse_body(scheme: &Scheme<'_>, headers: &HeaderMap, body: &[u8]) -> Result<Json, HookError> {
    match media_type(headers).as_str() {
        "application/x-www-form-urlencoded" if scheme.name != STANDARD => {
            let pairs = form_urlencoded::parse(body);
            Ok(object_of(pairs.map(|(name, value)| (name.into_owned(), Json::from(&*value)))))
        }
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

/// Parses a body of several parts to an object of texts and file values. A part with the name of a file is a file.
async fn parse_parts(body: &[u8], boundary: &str, keep: KeepFile<'_>) -> Result<Json, HookError> {
    let wrong = |error: multer::Error| HookError::Parts(error.to_string());
    let bytes = stream::iter([Ok::<_, std::convert::Infallible>(bytes::Bytes::copy_from_slice(body))]);
    let mut parts = multer::Multipart::new(bytes, boundary);
    let mut fields = Vec::new();
    while let Some(part) = parts.next_field().await.map_err(wrong)? {
        if fields.len() == MAX_PARTS {
            return Err(HookError::Part(format!("it has more than {MAX_PARTS} parts")));
        }
        let unnamed = || HookError::Part("a part has no name".into());
        let name = part.name().filter(|name| !name.is_empty()).ok_or_else(unnamed)?.to_owned();
        // Some senders write the whole path.
        let file = part.file_name().and_then(|path| path.rsplit(['/', '\\']).next()).map(str::to_owned);
        let value = match file.filter(|file| !file.is_empty()) {
            None => Json::from(part.text().await.map_err(wrong)?),
            Some(file) => {
                let bytes = part.bytes().await.map_err(wrong)?;
                keep(&file, bytes.to_vec()).map_err(|error| refused_file(&name, &error))?
            }
        };
        fields.push((name, value));
    }
    Ok(object_of(fields))
}

/// Returns the error of a file of a form. A name may have any characters, and be long.
fn refused_file(part: &str, error: &FileError) -> HookError {
    HookError::Part(format!("the part `{}`: {error}", shown(part)))
}

/// Returns the object of the fields of a form. The values of a name that occurs more than once are a list.
fn object_of(pairs: impl IntoIterator<Item = (String, Json)>) -> Json {
    let mut fields: IndexMap<String, Vec<Json>> = IndexMap::new();
    for (name, value) in pairs {
        fields.entry(name).or_default().push(value);
    }
    Json::object(fields.into_iter().map(|(name, mut values)| match (values.pop(), values.is_empty()) {
        (Some(only), true) => (name, only),
        (last, _) => (name, Json::array(values.into_iter().chain(last))),
    }))
}
