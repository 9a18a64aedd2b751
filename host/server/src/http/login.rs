//! Logins of browsers: the routes that give a browser a token of its own in a cookie, and revoke it.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{AppendHeaders, IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    admin::tenants_as,
    api_error::{ApiError, ErrorBody},
    app::{App, Request, finish_detached},
    auth_rate_limiter::ClientAddr,
    identity::{AuthError, Scope},
    intake::Body,
    steer::Nothing,
};
use crate::blocking::blocking;
use flowcell_platform::tenants::login::{self, CodeError};

/// A login.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLogin {
    /// A one-time code of `flowcell console`, or a token.
    proof: String,
}

/// The token of a browser, which is in the cookie of the answer.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoginView {
    /// The lifetime of the token, in milliseconds.
    lasts_ms: u64,
}

/// Log a browser in with a one-time code or a token
///
/// The answer sets a cookie with a token of 12 hours, which counts below `/v1` and in the console. A code works once.
#[utoipa::path(post, path = "/v1/login", tag = "server", request_body = NewLogin,
    responses((status = 201, body = LoginView, headers(("set-cookie" = String))), (status = "default", body = ErrorBody)))]
pub(crate) async fn log_in(
    State(app): State<Arc<App>>,
    from: Option<Extension<ClientAddr>>,
    headers: HeaderMap,
    Body(NewLogin { proof }): Body<NewLogin>,
) -> Result<Response, ApiError> {
    let from: Option<IpAddr> = from.map(|Extension(ClientAddr(from))| from);
    finish_detached(async move {
        let identity = app.identity.clone();
        let look_up = async {
            let logging_in = blocking(move || identity.log_in(&proof));
            logging_in.await.unwrap_or(Err(AuthError::Unavailable))
        };
        let login = app.failures.limited(from, "token", look_up).await?;
        let cookie = app.cookie.set(&headers, &login.token, login.lasts);
        let cookie = cookie.ok_or_else(|| ApiError::internal("the token does not fit into a cookie"))?;
        let view = Json(LoginView { lasts_ms: login.lasts });
        Ok((StatusCode::CREATED, AppendHeaders([(header::SET_COOKIE, cookie)]), view).into_response())
    })
    .await
}

/// The scopes of a login.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCode {
    /// The scopes of the login. The caller's token needs each of them. By default all that it has.
    #[serde(default)]
    scopes: Vec<String>,
}

/// A one-time code for a login.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoginCode {
    /// The code. It works once.
    code: String,
    /// The page of the console that takes the code behind `#`, where no server and no log receives it.
    page: &'static str,
    /// The lifetime of the code in milliseconds.
    lasts_ms: u64,
}

/// Make a one-time code with which a browser logs in, with at most the scopes of the caller's token
///
/// The login ends with the caller's token. Only a token of a tenant makes codes, and not the login of a browser.
#[utoipa::path(post, path = "/v1/login-codes", tag = "tenant", operation_id = "create_login_code",
    request_body(content = NewCode, description = "optional"),
    responses((status = 201, body = LoginCode), (status = "default", body = ErrorBody)))]
pub(crate) async fn create_code(
    request: Request,
    Body(NewCode { scopes }): Body<NewCode>,
) -> Result<Response, ApiError> {
    if !request.app.identity.asks_for_tokens() {
        let why = "this server asks for no tokens, because it has no tenants";
        return Err(ApiError::new(StatusCode::CONFLICT, "tenant_local", why));
    }
    let missing = scopes.iter().filter_map(|name| Scope::named(name)).find(|scope| !request.caller.scopes.has(*scope));
    if let Some(missing) = missing {
        return Err(ApiError::forbidden(missing));
    }
    let made = request.blocking(move |request| {
        login::create_code_for(&tenants_as(request), &request.caller, &scopes).map_err(|error| match error {
            CodeError::NotAToken => ApiError::new(StatusCode::CONFLICT, "conflict", error),
            CodeError::NoScopes => ApiError::new(StatusCode::FORBIDDEN, "forbidden", error),
            CodeError::TooMany => ApiError::busy("too_many_requests", error),
            CodeError::Tenant(error) => error.into(),
        })
    });
    let view = LoginCode { code: made.await?, page: "/console/login", lasts_ms: login::CODE_LIFETIME_MS };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(view)).into_response())
}

/// Log a browser out: revoke the token in its cookie, and remove the cookie
#[utoipa::path(post, path = "/v1/logout", tag = "server",
    request_body(content = Nothing, description = "optional"),
    responses((status = 204, description = "logged out", headers(("set-cookie" = String))),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn log_out(
    State(app): State<Arc<App>>,
    uri: Uri,
    headers: HeaderMap,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Response, ApiError> {
    let token = app.cookie.token(uri.path(), &headers).map(str::to_owned);
    let cookie = app.cookie.set(&headers, "", 0);
    finish_detached(async move {
        let identity = app.identity.clone();
        let logging_out = blocking(move || match token.map(|token| identity.identify(Some(&token))) {
            Some(Ok(caller)) => identity.log_out(&caller),
            Some(Err(AuthError::Unavailable)) => Err(AuthError::Unavailable),
            // The token is not valid any more.
            Some(Err(_)) | None => Ok(()),
        });
        logging_out.await.map_err(ApiError::internal)??;
        let cookie = AppendHeaders(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
        Ok((StatusCode::NO_CONTENT, cookie).into_response())
    })
    .await
}
