//! Routes that set, list and remove the tenant's credentials. No route returns their secrets.

use axum::{Json, http::StatusCode};
use flowcell_platform::{
    tenants::operation::credential::{self, CredentialToSet},
    vault::{CredentialRow, Hidden, TokenRow},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::{Body, PathParam},
};

/// A credential, without its secrets.
#[derive(Serialize, ToSchema)]
pub(crate) struct CredentialView {
    name: String,
    /// The kind: `bearer`, `basic`, `apiKey`, `oauth2`, `hmac` or `sigv4`.
    kind: String,
    /// The settings of the kind.
    #[schema(value_type = Object)]
    settings: serde_json::Map<String, serde_json::Value>,
    /// The servers that may receive the credential.
    #[serde(rename = "for")]
    origins: Vec<String>,
    /// The number of times that the credential was set.
    version: u64,
    /// The time when the credential was first set, in milliseconds since 1970.
    created: u64,
    /// The time when the credential was last set, in milliseconds since 1970.
    updated: u64,
    /// The state of the tokens, for the kind `oauth2`. The answer to `PUT` has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    token: Option<TokenView>,
}

/// The state of the tokens of a credential, without them.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TokenView {
    /// True if there is an access token.
    exists: bool,
    /// The time in milliseconds since 1970 at which the host renews it. Missing: when a server refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    renew_at: Option<u64>,
    /// The time in milliseconds since 1970 at which the host can no longer renew it, and a person connects the credential
    /// again. Missing: it has no end, or the server has named none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expires: Option<u64>,
    /// The reason why the last renewal failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failure: Option<String>,
    /// The time in milliseconds since 1970 since when renewals fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    failed_since: Option<u64>,
}

impl From<TokenRow> for TokenView {
    fn from(row: TokenRow) -> TokenView {
        let TokenRow { exists, renew_at, expires, failure, failed_since } = row;
        TokenView { exists, renew_at, expires, failure, failed_since }
    }
}

/// All credentials of the tenant.
#[derive(Serialize, ToSchema)]
pub(crate) struct CredentialList {
    /// The credentials by name.
    credentials: Vec<CredentialView>,
}

/// A credential to set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCredential {
    /// The kind: `bearer`, `basic`, `apiKey`, `oauth2`, `hmac` or `sigv4`.
    kind: String,
    /// The settings of the kind, which may be shown.
    #[serde(default)]
    #[schema(value_type = Object)]
    settings: serde_json::Map<String, serde_json::Value>,
    /// The secrets of the kind, by their names: 8 bytes to 16 KiB each. No route shows them.
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    secrets: std::collections::BTreeMap<String, Hidden>,
    /// The servers that may receive the credential, such as `https://api.example.com`.
    #[serde(rename = "for")]
    origins: Vec<String>,
}

impl From<CredentialRow> for CredentialView {
    fn from(row: CredentialRow) -> CredentialView {
        let CredentialRow { name, mut settings, origins, version, created, updated, token } = row;
        let kind = settings.remove("kind").and_then(|kind| Some(kind.as_str()?.to_owned())).unwrap_or_default();
        CredentialView { name, kind, settings, origins, version, created, updated, token: token.map(TokenView::from) }
    }
}

/// List the credentials, without their secrets
#[utoipa::path(get, path = "/v1/credentials", tag = "secrets",
    responses((status = 200, body = CredentialList), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(request: Request) -> Result<Json<CredentialList>, ApiError> {
    let rows = request.blocking(|request| Ok(request.host.vault().list_credentials(request.tenant())?)).await?;
    Ok(Json(CredentialList { credentials: rows.into_iter().map(CredentialView::from).collect() }))
}

/// Show the settings of a credential and the state of its token, without its secrets
#[utoipa::path(get, path = "/v1/credentials/{name}", tag = "secrets", params(("name" = String, Path,)),
    responses((status = 200, body = CredentialView), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(
    request: Request,
    PathParam(name): PathParam<String>,
) -> Result<Json<CredentialView>, ApiError> {
    let show = move |request: &Request| Ok(credential::show(&request.host, &name)?);
    Ok(Json(request.blocking(show).await?.into()))
}

/// Create a credential, or replace it with its token
#[utoipa::path(put, path = "/v1/credentials/{name}", tag = "secrets", params(("name" = String, Path,)),
    request_body = NewCredential,
    responses((status = 200, body = CredentialView), (status = "default", body = ErrorBody)))]
pub(crate) async fn set(
    request: Request,
    PathParam(name): PathParam<String>,
    Body(NewCredential { kind, settings, secrets, origins }): Body<NewCredential>,
) -> Result<Json<CredentialView>, ApiError> {
    let set = move |request: &Request| {
        let to = CredentialToSet { kind, settings, secrets, origins };
        Ok(credential::set(&request.host, request.actor(), &name, &to)?)
    };
    Ok(Json(request.blocking(set).await?.into()))
}

/// Remove a credential with its token; nodes with a grant for it then fail
#[utoipa::path(delete, path = "/v1/credentials/{name}", tag = "secrets", params(("name" = String, Path,)),
    responses((status = 204, description = "removed"), (status = "default", body = ErrorBody)))]
pub(crate) async fn remove(request: Request, PathParam(name): PathParam<String>) -> Result<StatusCode, ApiError> {
    let remove = move |request: &Request| {
        Ok(request.host.vault().remove_credential(request.tenant(), request.actor(), &name)?)
    };
    request.blocking(remove).await?;
    Ok(StatusCode::NO_CONTENT)
}
