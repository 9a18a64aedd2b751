//! The forms that a browser sends.

use axum::{
    extract::{FromRequest, Request},
    http::{StatusCode, header},
};
use flowcell_server::api::{Api, Refusal, SentText};
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::frame::Failure;

/// Maximum size of a form in bytes.
pub const MAX_FORM_BYTES: usize = 64 << 10;
/// Maximum size in bytes of a form with the text of a flow. Browsers send some characters as three bytes.
pub const MAX_TEXT_FORM_BYTES: usize = 4 << 20;

/// Maximum number of members of a form.
const MAX_MEMBERS: usize = 1_000;

/// The members of a form, in the order in which the browser sends them.
pub(crate) struct Form(Vec<(String, String)>);

/// A form with the text of a flow. It holds the permit for its bytes.
pub(crate) struct TextForm {
    pub(crate) form: Form,
    _sent: SentText,
}

impl Form {
    fn parse(place: &str, bytes: &[u8]) -> Result<Form, Failure> {
        if bytes.iter().filter(|byte| **byte == b'&').count() >= MAX_MEMBERS {
            let why = format!("a form may have at most {MAX_MEMBERS} members");
            return Err(Failure::at(place, Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)));
        }
        let value = |value: &str| value.replace("\r\n", "\n");
        Ok(Form(form_urlencoded::parse(bytes).map(|(key, text)| (key.into_owned(), value(&text))).collect()))
    }

    /// Returns the value of a member, without the line breaks of the HTTP form.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns all members as a list of pairs.
    pub(crate) fn content(&self) -> Value {
        json!(self.0)
    }

    /// Returns all values of a member that a form may have several times.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }
}

impl FromRequest<Api> for Form {
    type Rejection = Failure;

    async fn from_request(request: Request, api: &Api) -> Result<Form, Failure> {
        let place = request.uri().path().to_owned();
        check_type(&request)?;
        let bytes = api.read_body(request, MAX_FORM_BYTES).await;
        let bytes = bytes.map_err(|refusal| too_large(&place, refusal, MAX_FORM_BYTES, "inputs"))?;
        Form::parse(&place, &bytes)
    }
}

impl FromRequest<Api> for TextForm {
    type Rejection = Failure;

    async fn from_request(request: Request, api: &Api) -> Result<TextForm, Failure> {
        let place = request.uri().path().to_owned();
        check_type(&request)?;
        let sent = api.read_text(request, MAX_TEXT_FORM_BYTES).await;
        let sent = sent.map_err(|refusal| too_large(&place, refusal, MAX_TEXT_FORM_BYTES, "flows"))?;
        Ok(TextForm { form: Form::parse(&place, &sent.bytes)?, _sent: sent })
    }
}

fn check_type(request: &Request) -> Result<(), Failure> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded") {
        return Ok(());
    }
    let why = "the console takes forms of its own pages; programs send JSON to `/v1`";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", why).into())
}

/// Returns the page for a body that was refused. If it is too large, the message says where to send it instead.
fn too_large(place: &str, refusal: Refusal, most: usize, what: &str) -> Failure {
    let refusal = match refusal.code.as_str() {
        "too_large" => {
            let why = format!("a form may have at most {most} bytes; send larger {what} to `/v1`");
            Refusal { message: why, ..refusal }
        }
        _ => refusal,
    };
    Failure::at(place, refusal)
}

/// Returns a form with these members.
#[cfg(test)]
pub(crate) fn form_of(members: &[(&str, &str)]) -> Form {
    Form(members.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}
