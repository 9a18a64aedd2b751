//! Extractors for paths, queries and bodies. Their errors have the common format.

use std::{error::Error, sync::Arc, time::Duration};

use axum::{
    body::{Bytes, HttpBody, to_bytes},
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{StatusCode, header, request::Parts},
};
use flowcell_contract::{JSON_VALUES, Json, RunId};
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;
use serde_json::{error::Category, json};

use super::{api_error::ApiError, permit::RequestPermit};

/// The maximum size of a body in bytes: a flow of 4 MiB as a JSON string, plus the rest of the request.
pub(crate) const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// The default time within which a body must arrive.
pub(crate) const DEFAULT_BODY_TIME: Duration = Duration::from_secs(30);

/// The time within which the body of a request must arrive.
#[derive(Clone, Copy)]
pub(crate) struct BodyTimeout(pub(crate) Duration);

impl BodyTimeout {
    /// Returns the time that is set for the connection, or [`DEFAULT_BODY_TIME`].
    pub(crate) fn of_request(request: &Request) -> Duration {
        request.extensions().get().map_or(DEFAULT_BODY_TIME, |BodyTimeout(time)| *time)
    }
}

/// A JSON body, parsed.
pub(crate) struct Body<T>(pub(crate) T);

/// A JSON body, parsed, together with its bytes.
pub(crate) struct Raw<T>(pub(crate) T, pub(crate) Bytes);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, ApiError> {
        let Raw(body, _) = Raw::from_request(request, state).await?;
        Ok(Body(body))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Raw<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Raw<T>, ApiError> {
        check_content_type(request.headers(), "application/json")?;
        let bytes = read_body(request, MAX_BODY_BYTES).await?;
        // An empty body counts as an object without members.
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        check_values(text)?;
        let body = serde_json::from_slice(text).map_err(|error| wrong_json(&error))?;
        Json::check_numbers(&String::from_utf8_lossy(text)).map_err(|error| wrong_json(&error))?;
        Ok(Raw(body, bytes))
    }
}

/// Returns 413 if the JSON text has more than [`JSON_VALUES`] values, since each of them takes memory.
pub(crate) fn check_values(text: &[u8]) -> Result<(), ApiError> {
    if !Json::has_too_many_values(text) {
        return Ok(());
    }
    let why = format!("a body may have at most {JSON_VALUES} JSON values; send larger lists as a file");
    Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why))
}

/// Returns 415 if the header `Content-Type` names another type than `wanted`. A missing header is accepted.
pub(crate) fn check_content_type(headers: &axum::http::HeaderMap, wanted: &str) -> Result<(), ApiError> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(wanted) {
        return Ok(());
    }
    let why = format!("the body has the media type `{essence}`; send it with `content-type: {wanted}`");
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", why))
}

/// Reads the whole body. Returns 413 if it has more than `most` bytes, 408 if it does not arrive in time, and 400 if it
/// is incomplete. Returns 429 if no memory for it becomes free in time: the bodies of one tenant share a part of the
/// memory, and so do the posts to triggers from one client address.
pub(crate) async fn read_body(request: Request, most: usize) -> Result<Bytes, ApiError> {
    let large = || {
        let why = format!("a body may have at most {most} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)
    };
    // A body whose announced length is too large is refused at once.
    if request.body().size_hint().lower() > most as u64 {
        return Err(large());
    }
    let patience = BodyTimeout::of_request(&request);
    let late = || {
        let why = format!("the body did not arrive within {} s", patience.as_secs_f32());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", why)
    };
    let permit = request.extensions().get::<Arc<RequestPermit>>().cloned();
    if let Some(permit) = &permit {
        // A body of unknown length takes a permit for the maximum, `most` bytes.
        let bytes = request.body().size_hint().upper().unwrap_or(u64::MAX).min(most as u64);
        let full = || {
            let why =
                "the bodies of this tenant's other requests leave no memory for this one; wait for their responses";
            ApiError::busy("too_many_requests", why)
        };
        tokio::time::timeout(patience, permit.take_body(bytes)).await.map_err(|_| full())?;
    }
    let read = tokio::time::timeout(patience, to_bytes(request.into_body(), most)).await.map_err(|_| late())?;
    let bytes = read.map_err(|error| match error.source().is_some_and(|why| why.is::<LengthLimitError>()) {
        true => large(),
        false => ApiError::bad_request("the body is incomplete"),
    })?;
    if let Some(permit) = permit {
        permit.shrink_body(bytes.len() as u64);
    }
    Ok(bytes)
}

/// Returns an error of the parser with types of JSON in place of those of this program.
fn with_json_types(why: &str) -> String {
    let Some((before, expected)) = why.rsplit_once(", expected ") else { return why.to_owned() };
    let (kind, place) = expected.split_at(expected.find(" at line ").unwrap_or(expected.len()));
    let kind = match kind {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        kind if kind.starts_with("a nonzero ") => "a whole number other than 0",
        kind if kind.starts_with("struct ") => "an object",
        kind => kind,
    };
    format!("{before}, expected {kind}{place}")
}

fn wrong_json(error: &serde_json::Error) -> ApiError {
    let what = match error.classify() {
        Category::Data => "the body does not fit the route",
        _ => "the body is not JSON",
    };
    ApiError::bad_request(format!("{what}: {}", with_json_types(&error.to_string())))
        .with_details(json!({ "line": error.line(), "column": error.column() }))
}

/// The parsed query of a request. An invalid query gets 400.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<QueryParams<T>, ApiError> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let Query(asked) = query.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
        Ok(QueryParams(asked))
    }
}

/// The parsed parameters of a path. Invalid parameters get 400.
pub(crate) struct PathParam<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParam<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathParam<T>, ApiError> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        let Path(place) = path.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
        Ok(PathParam(place))
    }
}

/// Parses a run id from a client. Returns 400 unless it has 1 to 200 letters, digits, and any of `- _ . : / [ ]`.
pub(crate) fn parse_run_id(text: &str) -> Result<RunId, ApiError> {
    if RunId::is_named_by(text) {
        return Ok(RunId::from(text));
    }
    Err(ApiError::bad_request("the id of a run must have 1 to 200 letters, digits, and - _ . : / [ ]"))
}

/// Parses a run id in a path. An invalid id gets 404, since no run can have it.
pub(crate) fn parse_path_id(text: &str) -> Result<RunId, ApiError> {
    parse_run_id(text).map_err(|_| ApiError::run_not_found(text))
}
