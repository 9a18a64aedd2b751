//! Parses and checks the arguments of a call of `http`.

use std::{sync::Arc, time::Duration};

use flowcell_contract::{BlobRef, Call, Failure, Json, Value, code as codes};
use hyper::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use super::{Limits, limits::BodyLimit, streams::Times};
use crate::client::is_transfer_header;

/// The longest method, in bytes.
const MAX_METHOD: usize = 20;

const MEMBERS: [&str; 5] = ["method", "url", "headers", "body", "timeoutMs"];
/// Further members of a request whose answer is a stream.
const STREAM_MEMBERS: [&str; 2] = ["idleMs", "totalMs"];

/// The function that opens a stream.
pub(super) const OPEN_STREAM: &str = "open-stream";

/// The request that a node wants to send.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) url: Arc<str>,
    pub(super) headers: HeaderMap,
    pub(super) content: Content,
    pub(super) timeout: Duration,
    /// The times of the answer, if it is a stream.
    pub(super) stream: Option<Times>,
}

/// The content of a body, not loaded yet.
#[derive(Debug)]
pub(super) enum Content {
    None,
    Text(Arc<str>),
    File(BlobRef),
}

impl Request {
    /// Parses the arguments of a call. Fails with `invalid_input` or `http_body_too_large`.
    pub(super) fn read(call: &Call, limits: &Limits) -> Result<Request, Failure> {
        let is_stream = &*call.function == OPEN_STREAM;
        if !is_stream && !matches!(&*call.function, "send" | "start-send") {
            return Err(wrong(format!("`http` has no function `{}`", call.function)));
        }
        let args = call.args.json();
        let members = args.as_object().ok_or_else(|| wrong("the arguments must be an object".into()))?;
        let is_known = |key: &str| MEMBERS.contains(&key) || (is_stream && STREAM_MEMBERS.contains(&key));
        if let Some(unknown) = members.keys().find(|key| !is_known(key.as_ref())) {
            return Err(wrong(format!("unknown member `{unknown}` of a request")));
        }
        Ok(Request {
            method: method(args.get("method"))?,
            url: text(args.get("url"), "url")?,
            headers: headers(args.get("headers"), limits)?,
            content: content(args.get("body"), limits)?,
            timeout: time(args, "timeoutMs", limits.default_timeout, limits.max_timeout)?,
            stream: if is_stream { Some(times(args, limits)?) } else { None },
        })
    }
}

/// Returns true if a request of this method may change something.
pub(super) fn may_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

fn wrong(message: String) -> Failure {
    Failure::new(codes::INVALID_INPUT, message)
}

fn text(member: Option<&Json>, name: &str) -> Result<Arc<str>, Failure> {
    match member {
        Some(Json::String(text)) => Ok(text.clone()),
        other => Err(wrong(format!("`{name}` must be a text, not {}", other.map_or("missing", Json::type_name)))),
    }
}

fn method(member: Option<&Json>) -> Result<Method, Failure> {
    let name = text(member, "method")?;
    let plain = (1..=MAX_METHOD).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
        && &*name != "CONNECT";
    match Method::from_bytes(name.as_bytes()) {
        Ok(method) if plain => Ok(method),
        _ => {
            let shown: String = name.chars().take(MAX_METHOD).collect();
            let form = "write one such as `GET` or `POST`: 1 to 20 of the letters A to Z and `-`, and not `CONNECT`";
            Err(wrong(format!("`method` is {shown:?}, which cannot be sent; {form}")))
        }
    }
}

fn headers(member: Option<&Json>, limits: &Limits) -> Result<HeaderMap, Failure> {
    let pairs = match member {
        None | Some(Json::Null) => &[],
        Some(Json::Array(pairs)) => pairs.as_slice(),
        Some(other) => {
            return Err(wrong(format!("`headers` must be a list of [name, value], not {}", other.type_name())));
        }
    };
    if pairs.len() > limits.headers {
        return Err(wrong(format!("a request may have at most {} headers", limits.headers)));
    }
    let mut headers = HeaderMap::new();
    let mut bytes = 0;
    for pair in pairs {
        let (name, value) = header(pair)?;
        bytes += name.as_str().len() + value.len();
        if bytes > limits.header_bytes {
            return Err(wrong(format!("the headers of a request may have at most {} bytes", limits.header_bytes)));
        }
        headers.append(name, value);
    }
    Ok(headers)
}

fn header(pair: &Json) -> Result<(HeaderName, HeaderValue), Failure> {
    let Some([Json::String(name), Json::String(value)]) = pair.as_array() else {
        return Err(wrong("a header must be a list of two texts, [name, value]".into()));
    };
    // The message repeats neither name nor value: a name may be long, and a value may be a secret.
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| wrong("the name of a header may have only ASCII letters, digits, and `-`, `_`, `.`, `!`, `#`, `$`, `%`, `&`, `'`, `*`, `+`, `^`, `|`, `~` and the backtick".into()))?;
    if is_transfer_header(&name) {
        return Err(wrong(format!("the host sets the header `{name}`")));
    }
    let ascii = Some(value.trim()).filter(|value| value.is_ascii());
    let value = ascii.and_then(|value| HeaderValue::from_str(value).ok());
    let value =
        value.ok_or_else(|| wrong(format!("the value of `{name}` may have only printable ASCII characters")))?;
    Ok((name, value))
}

fn content(member: Option<&Json>, limits: &Limits) -> Result<Content, Failure> {
    let shape = || wrong("`body` must be null, { \"text\": … } or { \"file\": … }".into());
    let members = match member {
        None | Some(Json::Null) => return Ok(Content::None),
        Some(member) => member.as_object().filter(|members| members.len() == 1).ok_or_else(shape)?,
    };
    let content = match members.first().map(|(key, value)| (key.as_ref(), value)) {
        Some(("text", Json::String(text))) => Content::Text(text.clone()),
        Some(("file", file)) => Content::File(Value::from(file.clone()).blob().ok_or_else(shape)?),
        _ => return Err(shape()),
    };
    // A file states its size, but its content is measured again when it is loaded.
    let (size, most) = match &content {
        Content::Text(text) => (text.len() as u64, BodyLimit::InMemory(limits.request_body as u64)),
        Content::File(blob) => (blob.size, BodyLimit::File(limits.file_body)),
        Content::None => return Ok(content),
    };
    if size > most.bytes() { Err(most.exceeded()) } else { Ok(content) }
}

fn times(args: &Json, limits: &Limits) -> Result<Times, Failure> {
    Ok(Times {
        idle: time(args, "idleMs", limits.default_idle, limits.max_idle)?,
        total: time(args, "totalMs", limits.default_total, limits.max_total)?,
    })
}

/// Returns the time that a member gives in milliseconds, or `default`, and at most `most`.
fn time(args: &Json, name: &str, default: Duration, most: Duration) -> Result<Duration, Failure> {
    match args.get(name) {
        None | Some(Json::Null) => Ok(default.min(most)),
        Some(member) => match member.as_u64() {
            Some(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds).min(most)),
            _ => Err(wrong(format!("`{name}` must be a whole number of milliseconds, at least 1"))),
        },
    }
}
