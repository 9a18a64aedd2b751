//! The routes of a tenant's tokens, for its administrators.

use axum::{
    Json,
    http::{StatusCode, header},
    response::IntoResponse,
};
use flowcell_runtime::paging::{PAGE_BYTES, PageLimits};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    admin::tenants_as,
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::{Body, PathParam, QueryParams},
    page::{check_limit, fill_page},
};
use flowcell_platform::{
    identity::Scope,
    tenants::{TenantError, Tenants, token::TokenRow},
};

/// The default number of tokens in a page.
const DEFAULT_PAGE: usize = 100;
/// The maximum number of tokens in a page.
pub(crate) const MAX_PAGE: usize = 500;
/// The default lifetime of a token in milliseconds: 90 days.
const DEFAULT_LIFETIME_MS: u64 = 90 * DAY_MS;
/// The maximum lifetime of a token that is created over HTTP, in milliseconds: 365 days.
const MAX_LIFETIME_MS: u64 = 365 * DAY_MS;
const DAY_MS: u64 = 86_400_000;
/// The maximum number of characters of a token's note.
const MAX_NOTE_CHARS: usize = 200;
/// The maximum number of a tenant's tokens, with revoked and expired ones, above which none is created over HTTP.
const MAX_TOKENS: usize = 10_000;

/// A page of the list of tokens.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TokenQuery {
    /// The maximum number of tokens.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// A page of the tenant's tokens.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenPage {
    /// The tokens by id: `{ id, tenant, name, note, scopes, created, expires, lastUsed, warning?, revoked? }`. Never their
    /// secrets, which the store does not have.
    #[schema(value_type = Vec<Object>)]
    tokens: Vec<TokenRow>,
    /// The `cursor` of the next page; the last page has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A token to create.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TokenToCreate {
    /// A name, which no other valid token of the tenant has: 1 to 64 letters, digits, `-` and `_`.
    name: Option<String>,
    /// The scopes of the token. The caller's token needs each of them.
    #[schema(min_items = 1)]
    scopes: Vec<String>,
    /// The purpose of the token, at most 200 characters.
    #[serde(default)]
    #[schema(max_length = 200)]
    note: String,
    /// The lifetime in milliseconds, at most 365 days. Default: 90 days.
    #[schema(minimum = 1, maximum = 31_536_000_000_u64)]
    expires_in_ms: Option<u64>,
}

/// A new token with its secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedToken {
    /// Its id.
    id: String,
    /// The value for `Authorization: Bearer`. No other answer has it.
    token: String,
    /// The time when it expires, in milliseconds since 1970.
    expires: Option<u64>,
}

/// List the tokens of the tenant, without their secrets
#[utoipa::path(get, path = "/v1/tokens", tag = "tenant", operation_id = "list_tokens", params(TokenQuery),
    responses((status = 200, body = TokenPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(
    request: Request,
    QueryParams(TokenQuery { limit, cursor }): QueryParams<TokenQuery>,
) -> Result<Json<TokenPage>, ApiError> {
    let items = check_limit(limit, DEFAULT_PAGE, MAX_PAGE)?;
    let page = request.blocking(move |request| {
        let mut all = Tenants::of(&request.app.host).tokens(Some(request.tenant().as_str()))?;
        all.sort_by(|a, b| a.id.cmp(&b.id));
        let rest = all.into_iter().filter(|row| cursor.as_deref().is_none_or(|cursor| row.id.as_str() > cursor));
        let (tokens, next) = fill_page(rest, PageLimits { items, bytes: PAGE_BYTES }, |row| row.id.clone());
        Ok(TokenPage { tokens, next })
    });
    page.await.map(Json)
}

/// Create a token of the tenant, with at most the scopes of the caller's own
///
/// The answer alone has its secret. The audit log names the caller's token.
#[utoipa::path(post, path = "/v1/tokens", tag = "tenant", operation_id = "create_token", request_body = TokenToCreate,
    responses((status = 201, body = CreatedToken), (status = "default", body = ErrorBody)))]
pub(crate) async fn create(request: Request, Body(new): Body<TokenToCreate>) -> Result<impl IntoResponse, ApiError> {
    let TokenToCreate { name, scopes, note, expires_in_ms } = new;
    if !request.app.identity.asks_for_tokens() {
        let why = "this server asks for no tokens, because it has no tenants";
        return Err(ApiError::new(StatusCode::CONFLICT, "tenant_local", why));
    }
    if scopes.is_empty() {
        return Err(ApiError::bad_request("`scopes` must name at least one scope"));
    }
    let lasts = expires_in_ms.unwrap_or(DEFAULT_LIFETIME_MS);
    if !(1..=MAX_LIFETIME_MS).contains(&lasts) {
        return Err(ApiError::bad_request(format!("`expiresInMs` must be from 1 to {MAX_LIFETIME_MS} (365 days)")));
    }
    if note.chars().count() > MAX_NOTE_CHARS {
        return Err(ApiError::bad_request(format!("`note` may have at most {MAX_NOTE_CHARS} characters")));
    }
    let missing = scopes.iter().filter_map(|name| Scope::named(name)).find(|scope| !request.caller.scopes.has(*scope));
    if let Some(missing) = missing {
        return Err(ApiError::forbidden(missing));
    }
    let made = request.blocking(move |request| {
        let (tenants, tenant) = (tenants_as(request), request.tenant().as_str());
        if tenants.tokens(Some(tenant))?.len() >= MAX_TOKENS {
            let why =
                format!("the tenant has {MAX_TOKENS} tokens; an operator creates more with `flowcell token create`");
            return Err(ApiError::new(StatusCode::CONFLICT, "too_many_tokens", why));
        }
        Ok(tenants.create_named_token(tenant, name.as_deref().unwrap_or_default(), &scopes, &note, Some(lasts))?)
    });
    let made = made.await?;
    let place = format!("/v1/tokens/{}", made.id);
    let created = CreatedToken { id: made.id, token: made.token, expires: made.expires };
    let headers = [(header::LOCATION, place), (header::CACHE_CONTROL, "no-store".to_owned())];
    Ok((StatusCode::CREATED, headers, Json(created)))
}

/// Revoke a token of the tenant; the tokens that it has made by logins end with it
#[utoipa::path(delete, path = "/v1/tokens/{token}", tag = "tenant", operation_id = "revoke_token",
    params(("token" = String, Path,)),
    responses((status = 204, description = "revoked"), (status = "default", body = ErrorBody)))]
pub(crate) async fn revoke(request: Request, PathParam(id): PathParam<String>) -> Result<StatusCode, ApiError> {
    let revoke = move |request: &Request| {
        let tenants = tenants_as(request);
        // A token of another tenant does not exist for the caller.
        match tenants.tokens(Some(request.tenant().as_str()))?.iter().any(|row| row.id == id) {
            true => Ok(tenants.revoke_token(&id)?),
            false => Err(TenantError::UnknownToken(id).into()),
        }
    };
    request.blocking(revoke).await?;
    Ok(StatusCode::NO_CONTENT)
}
