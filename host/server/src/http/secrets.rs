//! Routes that set, list and remove the tenant's secrets. No route returns their values.

use axum::{Json, http::StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::{Body, PathParam},
};
use flowcell_platform::{
    operate::documents::DocumentError,
    vault::{Hidden, SecretRow, VaultError},
};

/// A secret, without its value.
#[derive(Serialize, ToSchema)]
pub(crate) struct SecretView {
    name: String,
    /// The servers that may receive the secret, or `webhook` alone for the key of a trigger.
    #[serde(rename = "for")]
    origins: Vec<String>,
    /// The number of times that the secret was set.
    version: u64,
    /// The time when the secret was first set, in milliseconds since 1970.
    created: u64,
    /// The time when the secret was last set, in milliseconds since 1970.
    updated: u64,
    /// The time when the server that issued the secret ends it, in milliseconds since 1970. The host still sends it then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expires: Option<u64>,
}

impl From<SecretRow> for SecretView {
    fn from(row: SecretRow) -> SecretView {
        let SecretRow { name, origins, version, created, updated, expires } = row;
        SecretView { name, origins, version, created, updated, expires }
    }
}

/// All secrets of the tenant.
#[derive(Serialize, ToSchema)]
pub(crate) struct SecretList {
    /// The secrets by name.
    secrets: Vec<SecretView>,
}

/// A secret to set.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewSecret {
    /// The value: 8 bytes to 64 KiB. No route shows it.
    // A schema counts characters, and 2 characters may have 8 bytes.
    #[schema(value_type = String, min_length = 2, max_length = 65536)]
    value: Hidden,
    /// The servers that may receive the secret, such as `https://api.example.com`, or `webhook` alone for the key of a trigger.
    #[serde(rename = "for", default)]
    origins: Vec<String>,
    /// The time in milliseconds after which the server that issued the secret ends it, at most 365 days. Default: no end.
    #[schema(minimum = 1, maximum = 31_536_000_000_u64)]
    expires_in_ms: Option<u64>,
}

impl From<VaultError> for ApiError {
    fn from(error: VaultError) -> ApiError {
        let status = match &error {
            VaultError::Unknown(_) | VaultError::UnknownCredential(_) => StatusCode::NOT_FOUND,
            VaultError::Name
            | VaultError::Value
            | VaultError::Header(_)
            | VaultError::Origins(_)
            | VaultError::Lifetime
            | VaultError::Credential(_)
            | VaultError::NotConnected(_) => StatusCode::UNPROCESSABLE_ENTITY,
            VaultError::Changed(_)
            | VaultError::Document(DocumentError::Changed(_))
            | VaultError::TooMany
            | VaultError::TooManyCredentials => StatusCode::CONFLICT,
            _ => return ApiError::internal(error),
        };
        ApiError::new(status, error.code(), error)
    }
}

/// List the secrets, without their values
#[utoipa::path(get, path = "/v1/secrets", tag = "secrets",
    responses((status = 200, body = SecretList), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(request: Request) -> Result<Json<SecretList>, ApiError> {
    let rows = request.blocking(|request| Ok(request.host.vault().list(request.tenant())?)).await?;
    Ok(Json(SecretList { secrets: rows.into_iter().map(SecretView::from).collect() }))
}

/// Show the servers of a secret and the times when it was set, without its value
#[utoipa::path(get, path = "/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path,)),
    responses((status = 200, body = SecretView), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(request: Request, PathParam(name): PathParam<String>) -> Result<Json<SecretView>, ApiError> {
    let find = move |request: &Request| {
        let found = request.host.vault().find(request.tenant(), &name)?;
        Ok(found.ok_or(VaultError::Unknown(name))?)
    };
    Ok(Json(request.blocking(find).await?.into()))
}

/// Create a secret, or replace its value
#[utoipa::path(put, path = "/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path,)),
    request_body = NewSecret,
    responses((status = 200, body = SecretView), (status = "default", body = ErrorBody)))]
pub(crate) async fn set(
    request: Request,
    PathParam(name): PathParam<String>,
    Body(NewSecret { value, origins, expires_in_ms }): Body<NewSecret>,
) -> Result<Json<SecretView>, ApiError> {
    let set = move |request: &Request| {
        let (vault, actor) = (request.host.vault(), request.actor());
        Ok(vault.set(request.tenant(), actor, &name, value.text(), &origins, expires_in_ms)?)
    };
    Ok(Json(request.blocking(set).await?.into()))
}

/// Remove a secret; nodes with a grant for it then fail
#[utoipa::path(delete, path = "/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path,)),
    responses((status = 204, description = "removed"), (status = "default", body = ErrorBody)))]
pub(crate) async fn remove(request: Request, PathParam(name): PathParam<String>) -> Result<StatusCode, ApiError> {
    let remove = move |request: &Request| Ok(request.host.vault().remove(request.tenant(), request.actor(), &name)?);
    request.blocking(remove).await?;
    Ok(StatusCode::NO_CONTENT)
}
