//! Failures of attempts at a turn, and the rules for retries.

use std::time::{Duration, SystemTime};

use flowcell_contract::{Failure, Json};
use hyper::{HeaderMap, StatusCode};

use super::profile::Dialect;
use crate::{code, redaction::Redaction};

/// Maximum characters of a provider's message that the message of a failure repeats.
const MAX_QUOTED_CHARS: usize = 500;
/// The longest wait that the host accepts from a provider of the dialect `chat` or `responses`; it ignores a longer
/// one.
const MAX_OPENAI_WAIT: Duration = Duration::from_secs(60);
/// The first wait between two attempts, in seconds; each later wait is twice the one before.
const FIRST_WAIT_SECONDS: f64 = 0.5;
/// The longest wait between two attempts if the provider requests none, in seconds.
const MAX_WAIT_SECONDS: f64 = 8.0;
/// Maximum fraction by which a wait is shortened at random.
const MAX_JITTER: f64 = 0.25;

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct AttemptError {
    pub(crate) failure: Failure,
    /// The wait that the provider asks for, if any.
    pub(crate) wait: Option<Duration>,
}

/// An error report of a provider, in any of the known forms.
#[derive(Debug, Default)]
pub(crate) struct Report {
    kind: String,
    code: String,
    message: String,
    status: Option<u16>,
}

impl AttemptError {
    /// Creates the error of an attempt with the failure code `class`. The code decides if the failure is retryable.
    pub(crate) fn new(class: &str, message: impl Into<String>) -> AttemptError {
        let failure = Failure { retryable: is_transient(class), ..Failure::new(class, message) };
        AttemptError { failure, wait: None }
    }

    /// Creates the error of an attempt whose answer violates the provider's dialect.
    pub(crate) fn nonsense(message: impl Into<String>) -> AttemptError {
        AttemptError::new(code::MODEL_BAD_RESPONSE, message)
    }
}

impl From<Failure> for AttemptError {
    /// Wraps a failure that did not come from the provider.
    fn from(failure: Failure) -> AttemptError {
        AttemptError { failure, wait: None }
    }
}

/// Returns true if failures with the code `class` are transient, so that another attempt may succeed.
fn is_transient(class: &str) -> bool {
    matches!(
        class,
        code::MODEL_RATE_LIMITED
            | code::MODEL_OVERLOADED
            | code::MODEL_TIMEOUT
            | code::MODEL_CONNECT
            | code::MODEL_STREAM_TRUNCATED
    )
}

/// Maps the failure of an HTTP exchange to a code of this capability. `in_body` is true if the head of the answer had
/// arrived. A retryable failure stays retryable.
pub(crate) fn from_exchange(failure: Failure, in_body: bool) -> AttemptError {
    let class = match (failure.code.as_str(), failure.retryable) {
        (code::CONNECT | code::TLS, _) => code::MODEL_CONNECT,
        (code::TIMEOUT, _) => code::MODEL_TIMEOUT,
        (code::PROTOCOL, true) if in_body => code::MODEL_STREAM_TRUNCATED,
        (code::PROTOCOL, true) => code::MODEL_CONNECT,
        (code::PROTOCOL, false) => code::MODEL_BAD_RESPONSE,
        // The guard sent nothing, and says when to try again.
        _ => return AttemptError { wait: failure.retry_after_ms.map(Duration::from_millis), failure },
    };
    AttemptError::from(Failure { code: class.into(), ..failure })
}

impl Report {
    /// Reads `{ "error": … }`, the error itself, or a text.
    pub(crate) fn read(json: &Json) -> Report {
        let error = json.get("error").filter(|error| !error.is_null()).unwrap_or(json);
        if let Some(message) = error.as_str() {
            return Report { message: message.to_owned(), ..Report::default() };
        }
        let text = |pointer| error.pointer(pointer).and_then(Json::as_str).unwrap_or_default().to_owned();
        let detail = text("/details/error_code");
        Report {
            kind: text("/type"),
            code: if detail.is_empty() { text("/code") } else { detail },
            message: text("/message"),
            status: error.get("code").and_then(Json::as_u64).and_then(|code| u16::try_from(code).ok()),
        }
    }

    /// Returns the failure code for the error. The second value is true if another attempt may succeed.
    fn failure_code(&self, status: Option<u16>) -> (&'static str, bool) {
        let status = status.or(self.status);
        let class = code_from_name(&self.code)
            .or_else(|| code_from_name(&self.kind))
            .unwrap_or_else(|| code_from_status(status, self.own_code()));
        let class = if status == Some(402) { code::MODEL_QUOTA } else { class };
        let may_pass = status.is_some_and(|status| matches!(status, 408 | 409 | 429 | 500..));
        (class, class != code::MODEL_QUOTA && (may_pass || is_transient(class)))
    }

    /// Returns the most specific error code in the provider's report: `code`, or else `kind`.
    fn own_code(&self) -> &str {
        if self.code.is_empty() { &self.kind } else { &self.code }
    }

    /// Converts the report to the error of an attempt. Secrets in its texts are redacted.
    pub(crate) async fn attempt_error(&self, status: Option<StatusCode>, redaction: &Redaction) -> AttemptError {
        let (class, retryable) = self.failure_code(status.map(|status| status.as_u16()));
        let said = match class {
            // Servers repeat parts of keys that they do not know.
            code::MODEL_AUTH => String::new(),
            _ => readable(&redaction.text(&self.message).await),
        };
        let answered = status.map_or_else(String::new, |status| format!(" ({})", status.as_u16()));
        let message = match said.is_empty() {
            true => format!("{}{answered}", describe_code(class)),
            false => format!("{}{answered}: {said}", describe_code(class)),
        };
        let mut details = Vec::new();
        if let Some(status) = status {
            details.push(("status", Json::from(u64::from(status.as_u16()))));
        }
        if !self.own_code().is_empty() {
            details.push(("providerCode", Json::from(readable(&redaction.text(self.own_code()).await))));
        }
        let details = (!details.is_empty()).then(|| Json::object(details));
        AttemptError { failure: Failure { retryable, details, ..Failure::new(class, message) }, wait: None }
    }
}

/// Returns the failure code for a provider's error code or error type. Returns `None` for all other names. If
/// neither the error code nor the error type has a failure code, the caller takes the failure code from the
/// status.
fn code_from_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "contract_spend_limit_reached" | "enforced_spend_limit_reached" | "insufficient_quota" | "billing_error" => {
            code::MODEL_QUOTA
        }
        "overloaded_error" => code::MODEL_OVERLOADED,
        "authentication_error" | "invalid_api_key" => code::MODEL_AUTH,
        "permission_error" => code::MODEL_PERMISSION,
        "not_found_error" | "model_not_found" => code::MODEL_NOT_FOUND,
        "request_too_large" => code::MODEL_TOO_LARGE,
        "context_length_exceeded" | "exceed_context_size_error" => code::MODEL_CONTEXT_EXCEEDED,
        "rate_limit_error" | "rate_limit_exceeded" => code::MODEL_RATE_LIMITED,
        "timeout_error" => code::MODEL_TIMEOUT,
        _ => return None,
    })
}

fn code_from_status(status: Option<u16>, own_code: &str) -> &'static str {
    match status {
        Some(401) => code::MODEL_AUTH,
        Some(402) => code::MODEL_QUOTA,
        Some(403) => code::MODEL_PERMISSION,
        Some(404) => code::MODEL_NOT_FOUND,
        Some(413) => code::MODEL_TOO_LARGE,
        Some(429) => code::MODEL_RATE_LIMITED,
        Some(408 | 504) => code::MODEL_TIMEOUT,
        Some(409 | 500..) => code::MODEL_OVERLOADED,
        Some(400..) => code::MODEL_INVALID_REQUEST,
        Some(_) => code::MODEL_BAD_RESPONSE,
        None if own_code.starts_with("invalid_") => code::MODEL_INVALID_REQUEST,
        None => code::MODEL_OVERLOADED,
    }
}

fn describe_code(class: &str) -> &'static str {
    match class {
        code::MODEL_AUTH => "the provider refused the key",
        code::MODEL_PERMISSION => "the key has no permission for this request",
        code::MODEL_INVALID_REQUEST => "the provider did not understand the request",
        code::MODEL_NOT_FOUND => "the provider does not have this model, or the address is wrong",
        code::MODEL_TOO_LARGE => "the request is larger than the provider accepts",
        code::MODEL_CONTEXT_EXCEEDED => "the messages exceed the context of the model",
        code::MODEL_RATE_LIMITED => "the provider got too many requests",
        code::MODEL_QUOTA => "the provider's quota is used up",
        code::MODEL_TIMEOUT => "the provider took too long",
        code::MODEL_BAD_RESPONSE => "the host does not understand the provider's answer",
        _ => "the provider is not available",
    }
}

/// Returns a provider's text on one line, cut to [`MAX_QUOTED_CHARS`] characters.
pub(crate) fn readable(text: &str) -> String {
    let clean = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let mut short: String = clean.clone().take(MAX_QUOTED_CHARS).collect();
    if clean.count() > MAX_QUOTED_CHARS {
        short.push('…');
    }
    short.trim().to_owned()
}

/// Returns the value of the header `x-should-retry`, or `None` if it is neither `true` nor `false`.
pub(crate) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    match headers.get("x-should-retry")?.as_bytes() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// Returns the wait that the provider asks for: `retry-after-ms`, or `retry-after` in seconds or as a date. Returns
/// `None` without such a header, or if the wait is too long for the dialect.
pub(crate) fn asked_wait(headers: &HeaderMap, dialect: Dialect, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |text: &str, unit: f64| {
        let number = text.parse::<f64>().ok().filter(|number| *number >= 0.0)?;
        Duration::try_from_secs_f64(number * unit).ok()
    };
    let date = |text: &str| httpdate::parse_http_date(text).ok()?.duration_since(now).ok();
    let wait = text("retry-after-ms").and_then(|text| seconds(text, 0.001)).or_else(|| {
        let after = text("retry-after")?;
        seconds(after, 1.0).or_else(|| date(after))
    })?;
    (dialect == Dialect::Messages || wait <= MAX_OPENAI_WAIT).then_some(wait)
}

/// Returns the wait after `failed` attempts have failed, if the provider asks for no wait. `chance` is a random number
/// from 0 to 1, and shortens the wait.
pub(crate) fn usual_wait(failed: u32, chance: f64) -> Duration {
    let doubled = FIRST_WAIT_SECONDS * 2_f64.powi(failed.saturating_sub(1).min(16) as i32);
    Duration::from_secs_f64(doubled.min(MAX_WAIT_SECONDS) * (1.0 - chance * MAX_JITTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_the_guard_refuses_keeps_its_code_and_its_wait() {
        let refused = Failure { retry_after_ms: Some(2_500), ..Failure::retryable(code::CIRCUIT_OPEN, "down") };
        let AttemptError { failure, wait } = from_exchange(refused, false);
        assert_eq!((&*failure.code, failure.retryable), (code::CIRCUIT_OPEN, true));
        assert_eq!(wait, Some(Duration::from_millis(2_500)));
        let refused = from_exchange(Failure::retryable(code::CONNECT, "down"), false);
        assert_eq!((&*refused.failure.code, refused.wait), (code::MODEL_CONNECT, None));
    }
}
