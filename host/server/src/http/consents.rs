//! Consents for credentials: the routes that send the browser of a person to an authorization server, and take its code.

use axum::{
    Extension, Json,
    http::{HeaderMap, StatusCode, header},
    response::{AppendHeaders, IntoResponse, Response},
};
use flowcell_platform::{
    consent::{self, CONSENT_LIFETIME_MS, ConsentError, ConsentReturn},
    vault::Hidden,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    cookie::{OverTls, origin_of},
    intake::{Body, PathParam},
    steer::Nothing,
};

/// Maximum length of a text that an authorization server has sent.
const MAX_SENT_BYTES: usize = 4_096;

/// A consent that has begun.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsentView {
    /// The page of the authorization server that the browser opens.
    location: String,
    /// The time for the consent, in milliseconds.
    lasts_ms: u64,
}

/// What the authorization server has sent the browser back with.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ConsentReturned {
    /// The `state`.
    state: String,
    /// The `code`.
    #[schema(value_type = Option<String>)]
    code: Option<Hidden>,
    /// The `error`.
    error: Option<String>,
    /// The `error_description`.
    error_description: Option<String>,
}

/// A credential that was connected.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConnectedView {
    /// The name of the credential.
    credential: String,
}

/// Begin to connect a credential: the page of its authorization server, where a person consents
///
/// The console asks this. The credential needs the grant `authorization_code`. The answer sets a signed cookie of 10
/// minutes for `/console/connect`. The authorization server sends the browser back to `/console/connect/callback` at the
/// address by which it has reached this server. The consent ends in the login in which it has begun.
#[utoipa::path(post, path = "/v1/credentials/{name}/connect", tag = "secrets", operation_id = "begin_consent",
    params(("name" = String, Path,)), request_body(content = Nothing, description = "optional"),
    responses((status = 201, body = ConsentView, headers(("set-cookie" = String))),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn begin(
    request: Request,
    over_tls: Option<Extension<OverTls>>,
    headers: HeaderMap,
    PathParam(name): PathParam<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Response, ApiError> {
    let origin = origin_of(&headers, over_tls.map(|Extension(over_tls)| over_tls));
    let begin = move |request: &Request| Ok(consent::begin(&request.host, request.actor(), &name, &origin)?);
    let app = request.app.clone();
    let begun = request.blocking(begin).await?;
    let cookie = app.cookie.set_consent(&headers, &begun.cookie, CONSENT_LIFETIME_MS);
    let cookie = cookie.ok_or_else(|| ApiError::internal("the consent does not fit into a cookie"))?;
    let view = Json(ConsentView { location: begun.location, lasts_ms: CONSENT_LIFETIME_MS });
    let cookie = AppendHeaders([(header::SET_COOKIE, cookie)]);
    Ok((StatusCode::CREATED, cookie, [(header::CACHE_CONTROL, "no-store")], view).into_response())
}

/// Connect a credential with the code of its authorization server
///
/// The page `/console/connect/finish` asks this, with the cookie of the consent and the login that has begun it. The token
/// is stored before the answer. A consent is finished once, whether it succeeds or not.
#[utoipa::path(post, path = "/v1/connect/callback", tag = "secrets", operation_id = "finish_consent",
    request_body = ConsentReturned,
    responses((status = 200, body = ConnectedView, headers(("set-cookie" = String))),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn finish(
    request: Request,
    headers: HeaderMap,
    Body(ConsentReturned { state, code, error, error_description }): Body<ConsentReturned>,
) -> Result<Response, ApiError> {
    let sent = [Some(&*state), code.as_ref().map(Hidden::text), error.as_deref(), error_description.as_deref()];
    if sent.iter().flatten().any(|sent| sent.len() > MAX_SENT_BYTES) {
        let why = format!("`state`, `code`, `error` and `errorDescription` have at most {MAX_SENT_BYTES} bytes");
        return Err(ApiError::bad_request(why));
    }
    let cookie = request.app.cookie.consent(&headers).map(str::to_owned);
    let app = request.app.clone();
    let finish = move |request: &Request| {
        let returned = ConsentReturn { state, code, error, error_description };
        Ok(consent::finish(&request.host, request.actor(), cookie.as_deref(), returned)?)
    };
    let credential = request.blocking(finish).await?;
    let ended = AppendHeaders(app.cookie.set_consent(&headers, "", 0).map(|cookie| (header::SET_COOKIE, cookie)));
    Ok((StatusCode::OK, ended, Json(ConnectedView { credential })).into_response())
}

impl From<ConsentError> for ApiError {
    fn from(error: ConsentError) -> ApiError {
        match error {
            ConsentError::State(_) => ApiError::new(StatusCode::BAD_REQUEST, "consent_state", error),
            ConsentError::Vault(error) => error.into(),
        }
    }
}
