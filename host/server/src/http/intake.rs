//! What requests bring: paths, questions and bodies, each refused in the one shape of failures.

use std::{error::Error, time::Duration};

use axum::{
    body::{Bytes, HttpBody, to_bytes},
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{StatusCode, header, request::Parts},
};
use flowcell_contract::{JSON_VALUES, Json, RunId};
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;
use serde_json::{error::Category, json};

use super::fault::Fault;

/// Bytes of a body: a flow of 4 MiB as text in JSON, and what stands around it.
pub(crate) const BODY_BYTES: usize = 8 * 1024 * 1024;
/// How long a body may take to come.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(30);

/// How long the body of a request is waited for.
#[derive(Clone, Copy)]
pub(crate) struct Patience(pub(crate) Duration);

impl Patience {
    /// That of a connection.
    pub(crate) fn with(request: &Request) -> Duration {
        request.extensions().get().map_or(BODY_TIME, |Patience(time)| *time)
    }
}

/// A body of JSON.
pub(crate) struct Body<T>(pub(crate) T);

/// The bytes of a body of JSON, beside what they mean.
pub(crate) struct Raw<T>(pub(crate) T, pub(crate) Bytes);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Fault> {
        let Raw(body, _) = Raw::from_request(request, state).await?;
        Ok(Body(body))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Raw<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Raw<T>, Fault> {
        check_kind(request.headers(), "application/json")?;
        let bytes = read(request, BODY_BYTES).await?;
        // A body that may be left out is one without members.
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        check_values(text)?;
        let body = serde_json::from_slice(text).map_err(|error| wrong_json(&error))?;
        Json::check_numbers(&String::from_utf8_lossy(text)).map_err(|error| wrong_json(&error))?;
        Ok(Raw(body, bytes))
    }
}

/// Refuses JSON that would take too much memory.
pub(crate) fn check_values(text: &[u8]) -> Result<(), Fault> {
    if !Json::has_too_many_values(text) {
        return Ok(());
    }
    let why = format!("a body may have {JSON_VALUES} values of JSON; a list that has more is handed over as a file");
    Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why))
}

/// Refuses a body that says it is something else.
pub(crate) fn check_kind(headers: &axum::http::HeaderMap, wanted: &str) -> Result<(), Fault> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(wanted) {
        return Ok(());
    }
    let why = format!("the body was sent as `{essence}`: send it as `content-type: {wanted}`");
    Err(Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", why))
}

/// The whole body, if it has so many bytes at most and comes in time.
pub(crate) async fn read(request: Request, most: usize) -> Result<Bytes, Fault> {
    let large = || {
        let why = format!("a body may have {most} bytes");
        Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)
    };
    // What is announced as too large is not waited for.
    if request.body().size_hint().lower() > most as u64 {
        return Err(large());
    }
    let patience = Patience::with(&request);
    let late = || {
        let why = format!("the body did not come within {} s", patience.as_secs_f32());
        Fault::new(StatusCode::REQUEST_TIMEOUT, "timeout", why)
    };
    let read = tokio::time::timeout(patience, to_bytes(request.into_body(), most)).await.map_err(|_| late())?;
    read.map_err(|error| match error.source().is_some_and(|why| why.is::<LengthLimitError>()) {
        true => large(),
        false => Fault::bad_request("the body did not come whole"),
    })
}

fn wrong_json(error: &serde_json::Error) -> Fault {
    let what = match error.classify() {
        Category::Data => "the body is not what is asked for",
        _ => "the body is not JSON",
    };
    Fault::bad_request(format!("{what}: {error}")).with(json!({ "line": error.line(), "column": error.column() }))
}

/// What the address asks beyond its path.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Asked<T>, Fault> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let Query(asked) = query.map_err(|rejection| Fault::bad_request(rejection.body_text()))?;
        Ok(Asked(asked))
    }
}

/// The changing parts of a path.
pub(crate) struct Place<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Place<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Place<T>, Fault> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        let Path(place) = path.map_err(|rejection| Fault::bad_request(rejection.body_text()))?;
        Ok(Place(place))
    }
}

/// A run's id as somebody outside may choose it.
pub(crate) fn run_id(text: &str) -> Result<RunId, Fault> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/[]".contains(&byte);
    if (1..=200).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(RunId::from(text));
    }
    Err(Fault::bad_request("an id of a run has 1 to 200 letters, digits, and any of - _ . : / [ ]"))
}

/// A run's id in a path. What cannot be one is the id of no run.
pub(crate) fn known_id(text: &str) -> Result<RunId, Fault> {
    run_id(text).map_err(|_| Fault::no_run(text))
}
