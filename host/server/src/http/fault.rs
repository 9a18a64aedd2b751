//! The format of all errors: `{ "error": { "code", "message", "details"? } }`.

use std::fmt::Display;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use flowcell_flow::{Diagnostic, Severity};
use flowcell_runtime::{HubError, NoStart, OpenError, ports::StoreError};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::identity::{Refused, Scope};
use flowcell_platform::{
    AskError, LibraryError, LoadError, QuotaError, StartError,
    driving::AdmitError,
    shape,
    triggers::{
        LookError,
        hook::HookError,
        operation::{TriggerError, findings},
        start::Problem,
    },
};

/// The `Retry-After` of a busy server, in seconds.
const RETRY_AFTER: u32 = 1;
/// The `Retry-After` of a server that stops, in seconds. Another server may have taken over by then.
const RETRY_AFTER_STOP: u32 = 5;

/// An error answer to a request.
#[derive(Debug)]
pub(crate) struct Fault {
    status: StatusCode,
    code: &'static str,
    message: String,
    details: Option<Value>,
    retry_after: Option<u32>,
    /// True if the connection closes after the answer, so that its permit is free for others.
    closes: bool,
}

/// The body of all error answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct FaultBody {
    error: FaultError,
}

/// The error as an extension of the response, for layers that answer in another format.
#[derive(Clone)]
pub(crate) struct Said {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// The error.
#[derive(Serialize, ToSchema)]
struct FaultError {
    /// A stable code.
    code: &'static str,
    /// A message for people.
    message: String,
    /// Further data for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    details: Option<Value>,
}

impl Fault {
    /// Creates an error with this status.
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Display) -> Fault {
        Fault { status, code, message: message.to_string(), details: None, retry_after: None, closes: false }
    }

    /// Adds details for programs.
    pub(crate) fn with(mut self, details: Value) -> Fault {
        self.details = Some(details);
        self
    }

    /// Returns 400 `bad_request`.
    pub(crate) fn bad_request(why: impl Display) -> Fault {
        Fault::new(StatusCode::BAD_REQUEST, "bad_request", why)
    }

    /// Returns 404. It is also the answer if the object belongs to another tenant.
    pub(crate) fn not_found(code: &'static str, why: impl Display) -> Fault {
        Fault::new(StatusCode::NOT_FOUND, code, why)
    }

    /// Returns 404 `run_not_found`.
    pub(crate) fn no_run(run: &str) -> Fault {
        Fault::not_found("run_not_found", format!("the run `{run}` does not exist"))
    }

    /// Returns 500 `internal`. The reason goes to the log, and is not shown to the caller.
    pub(crate) fn internal(why: impl Display) -> Fault {
        tracing::error!("a request failed: {why}");
        Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed; its log has the reason")
    }

    /// Returns 429 with `Retry-After` for a server that has too much to do.
    pub(crate) fn busy(code: &'static str, why: impl Display) -> Fault {
        let fault = Fault::new(StatusCode::TOO_MANY_REQUESTS, code, why);
        Fault { retry_after: Some(RETRY_AFTER), ..fault }
    }

    /// Sets `Retry-After`, in seconds.
    pub(crate) fn after(self, seconds: u32) -> Fault {
        Fault { retry_after: Some(seconds), ..self }
    }

    /// Returns 429 that also closes the connection. It is for permits that are held long, so that a refused client does
    /// not keep a connection instead.
    pub(crate) fn crowded(code: &'static str, why: impl Display) -> Fault {
        Fault { closes: true, ..Fault::busy(code, why) }
    }

    /// Returns 503 `draining` for a server that is stopping.
    pub(crate) fn draining() -> Fault {
        let why = "the server is stopping and accepts no new runs; try another server";
        let fault = Fault::new(StatusCode::SERVICE_UNAVAILABLE, "draining", why);
        Fault { retry_after: Some(RETRY_AFTER_STOP), ..fault }
    }

    /// Returns 503 `store_unavailable`. The reason goes to the log.
    fn unavailable(why: impl Display) -> Fault {
        tracing::error!("the store does not answer a request: {why}");
        let fault = Fault::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            "the store does not answer; try again later",
        );
        Fault { retry_after: Some(RETRY_AFTER), ..fault }
    }

    /// Returns 403 `forbidden`, with the missing scope in the details.
    pub(crate) fn forbidden(scope: Scope) -> Fault {
        let why = format!("the token does not have the scope `{scope}`");
        Fault::new(StatusCode::FORBIDDEN, "forbidden", why).with(json!({ "scope": scope.name() }))
    }

    /// Returns 422 `invalid_flow`, with the diagnostics of the flow in the details.
    pub(crate) fn invalid_flow(findings: &[Diagnostic]) -> Fault {
        let found: Vec<_> = findings.iter().map(shape::finding).collect();
        let first = findings.iter().find(|finding| finding.severity == Severity::Error).or(findings.first());
        let first = first.map_or_else(String::new, |finding| format!(": {}", finding.message));
        Fault::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_flow", format!("the flow cannot run{first}"))
            .with(json!({ "diagnostics": found }))
    }

    /// Returns the HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the stable error code.
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    /// Returns the sentence for people.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the details for programs, if there are any.
    pub(crate) fn details(&self) -> Option<&Value> {
        self.details.as_ref()
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let Fault { status, code, message, details, retry_after, closes } = self;
        let told = Said { code, message: message.clone() };
        let mut response = (status, Json(FaultBody { error: FaultError { code, message, details } })).into_response();
        response.extensions_mut().insert(told);
        let headers = response.headers_mut();
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"flowcell\""));
        }
        response
    }
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Fault {
        if refused == Refused::Unavailable {
            let fault = Fault::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", refused);
            return Fault { retry_after: Some(RETRY_AFTER), ..fault };
        }
        Fault::new(StatusCode::UNAUTHORIZED, "unauthorized", refused)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::unavailable(error)
    }
}

impl From<HubError> for Fault {
    fn from(error: HubError) -> Fault {
        let status = match error {
            HubError::AnswerRefused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            HubError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            HubError::InboxFull | HubError::TooManyEvents => return Fault::busy(error.code(), error.message()),
            _ => StatusCode::CONFLICT,
        };
        Fault::new(status, error.code(), error.message())
    }
}

impl From<AskError> for Fault {
    fn from(error: AskError) -> Fault {
        match error {
            AskError::Refused(error) => error.into(),
            AskError::Start(error) => error.into(),
        }
    }
}

impl From<LoadError> for Fault {
    fn from(error: LoadError) -> Fault {
        match error {
            LoadError::Invalid(findings) => Fault::invalid_flow(&findings),
            LoadError::Host(error) => Fault::internal(error),
        }
    }
}

impl From<LibraryError> for Fault {
    fn from(error: LibraryError) -> Fault {
        let of = |status, code| Fault::new(status, code, &error);
        match &error {
            LibraryError::Unknown(_) | LibraryError::UnknownVersion { .. } | LibraryError::BadName(_) => {
                of(StatusCode::NOT_FOUND, "flow_not_found")
            }
            LibraryError::NoName | LibraryError::OtherName { .. } => {
                of(StatusCode::UNPROCESSABLE_ENTITY, "invalid_name")
            }
            LibraryError::Exists(_) => of(StatusCode::CONFLICT, "flow_exists"),
            LibraryError::TooLarge => of(StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            LibraryError::Full => of(StatusCode::CONFLICT, "quota_exceeded"),
            LibraryError::Link(_) => of(StatusCode::CONFLICT, "link_refused"),
            LibraryError::Invalid(findings) => Fault::invalid_flow(findings),
            LibraryError::Folder { .. } => Fault::internal(&error),
        }
    }
}

impl From<TriggerError> for Fault {
    fn from(error: TriggerError) -> Fault {
        let of = |status| Fault::new(status, error.code(), &error);
        match error {
            TriggerError::Unknown(_) => of(StatusCode::NOT_FOUND),
            TriggerError::Taken(_) | TriggerError::Declared(_) => of(StatusCode::CONFLICT),
            TriggerError::Invalid(ref found) => of(StatusCode::UNPROCESSABLE_ENTITY).with(findings(found)),
            TriggerError::TooMany(_) => Fault::busy(error.code(), error),
            TriggerError::Flow(error) => error.into(),
            TriggerError::Store(error) => error.into(),
        }
    }
}

impl From<AdmitError> for Fault {
    fn from(error: AdmitError) -> Fault {
        match error {
            AdmitError::Full => Fault::busy("too_many_runs", error),
            AdmitError::Closed => Fault::draining(),
            AdmitError::Undriven => Fault::internal(error),
            AdmitError::Open(error) => StartError::from(error).into(),
        }
    }
}

impl From<HookError> for Fault {
    fn from(error: HookError) -> Fault {
        match error {
            HookError::Unsigned(why) => Fault::new(StatusCode::UNAUTHORIZED, "unsigned", why),
            HookError::OtherBody => Fault::new(StatusCode::CONFLICT, "webhook_conflict", error),
            HookError::Body(_) => Fault::bad_request(error),
            HookError::Draining => Fault::draining(),
            HookError::Later(Problem::Admit(error)) => error.into(),
            HookError::Later(Problem::Quota(error)) => StartError::Quota(error).into(),
            HookError::Later(error) => Fault::unavailable(error),
            HookError::Never(Problem::Start(error)) => error.into(),
            HookError::Never(error) => Fault::internal(error),
        }
    }
}

impl From<LookError> for Fault {
    fn from(error: LookError) -> Fault {
        TriggerError::from(error).into()
    }
}

impl From<StartError> for Fault {
    fn from(error: StartError) -> Fault {
        let conflict = |code| Fault::new(StatusCode::CONFLICT, code, &error);
        match &error {
            StartError::Input(input) => Fault::new(StatusCode::UNPROCESSABLE_ENTITY, input.code(), &error)
                .with(json!({ "findings": input.findings() })),
            StartError::Renewed(findings) => Fault::invalid_flow(findings),
            StartError::Disabled(_) => conflict("flow_disabled"),
            StartError::TenantDisabled(_) => conflict("tenant_disabled"),
            StartError::Quota(QuotaError::Store(error)) => Fault::unavailable(error),
            StartError::Quota(quota) => {
                let fault = Fault::busy("quota_exceeded", &error);
                let seconds = match quota {
                    QuotaError::Day { seconds, .. } => u32::try_from(*seconds).ok(),
                    _ => fault.retry_after,
                };
                Fault { retry_after: seconds, ..fault }
            }
            StartError::Open(OpenError::Store(error)) => Fault::unavailable(error),
            StartError::Open(OpenError::Unknown(run)) => Fault::no_run(run.as_str()),
            StartError::Open(OpenError::NoNode(NoStart::Unknown(_))) => Fault::not_found("node_not_found", &error),
            StartError::Open(OpenError::NoNode(NoStart::KeepsNothing { .. })) => conflict("no_answer_kept"),
            StartError::Open(
                OpenError::OtherInput(_)
                | OpenError::OtherFlow(..)
                | OpenError::OtherRequest(_)
                | OpenError::OtherRepeat(_),
            ) => conflict("run_exists"),
            StartError::Open(OpenError::Driven(_)) => conflict("run_driven"),
            StartError::Open(OpenError::TooDeep) => conflict("too_deep"),
            StartError::Open(OpenError::Called { .. }) => conflict("called_run"),
            StartError::Open(OpenError::Pin(_)) => conflict("flow_not_found"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W11. An unreachable store is 503, not an error of the server.
    #[test]
    fn a_start_that_the_store_cannot_take_may_be_tried_again() {
        let lost = || StoreError("the database is locked".into());
        for error in [StartError::Open(OpenError::Store(lost())), StartError::Quota(QuotaError::Store(lost()))] {
            let fault = Fault::from(error);
            assert_eq!((fault.status(), fault.code()), (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"));
        }
    }
}
