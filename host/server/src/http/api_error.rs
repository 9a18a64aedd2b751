//! The format of all errors: `{ "error": { "code", "message", "details"? } }`.

use std::fmt::Display;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use flowcell_contract::code;
use flowcell_flow::{Diagnostic, Severity};
use flowcell_runtime::{
    HubError, NoStart, OpenError,
    ports::{MaybeStoreError, StoreError},
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::identity::{AuthError, Scope};
use flowcell_platform::{
    AskError, DeleteError, LabelRunError, LibraryError, LoadError, MoveError, NoVersion, QuotaError, RetryError,
    StartError,
    jobs::JobError,
    shape,
    supervisor::AdmitError,
    tenants::TenantError,
    triggers::{
        LookError,
        operation::{TriggerError, findings},
        start::TriggerStartError,
        webhook::HookError,
    },
};

/// The `Retry-After` of a busy server, in seconds.
const RETRY_AFTER_SECONDS: u32 = 1;
/// The `Retry-After` of a server whose disk is nearly full, in seconds.
const RETRY_AFTER_FULL_SECONDS: u32 = 30;
/// The `Retry-After` of a server that stops, in seconds. Another server may have taken over by then.
const RETRY_AFTER_STOP_SECONDS: u32 = 5;

/// An error that becomes the response to a request.
#[derive(Debug)]
pub(crate) struct ApiError {
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
pub(crate) struct ErrorBody {
    error: ErrorDetails,
}

/// The code and the message of an error, attached to its response as an extension. The layer of `/api` reads them to
/// answer in a format of its own.
#[derive(Clone)]
pub(crate) struct ErrorSummary {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// The error.
#[derive(Serialize, ToSchema)]
struct ErrorDetails {
    /// A stable code.
    code: &'static str,
    /// A message for people.
    message: String,
    /// Further data for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    details: Option<Value>,
}

impl ApiError {
    /// Creates an error with this status.
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Display) -> ApiError {
        ApiError { status, code, message: message.to_string(), details: None, retry_after: None, closes: false }
    }

    /// Adds details for programs.
    pub(crate) fn with_details(mut self, details: Value) -> ApiError {
        self.details = Some(details);
        self
    }

    /// Adds a clause to the message.
    pub(crate) fn with_addition(mut self, clause: &str) -> ApiError {
        self.message.push_str(clause);
        self
    }

    /// Returns the status, the code and the message.
    pub(crate) fn into_parts(self) -> (StatusCode, &'static str, String) {
        (self.status, self.code, self.message)
    }

    /// Returns 400 `bad_request`.
    pub(crate) fn bad_request(why: impl Display) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", why)
    }

    /// Returns 404 with this code. An object of another tenant gets the same answer as a missing one.
    pub(crate) fn not_found(code: &'static str, why: impl Display) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, code, why)
    }

    /// Returns 404 `run_not_found`.
    pub(crate) fn run_not_found(run: &str) -> ApiError {
        ApiError::not_found("run_not_found", format!("the run `{run}` does not exist"))
    }

    /// Returns 500 `internal`. The reason goes to the log, and is not shown to the caller.
    pub(crate) fn internal(why: impl Display) -> ApiError {
        tracing::error!("a request failed: {why}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed; its log has the reason")
    }

    /// Returns 429 with `Retry-After` for a server that has too much to do.
    pub(crate) fn busy(code: &'static str, why: impl Display) -> ApiError {
        let fault = ApiError::new(StatusCode::TOO_MANY_REQUESTS, code, why);
        ApiError { retry_after: Some(RETRY_AFTER_SECONDS), ..fault }
    }

    /// Sets the header `Retry-After`, in seconds.
    pub(crate) fn with_retry_after(self, seconds: u32) -> ApiError {
        ApiError { retry_after: Some(seconds), ..self }
    }

    /// Returns 429 and closes the connection. Use it for permits that clients hold for long, such as those of event
    /// streams: a refused client then does not occupy a connection while it waits.
    pub(crate) fn busy_and_close(code: &'static str, why: impl Display) -> ApiError {
        ApiError { closes: true, ..ApiError::busy(code, why) }
    }

    /// Returns 503 `draining` for a server that is stopping.
    pub(crate) fn draining() -> ApiError {
        let why = "the server is stopping; use another server";
        let fault = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "draining", why);
        ApiError { retry_after: Some(RETRY_AFTER_STOP_SECONDS), ..fault }
    }

    /// Returns 503 `store_full` for a store whose disk has too little free room for new runs.
    pub(crate) fn store_full(why: impl Display) -> ApiError {
        let fault = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "store_full", why);
        ApiError { retry_after: Some(RETRY_AFTER_FULL_SECONDS), ..fault }
    }

    /// Returns 503 `store_unavailable`. The reason goes to the log.
    pub(super) fn unavailable(why: &impl MaybeStoreError) -> ApiError {
        // The store itself logs its outages.
        if !why.is_from_outage() {
            tracing::error!("the store does not answer a request: {why}");
        }
        let fault = ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            "the store does not answer; try again later",
        );
        ApiError { retry_after: Some(RETRY_AFTER_SECONDS), ..fault }
    }

    /// Returns 403 `forbidden`, with the missing scope in the details.
    pub(crate) fn forbidden(scope: Scope) -> ApiError {
        let why = format!("the token does not have the scope `{scope}`");
        ApiError::new(StatusCode::FORBIDDEN, "forbidden", why).with_details(json!({ "scope": scope.name() }))
    }

    /// Returns 422 `invalid_flow`, with the diagnostics of the flow in the details.
    pub(crate) fn invalid_flow(findings: &[Diagnostic]) -> ApiError {
        let found: Vec<_> = findings.iter().map(shape::finding).collect();
        let first = findings.iter().find(|finding| finding.severity == Severity::Error).or(findings.first());
        let first = first.map_or_else(String::new, |finding| format!(": {}", finding.message));
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_flow", format!("the flow cannot run{first}"))
            .with_details(json!({ "diagnostics": found }))
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

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let ApiError { status, code, message, details, retry_after, closes } = self;
        let summary = ErrorSummary { code, message: message.clone() };
        let mut response = (status, Json(ErrorBody { error: ErrorDetails { code, message, details } })).into_response();
        response.extensions_mut().insert(summary);
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

impl From<AuthError> for ApiError {
    fn from(refused: AuthError) -> ApiError {
        if refused == AuthError::Unavailable {
            let fault = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", refused);
            return ApiError { retry_after: Some(RETRY_AFTER_SECONDS), ..fault };
        }
        ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", refused)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        ApiError::unavailable(&error)
    }
}

impl From<HubError> for ApiError {
    fn from(error: HubError) -> ApiError {
        let status = match error {
            HubError::AnswerRefused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            HubError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            HubError::InboxFull | HubError::TooManyEvents => return ApiError::busy(error.code(), error.message()),
            _ => StatusCode::CONFLICT,
        };
        ApiError::new(status, error.code(), error.message())
    }
}

impl From<AskError> for ApiError {
    fn from(error: AskError) -> ApiError {
        match error {
            AskError::Refused(error) => error.into(),
            AskError::Start(error) => error.into(),
        }
    }
}

impl From<DeleteError> for ApiError {
    fn from(error: DeleteError) -> ApiError {
        let status = match error.code() {
            "run_not_found" => StatusCode::NOT_FOUND,
            _ => StatusCode::CONFLICT,
        };
        match error {
            DeleteError::Store(error) => error.into(),
            error => ApiError::new(status, error.code(), error),
        }
    }
}

impl From<LabelRunError> for ApiError {
    fn from(error: LabelRunError) -> ApiError {
        let status = match error.code() {
            "run_not_found" => StatusCode::NOT_FOUND,
            "damaged" => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        match error {
            LabelRunError::Store(error) => error.into(),
            error => ApiError::new(status, error.code(), error),
        }
    }
}

impl From<LoadError> for ApiError {
    fn from(error: LoadError) -> ApiError {
        match error {
            LoadError::Invalid(findings) => ApiError::invalid_flow(&findings),
            LoadError::Host(error) => ApiError::internal(error),
        }
    }
}

impl From<LibraryError> for ApiError {
    fn from(error: LibraryError) -> ApiError {
        let of = |status, code| ApiError::new(status, code, &error);
        match &error {
            LibraryError::Unknown(_) | LibraryError::UnknownVersion { .. } | LibraryError::BadName(_) => {
                of(StatusCode::NOT_FOUND, "flow_not_found")
            }
            LibraryError::NoName | LibraryError::OtherName { .. } => {
                of(StatusCode::UNPROCESSABLE_ENTITY, "invalid_name")
            }
            LibraryError::Exists(_) => of(StatusCode::CONFLICT, "flow_exists"),
            LibraryError::Moved { newest, .. } => {
                of(StatusCode::CONFLICT, "version_conflict").with_details(json!({ "version": newest }))
            }
            LibraryError::Deployed { .. } => of(StatusCode::CONFLICT, "flow_deployed"),
            LibraryError::Files(_) | LibraryError::NoFiles | LibraryError::NotShared => {
                of(StatusCode::UNPROCESSABLE_ENTITY, "invalid_file")
            }
            LibraryError::TooLarge => of(StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            LibraryError::Full => of(StatusCode::CONFLICT, "quota_exceeded"),
            LibraryError::Link(_) => of(StatusCode::CONFLICT, "link_refused"),
            LibraryError::Invalid(findings) => ApiError::invalid_flow(findings),
            LibraryError::Folder { .. } => ApiError::internal(&error),
            LibraryError::Store(error) => ApiError::unavailable(error),
        }
    }
}

impl From<TriggerError> for ApiError {
    fn from(error: TriggerError) -> ApiError {
        let of = |status| ApiError::new(status, error.code(), &error);
        match error {
            TriggerError::Unknown(_) => of(StatusCode::NOT_FOUND),
            TriggerError::Taken(_) | TriggerError::Declared(_) => of(StatusCode::CONFLICT),
            TriggerError::Invalid(ref found) => of(StatusCode::UNPROCESSABLE_ENTITY).with_details(findings(found)),
            TriggerError::TooMany(_) => ApiError::busy(error.code(), error),
            TriggerError::Flow(error) => error.into(),
            TriggerError::Store(error) => error.into(),
        }
    }
}

impl From<TenantError> for ApiError {
    fn from(error: TenantError) -> ApiError {
        match error {
            TenantError::Unknown(_) => ApiError::not_found("tenant_not_found", error),
            TenantError::BeingRemoved(_) => ApiError::new(StatusCode::CONFLICT, "tenant_being_removed", error),
            TenantError::Changed(_) => ApiError::new(StatusCode::CONFLICT, "conflict", error),
            TenantError::UnknownToken(_) => ApiError::not_found("token_not_found", error),
            TenantError::UnknownAccount(_) => ApiError::not_found("account_not_found", error),
            TenantError::TokenNameTaken(..) => ApiError::new(StatusCode::CONFLICT, "token_exists", error),
            TenantError::TokenName(_) | TenantError::UnknownScope(..) | TenantError::ScopeNotAllowed(..) => {
                ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error.code(), error)
            }
            TenantError::Store(error) => error.into(),
            error => ApiError::internal(error),
        }
    }
}

impl From<JobError> for ApiError {
    fn from(error: JobError) -> ApiError {
        let of = |status| ApiError::new(status, error.code(), &error);
        match error {
            JobError::Request(_) | JobError::NoStore => of(StatusCode::BAD_REQUEST),
            JobError::TooLarge => of(StatusCode::PAYLOAD_TOO_LARGE),
            JobError::Unknown(_) => of(StatusCode::NOT_FOUND),
            JobError::Ended(_) | JobError::OtherRequest(_) => of(StatusCode::CONFLICT),
            JobError::TooMany => ApiError::busy(error.code(), error),
            JobError::Document(error) => ApiError::unavailable(&error),
        }
    }
}

impl From<AdmitError> for ApiError {
    fn from(error: AdmitError) -> ApiError {
        match error {
            AdmitError::Full => ApiError::busy("too_many_runs", error),
            AdmitError::Closed => ApiError::draining(),
            AdmitError::Undriven => ApiError::internal(error),
            AdmitError::Open(error) => StartError::from(error).into(),
        }
    }
}

impl From<HookError> for ApiError {
    fn from(error: HookError) -> ApiError {
        match error {
            HookError::TooMany { seconds } => ApiError::busy("too_many_failures", error).with_retry_after(seconds),
            HookError::Unsigned => ApiError::new(StatusCode::UNAUTHORIZED, "unsigned", error),
            HookError::OtherBody => ApiError::new(StatusCode::CONFLICT, "webhook_conflict", error),
            HookError::Body(_) | HookError::Id(_) | HookError::Parts(_) | HookError::Part(_) => {
                ApiError::bad_request(error)
            }
            HookError::Multipart => ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", error),
            HookError::Draining => ApiError::draining(),
            HookError::Later(TriggerStartError::Admit(error)) => error.into(),
            HookError::Later(TriggerStartError::Quota(error)) => StartError::Quota(error).into(),
            HookError::Later(error) => ApiError::unavailable(&error),
            HookError::Never(TriggerStartError::Start(error)) => error.into(),
            HookError::Never(error) => ApiError::internal(error),
        }
    }
}

impl From<LookError> for ApiError {
    fn from(error: LookError) -> ApiError {
        TriggerError::from(error).into()
    }
}

impl From<MoveError> for ApiError {
    fn from(error: MoveError) -> ApiError {
        match error {
            MoveError::Prepare(error) => error.into(),
            MoveError::Refused(ref plan) => {
                let details = serde_json::to_value(plan).unwrap_or_default();
                ApiError::new(StatusCode::CONFLICT, "migration_refused", &error).with_details(details)
            }
        }
    }
}

impl From<RetryError> for ApiError {
    fn from(error: RetryError) -> ApiError {
        match error {
            RetryError::Start(error) => error.into(),
            RetryError::Version(NoVersion::Library(error)) => error.into(),
            RetryError::Version(NoVersion::File(LoadError::Invalid(findings))) => ApiError::invalid_flow(&findings),
            RetryError::Version(NoVersion::Session) => ApiError::new(StatusCode::CONFLICT, "session_run", error),
            RetryError::Version(_) => ApiError::not_found("flow_not_found", error),
        }
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> ApiError {
        let conflict = |code| ApiError::new(StatusCode::CONFLICT, code, &error);
        match &error {
            StartError::Input(input) => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, input.code(), &error)
                .with_details(json!({ "findings": input.findings() })),
            StartError::Renewed(findings) => ApiError::invalid_flow(findings),
            StartError::Disabled(_) => conflict("flow_disabled"),
            StartError::TenantDisabled(_) => conflict("tenant_disabled"),
            StartError::Quota(QuotaError::Store(error)) => ApiError::unavailable(error),
            StartError::Quota(QuotaError::StoreFull { .. }) => ApiError::store_full(&error),
            StartError::Quota(quota) => {
                let fault = ApiError::busy("quota_exceeded", &error);
                let seconds = match quota {
                    QuotaError::Day { seconds, .. } | QuotaError::Paused { seconds, .. } => {
                        u32::try_from(*seconds).ok()
                    }
                    _ => fault.retry_after,
                };
                ApiError { retry_after: seconds, ..fault }
            }
            StartError::Open(OpenError::Store(error)) => ApiError::unavailable(error),
            StartError::Open(OpenError::Unknown(run)) => ApiError::run_not_found(run.as_str()),
            StartError::Open(OpenError::NoNode(NoStart::Unknown(_) | NoStart::OtherName { .. })) => {
                ApiError::not_found("node_not_found", &error)
            }
            StartError::Open(OpenError::NoNode(NoStart::KeepsNothing { .. })) => conflict("no_answer_kept"),
            StartError::Open(OpenError::NoNode(NoStart::LeftEarly { .. })) => conflict("cycle_left"),
            StartError::Open(OpenError::NoNode(NoStart::TakenOver { .. })) => conflict("node_taken_over"),
            StartError::Open(OpenError::NoNode(NoStart::NotEnded { .. })) => conflict("run_not_ended"),
            StartError::Open(
                OpenError::OtherInput(_)
                | OpenError::OtherFlow(..)
                | OpenError::OtherRequest(_)
                | OpenError::OtherRepeat(_),
            ) => conflict("run_exists"),
            StartError::Open(OpenError::OtherNeeds(failure)) => {
                let code =
                    if failure.code == code::SCHEMA_TOO_COSTLY { code::SCHEMA_TOO_COSTLY } else { code::INVALID_INPUT };
                ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, &error)
            }
            StartError::Open(OpenError::OtherNames(errors)) => {
                conflict("rename_refused").with_details(json!({ "refused": errors }))
            }
            StartError::Open(OpenError::Driven(_)) => conflict("run_driven"),
            StartError::Open(OpenError::Labels(_) | OpenError::NoOtherNames) => ApiError::bad_request(&error),
            StartError::Open(OpenError::TooDeep) => conflict("too_deep"),
            StartError::Open(OpenError::Called { .. }) => conflict("called_run"),
            StartError::Open(OpenError::Pin(_)) => conflict("flow_not_found"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that cannot be reached gives 503, not 500.
    #[test]
    fn a_start_with_an_unreachable_store_gets_503() {
        let lost = || StoreError("the database is locked".into());
        for error in [StartError::Open(OpenError::Store(lost())), StartError::Quota(QuotaError::Store(lost()))] {
            let fault = ApiError::from(error);
            assert_eq!((fault.status(), fault.code()), (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"));
        }
    }
}
