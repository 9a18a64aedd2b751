//! The API of a server for pages in the same process. A page asks the routes that answer clients, with the token of its
//! browser. So scopes, tenants, limits and the audit log are in one place.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, Bytes, HttpBody, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::Response,
};
use flowcell_engine::FairSemaphore;
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    blocking::blocking,
    http::{
        api_error::ApiError,
        auth_rate_limiter::ClientAddr,
        cookie::{OverTls, X_FORWARDED_PROTO},
        intake::read_body,
        permit::RequestPermit,
    },
};

/// Maximum size in bytes of an answer that a page reads.
pub const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Maximum size in bytes of all texts that pages send, in memory. A [`FairSemaphore`] divides it among tenants. It is
/// not the memory of the requests to the API, for which a page waits while it holds its text.
pub(crate) const MAX_TEXTS_BYTES: u64 = 64 << 20;

/// The headers of the page's request that the API sees.
const PASSED_ON: [header::HeaderName; 5] =
    [header::AUTHORIZATION, header::COOKIE, header::FORWARDED, header::HOST, X_FORWARDED_PROTO];

/// The API of a server. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    router: Router,
    /// Permits for the bytes of texts that pages send.
    texts: FairSemaphore,
}

/// A text that a page has sent, with the permit for its bytes.
pub struct SentText {
    /// The bytes.
    pub bytes: Bytes,
    _permit: Arc<RequestPermit>,
}

/// The answer to a request that succeeded.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body. `null` if it is empty.
    pub body: Value,
}

/// The answer to a request that did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// The stable code of the error.
    pub code: String,
    /// The reason, for people.
    pub message: String,
    /// Further data for programs. `null` if there are none.
    pub details: Value,
}

/// Returns whether the browser of a page came over TLS to this server, or to a trusted proxy.
pub fn is_over_tls(page: &Parts) -> bool {
    page.extensions.get::<OverTls>().is_some()
}

/// Does work that takes long on a thread that no request waits for. Returns `None` if the work has panicked.
pub async fn computed<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    blocking(work).await.ok()
}

impl Refusal {
    /// Creates a refusal without details.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Refusal {
        Refusal { status, code: code.to_owned(), message: message.into(), details: Value::Null }
    }
}

impl Api {
    pub(crate) fn new(router: Router) -> Api {
        Api { router, texts: FairSemaphore::new(MAX_TEXTS_BYTES) }
    }

    /// Reads from the API, for the request of a page.
    pub async fn get(&self, page: &Parts, path: &str) -> Result<Value, Refusal> {
        Ok(self.call(page, Method::GET, path, None).await?.body)
    }

    /// Sends a request to the API, for the request of a page.
    pub async fn call(
        &self,
        page: &Parts,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, Refusal> {
        self.send(page, method, path, body, None).await
    }

    /// Posts to the API with an `Idempotency-Key`, for the request of a page.
    pub async fn post_once(&self, page: &Parts, path: &str, body: &Value, key: &str) -> Result<Answer, Refusal> {
        self.send(page, Method::POST, path, Some(body), Some(key)).await
    }

    async fn send(
        &self,
        page: &Parts,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<Answer, Refusal> {
        let broken = |why: String| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why);
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path).body(Body::from(text)).map_err(|error| {
            Refusal::new(StatusCode::BAD_REQUEST, "bad_request", format!("the path `{path}` is not valid: {error}"))
        })?;
        if let Some(key) = key {
            let value = HeaderValue::from_str(key).map_err(|error| {
                let why = format!("the `Idempotency-Key` `{}` is not valid: {error}", key.escape_debug());
                Refusal::new(StatusCode::BAD_REQUEST, "bad_request", why)
            })?;
            request.headers_mut().insert("idempotency-key", value);
        }
        let extensions = request.extensions_mut();
        page.extensions.get::<ClientAddr>().map(|from| extensions.insert(*from));
        page.extensions.get::<OverTls>().map(|over_tls| extensions.insert(*over_tls));
        for name in &PASSED_ON {
            page.headers.get_all(name).iter().for_each(|value| _ = request.headers_mut().append(name, value.clone()));
        }
        let response = self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        read_answer(response).await.map_err(broken)?
    }

    /// Reads the body of a page's request, at most `most` bytes, in the time that the server allows.
    pub async fn read_body(&self, request: Request, most: usize) -> Result<Bytes, Refusal> {
        read_body(request, most).await.map_err(refusal)
    }

    /// Reads the large body of a page's request, once the token of the browser is known and its tenant has room for the
    /// bytes.
    pub async fn read_text(&self, request: Request, most: usize) -> Result<SentText, Refusal> {
        let (parts, body) = request.into_parts();
        let me = self.get(&parts, "/v1/me").await?;
        let tenant = me["tenant"].as_str().unwrap_or_default();
        let permit = RequestPermit::new(None, self.texts.clone(), tenant.into());
        let mut request = Request::from_parts(parts, body);
        request.extensions_mut().insert(permit.clone());
        let bytes = read_body(request, most).await.map_err(refusal)?;
        Ok(SentText { bytes, _permit: permit })
    }
}

fn refusal(error: ApiError) -> Refusal {
    let (status, code, message) = error.into_parts();
    Refusal::new(status, code, message)
}

async fn read_answer(response: Response) -> Result<Result<Answer, Refusal>, String> {
    let (parts, body) = response.into_parts();
    if body.size_hint().lower() > MAX_ANSWER_BYTES as u64 {
        let why = format!("the answer has {} bytes; a page shows at most {MAX_ANSWER_BYTES}", body.size_hint().lower());
        return Ok(Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)));
    }
    let bytes = to_bytes(body, MAX_ANSWER_BYTES).await.map_err(|error| error.to_string())?;
    let body = match bytes.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&bytes).map_err(|error| error.to_string())?,
    };
    if parts.status.is_success() {
        return Ok(Ok(Answer { status: parts.status, headers: parts.headers, body }));
    }
    let text = |key: &str| body["error"][key].as_str().unwrap_or_default().to_owned();
    let (code, message, details) = (text("code"), text("message"), body["error"]["details"].clone());
    Ok(Err(Refusal { status: parts.status, code, message, details }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use axum::Json;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_key_that_does_not_fit_into_a_header_is_refused() {
        let echo = |headers: HeaderMap| async move {
            Json(headers.get("idempotency-key").map(|key| key.to_str().unwrap_or_default().to_owned()))
        };
        let api = Api::new(Router::new().fallback(echo));
        let page = Request::new(Body::empty()).into_parts().0;
        let sent = api.post_once(&page, "/", &json!({}), "k").await.unwrap();
        assert_eq!(sent.body, "k");
        for key in ["k\n", "\0", "a\r\nb: c"] {
            let refused = api.post_once(&page, "/", &json!({}), key).await.unwrap_err();
            assert_eq!((refused.status, &*refused.code), (StatusCode::BAD_REQUEST, "bad_request"), "{key:?}");
        }
    }
}
