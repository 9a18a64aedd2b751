//! Logins of browsers and of commands: the routes that give a client a token of its own, and revoke it.

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
    identity::{AuthError, Identify, Login, LoginClient, Scope},
    intake::Body,
    machines,
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
    finish_detached(async move {
        let login = exchange(&app, from, move |identity| identity.log_in(&proof, LoginClient::Browser)).await?;
        let cookie = app.cookie.set(&headers, &login.token, login.lasts);
        let cookie = cookie.ok_or_else(|| ApiError::internal("the token does not fit into a cookie"))?;
        let view = Json(LoginView { lasts_ms: login.lasts });
        Ok((StatusCode::CREATED, AppendHeaders([(header::SET_COOKIE, cookie)]), view).into_response())
    })
    .await
}

/// Exchanges the proof of a client. A wrong one counts as an unknown token of its address.
async fn exchange(
    app: &App,
    from: Option<Extension<ClientAddr>>,
    log_in: impl FnOnce(&dyn Identify) -> Result<Login, AuthError> + Send + 'static,
) -> Result<Login, ApiError> {
    let from: Option<IpAddr> = from.map(|Extension(ClientAddr(from))| from);
    let identity = app.identity.clone();
    let look_up = async {
        let logging_in = blocking(move || log_in(&*identity));
        logging_in.await.unwrap_or(Err(AuthError::Unavailable))
    };
    app.failures.limited(from, "token", look_up).await
}

/// The login of a command.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCommandLogin {
    /// A code that was made with a `challenge`, or a token of the operator.
    proof: String,
    /// The verifier of the code's challenge (RFC 7636). A token has none.
    verifier: Option<String>,
}

/// The token of a command.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandLoginView {
    /// The value for `Authorization: Bearer`. No other answer has it.
    token: String,
    /// The lifetime of the token, in milliseconds.
    lasts_ms: u64,
}

/// Log a command in with a one-time code and its verifier, or with a token
///
/// The answer has a token of at most 12 hours, with at most the rights of the code or the token, which ends with it. A code works
/// once: a wrong verifier uses it up, too. `flowcell login` asks this.
#[utoipa::path(post, path = "/v1/login-tokens", tag = "server", operation_id = "log_in_command",
    request_body = NewCommandLogin,
    responses((status = 201, body = CommandLoginView), (status = "default", body = ErrorBody)))]
pub(crate) async fn log_in_command(
    State(app): State<Arc<App>>,
    from: Option<Extension<ClientAddr>>,
    Body(NewCommandLogin { proof, verifier }): Body<NewCommandLogin>,
) -> Result<Response, ApiError> {
    finish_detached(async move {
        let log_in = move |identity: &dyn Identify| {
            identity.log_in(&proof, LoginClient::Command { verifier: verifier.as_deref() })
        };
        let Login { token, lasts } = exchange(&app, from, log_in).await?;
        let view = Json(CommandLoginView { token, lasts_ms: lasts });
        Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], view).into_response())
    })
    .await
}

/// A code to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCode {
    /// The scopes of the login. The caller's token needs each of them. By default all that it has.
    #[serde(default)]
    scopes: Vec<String>,
    /// The challenge of a command, by the method S256 of PKCE (RFC 7636): the command alone can use the code, at
    /// `POST /v1/login-tokens`. By default the code is one of a browser.
    #[schema(min_length = 43, max_length = 43)]
    challenge: Option<String>,
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

/// Make a one-time code with which a browser or a command logs in, with at most the scopes of the caller's token
///
/// The login ends with the caller's token. A token of a tenant and the login of a command make codes. The login of a browser
/// makes only codes of commands, whose logins go on if the browser logs out, and end no later than its own.
#[utoipa::path(post, path = "/v1/login-codes", tag = "tenant", operation_id = "create_login_code",
    request_body(content = NewCode, description = "optional"),
    responses((status = 201, body = LoginCode), (status = "default", body = ErrorBody)))]
pub(crate) async fn create_code(
    request: Request,
    Body(NewCode { scopes, challenge }): Body<NewCode>,
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
        let made = login::create_code_for(&tenants_as(request), &request.caller, &scopes, challenge.as_deref());
        made.map_err(|error| match error {
            CodeError::Challenge => ApiError::bad_request(error),
            CodeError::NotAToken | CodeError::TooDeep => ApiError::new(StatusCode::CONFLICT, "conflict", error),
            CodeError::NoScopes => ApiError::new(StatusCode::FORBIDDEN, "forbidden", error),
            CodeError::TooMany => ApiError::busy("too_many_requests", error),
            CodeError::Tenant(error) => error.into(),
        })
    });
    let view = LoginCode { code: made.await?, page: "/console/login", lasts_ms: login::CODE_LIFETIME_MS };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(view)).into_response())
}

/// Log a client out: revoke the token of its login, and remove the cookie
///
/// A command sends its token as `Authorization: Bearer`. A token that is not one of a login, such as that of a machine, gets
/// 409 `conflict` and stays valid. One that is not valid any more gets 204.
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
    let token = app.cookie.credential(uri.path(), &headers).map(str::to_owned);
    let cookie = app.cookie.set(&headers, "", 0);
    finish_detached(async move {
        let (identity, has_issuers) = (app.identity.clone(), app.sign_ins.is_some());
        let logging_out = blocking(move || match token {
            None => Ok(true),
            // The server cannot end the token of an issuer.
            Some(token) if has_issuers && machines::is_issued(&token) => Ok(false),
            Some(token) => match identity.identify(Some(&token)) {
                Ok(caller) => identity.log_out(&caller),
                Err(AuthError::Unavailable) => Err(AuthError::Unavailable),
                // The token is not valid any more.
                Err(_) => Ok(true),
            },
        });
        if !logging_out.await.map_err(ApiError::internal)?? {
            let why = "nothing was revoked: the token is not one of a login, and goes on; its owner or an operator ends it \
                       with `flowcell token revoke`, and the token of a machine ends by itself";
            return Err(ApiError::new(StatusCode::CONFLICT, "conflict", why));
        }
        let cookie = AppendHeaders(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
        Ok((StatusCode::NO_CONTENT, cookie).into_response())
    })
    .await
}
