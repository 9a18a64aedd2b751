//! Reads the replies of the capability `http`, for all interfaces that pass them to guests.

use flowcell_contract::{BlobRef, Failure, Json, Value, code};

/// The reply of a call of `http`: an HTTP response.
pub(super) struct Reply<'a> {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'a str, &'a str)>,
    pub(super) body: Body<'a>,
}

/// The body of an HTTP response.
pub(super) enum Body<'a> {
    Empty,
    Text(&'a str),
    /// A stored file, and its file value as JSON.
    File(BlobRef, &'a Json),
}

impl<'a> Reply<'a> {
    pub(super) fn read(reply: &'a Value) -> Result<Reply<'a>, Failure> {
        Self::parts(reply.json()).ok_or_else(unexpected_reply)
    }

    fn parts(json: &'a Json) -> Option<Reply<'a>> {
        let status = json.get("status")?.as_u64()?.try_into().ok()?;
        let header = |pair: &'a Json| match pair.as_array()? {
            [name, value] => Some((name.as_str()?, value.as_str()?)),
            _ => None,
        };
        let headers = json.get("headers").and_then(Json::as_array).unwrap_or_default();
        let body = json.get("body").unwrap_or(&Json::Null);
        let body = match (body.get("text").and_then(Json::as_str), body.get("file")) {
            (Some(text), _) => Body::Text(text),
            (None, Some(file)) => Body::File(Value::from(file.clone()).blob()?, file),
            (None, None) => Body::Empty,
        };
        Some(Reply { status, headers: headers.iter().map(header).collect::<Option<_>>()?, body })
    }
}

/// Returns the failure for a reply that has the wrong form.
pub(super) fn unexpected_reply() -> Failure {
    Failure::retryable(code::LOST_WORKER, "`http.send` has an unexpected reply")
}
