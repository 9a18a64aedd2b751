//! The forms that a browser sends.

use axum::{
    extract::{FromRequest, Request},
    http::{StatusCode, header},
};
use flowcell_server::api::{Api, Refusal};
use url::form_urlencoded;

use crate::frame::Failure;

/// Maximum size of a form in bytes.
pub const MAX_FORM_BYTES: usize = 64 << 10;

/// The members of a form, in the order in which the browser sends them.
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Returns the value of a member, without the line breaks of the HTTP form.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Form {
    /// Returns all values of a member that a form may have several times.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }
}

impl FromRequest<Api> for Form {
    type Rejection = Failure;

    async fn from_request(request: Request, api: &Api) -> Result<Form, Failure> {
        let place = request.uri().path().to_owned();
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded") {
            let why = "the console takes forms of its own pages; programs send JSON to `/v1`";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", why).into());
        }
        let bytes = api.read_body(request, MAX_FORM_BYTES).await.map_err(|refusal| match refusal.code.as_str() {
            "too_large" => {
                let why = format!("a form may have at most {MAX_FORM_BYTES} bytes; send larger inputs to `/v1`");
                Refusal { message: why, ..refusal }
            }
            _ => refusal,
        });
        let bytes = bytes.map_err(|refusal| Failure::at(&place, refusal))?;
        let value = |value: &str| value.replace("\r\n", "\n");
        Ok(Form(form_urlencoded::parse(&bytes).map(|(key, text)| (key.into_owned(), value(&text))).collect()))
    }
}

/// Returns a form with these members.
#[cfg(test)]
pub(crate) fn form_of(members: &[(&str, &str)]) -> Form {
    Form(members.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}
