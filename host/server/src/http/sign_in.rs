//! Sign-in by OpenID Connect: the routes that begin a sign-in of a browser at an issuer, and finish it.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{AppendHeaders, IntoResponse, Response},
};
use flowcell_platform::{
    account::AccountRefusal,
    sign_in::{Callback, PENDING_LIFETIME_MS, SignInError, SignIns},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::{App, finish_detached},
    auth_rate_limiter::ClientAddr,
    cookie::{OverTls, origin_of},
    intake::Body,
    sign_in_limiter::WINDOW,
};

/// The `Retry-After` while an issuer cannot be used, in seconds.
const RETRY_AFTER_ISSUER_SECONDS: u32 = 5;
/// Maximum length of a text that an issuer has sent.
const MAX_SENT_BYTES: usize = 4_096;

/// An issuer that people may sign in with.
#[derive(Serialize, ToSchema)]
pub(crate) struct IssuerView {
    /// Its name, for `POST /v1/sign-in`.
    name: String,
    /// Its text on the login page.
    title: String,
}

/// The issuers of the server.
#[derive(Serialize, ToSchema)]
pub(crate) struct IssuerList {
    /// The issuers, in the order of the operator's file. Empty if the server has none.
    issuers: Vec<IssuerView>,
}

/// A sign-in to begin.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSignIn {
    /// The name of the issuer.
    issuer: String,
    /// The page of the console to open afterwards, at most 512 bytes: a path below `/console`. Anything else is left out.
    #[serde(default)]
    next: String,
}

/// A sign-in that has begun.
#[derive(Serialize, ToSchema)]
pub(crate) struct SignInBegun {
    /// The page of the issuer that the browser opens.
    location: String,
}

/// What the issuer has sent the browser back with.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignInReturn {
    /// The `state`.
    state: String,
    /// The `code`.
    code: Option<String>,
    /// The `iss`.
    iss: Option<String>,
    /// The `error`.
    error: Option<String>,
}

/// A finished sign-in. The token of the browser is in the cookie of the answer.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SignedInView {
    /// The lifetime of the session, in milliseconds.
    lasts_ms: u64,
    /// The page of the console to open. Empty: the first one.
    next: String,
}

/// List the issuers that people may sign in with
#[utoipa::path(get, path = "/v1/sign-in", tag = "server", operation_id = "list_issuers",
    responses((status = 200, body = IssuerList), (status = "default", body = ErrorBody)))]
pub(crate) async fn issuers(State(app): State<Arc<App>>) -> Json<IssuerList> {
    let all = app.sign_ins.as_ref().map(SignIns::issuers).unwrap_or_default();
    Json(IssuerList { issuers: all.into_iter().map(|(name, title)| IssuerView { name, title }).collect() })
}

/// Begin a sign-in at an issuer
///
/// The page `/console/sign-in/{name}` asks this. The answer has the page of the issuer, and sets a signed cookie of 10 minutes
/// for `/console/sign-in/callback`, to which the issuer sends the browser back. The `Host` must be one of the `origins` in
/// the operator's file.
#[utoipa::path(post, path = "/v1/sign-in", tag = "server", operation_id = "begin_sign_in", request_body = NewSignIn,
    responses((status = 201, body = SignInBegun, headers(("set-cookie" = String))),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn begin(
    State(app): State<Arc<App>>,
    over_tls: Option<Extension<OverTls>>,
    headers: HeaderMap,
    Body(NewSignIn { issuer, next }): Body<NewSignIn>,
) -> Result<Response, ApiError> {
    let sign_ins = app.sign_ins.clone().ok_or(SignInError::UnknownIssuer)?;
    let begun =
        sign_ins.begin(&issuer, &origin_of(&headers, over_tls.map(|Extension(over_tls)| over_tls)), &next).await?;
    let cookie = app.cookie.set_sign_in(&headers, &begun.cookie, PENDING_LIFETIME_MS);
    let cookie = cookie.ok_or_else(|| ApiError::internal("the sign-in does not fit into a cookie"))?;
    let view = Json(SignInBegun { location: begun.location });
    let cookie = AppendHeaders([(header::SET_COOKIE, cookie)]);
    Ok((StatusCode::CREATED, cookie, [(header::CACHE_CONTROL, "no-store")], view).into_response())
}

/// Finish a sign-in: exchange the code of the issuer for a session
///
/// The page `/console/sign-in/callback` asks this, with the cookie of the sign-in. The answer sets a cookie with a token, as
/// `POST /v1/login`. A sign-in is finished once, whether it succeeds or not.
#[utoipa::path(post, path = "/v1/sign-in/callback", tag = "server", operation_id = "finish_sign_in",
    request_body = SignInReturn,
    responses((status = 201, body = SignedInView, headers(("set-cookie" = String))),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn finish(
    State(app): State<Arc<App>>,
    from: Option<Extension<ClientAddr>>,
    headers: HeaderMap,
    Body(SignInReturn { state, code, iss, error }): Body<SignInReturn>,
) -> Result<Response, ApiError> {
    let sign_ins = app.sign_ins.clone().ok_or(SignInError::UnknownIssuer)?;
    if [Some(&state), code.as_ref(), iss.as_ref(), error.as_ref()]
        .iter()
        .flatten()
        .any(|sent| sent.len() > MAX_SENT_BYTES)
    {
        let why = format!("`state`, `code`, `iss` and `error` have at most {MAX_SENT_BYTES} bytes");
        return Err(ApiError::bad_request(why));
    }
    let cookie = app.cookie.sign_in(&headers).map(str::to_owned);
    let returned = sign_ins.open_callback(cookie, Callback { state, code, iss, error }).await?;
    if let Some(Extension(ClientAddr(from))) = from
        && !app.returns.count(from, Instant::now())
    {
        let seconds = WINDOW.as_secs() as u32;
        let why = format!("too many sign-ins came from this address; sign in again in {seconds} s");
        return Err(ApiError::busy("too_many_sign_ins", why).with_retry_after(seconds));
    }
    // The session is made, and its audit entry written, also if the browser leaves meanwhile.
    finish_detached(async move {
        let signed_in = sign_ins.finish(returned).await?;
        let login = signed_in.login;
        let cookies = [app.cookie.set(&headers, &login.token, login.lasts), app.cookie.set_sign_in(&headers, "", 0)];
        let [Some(session), Some(ended)] = cookies else {
            return Err(ApiError::internal("the token does not fit into a cookie"));
        };
        let view = Json(SignedInView { lasts_ms: login.lasts, next: signed_in.next });
        let cookies = AppendHeaders([(header::SET_COOKIE, session), (header::SET_COOKIE, ended)]);
        Ok((StatusCode::CREATED, cookies, [(header::CACHE_CONTROL, "no-store")], view).into_response())
    })
    .await
}

impl From<SignInError> for ApiError {
    fn from(error: SignInError) -> ApiError {
        let of = |status, code| ApiError::new(status, code, &error);
        let away = || of(StatusCode::SERVICE_UNAVAILABLE, error.code()).with_retry_after(RETRY_AFTER_ISSUER_SECONDS);
        match &error {
            SignInError::UnknownIssuer => of(StatusCode::NOT_FOUND, "issuer_not_found"),
            SignInError::Origin(..) => of(StatusCode::FORBIDDEN, "sign_in_origin"),
            SignInError::State(_) => of(StatusCode::BAD_REQUEST, "sign_in_state"),
            SignInError::Refused { .. } => of(StatusCode::FORBIDDEN, "sign_in_refused"),
            SignInError::Account(refusal) => match refusal {
                AccountRefusal::Disabled(_) => of(StatusCode::FORBIDDEN, "account_disabled"),
                AccountRefusal::TenantDisabled(_) | AccountRefusal::TenantUnknown(_) => {
                    of(StatusCode::FORBIDDEN, "sign_in_refused")
                }
                AccountRefusal::TooMany(_) => of(StatusCode::CONFLICT, "too_many_accounts"),
                AccountRefusal::Unavailable => away(),
            },
            SignInError::Unavailable { .. } | SignInError::Store => away(),
        }
    }
}
