//! Tells a person whose answer to a question came too late who was first, and when.

use std::time::Duration;

use flowcell_contract::RunId;
use flowcell_platform::{
    tenants::{
        Tenants,
        audit::{AuditEntry, find_last_entry},
    },
    waiting,
};
use flowcell_runtime::ports::StoreError;
use serde_json::json;

use super::{api_error::ApiError, app::Request};

/// The action of an answer in the audit log.
pub(crate) const REPLY: &str = "gate.reply";
/// The number of characters of a subject that the audit log keeps.
const MAX_SUBJECT_CHARS: usize = 256;
/// The maximum time between an answer and its entry in the audit log, in milliseconds, with the difference of the clocks.
const MAX_ENTRY_DELAY_MS: u64 = 10_000;
/// The number of searches for the entry of an answer, and the time between two of them. The entry is written after the
/// answer is on stable storage.
const SEARCHES: u32 = 5;
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the subject of an answer in the audit log.
pub(crate) fn audit_subject(run: &RunId, gate: &str) -> String {
    format!("{run}/{gate}")
}

/// An answer that came first.
struct FirstAnswer {
    at: u64,
    /// The actor in the audit log, and the name of its token, which may be empty.
    by: Option<(String, String)>,
}

/// Adds the first answer to the error of a later one: its time, and the person as in the audit log. Returns the error as it
/// is if no answer was recorded at this address.
pub(crate) async fn explain(request: Request, run: RunId, gate: String, error: ApiError) -> ApiError {
    let now = request.host.now();
    match find(request, run, gate).await {
        Ok(Some(first)) => first.describe(error, now),
        // The later answer is refused in any case.
        Ok(None) | Err(_) => error,
    }
}

async fn find(request: Request, run: RunId, gate: String) -> Result<Option<FirstAnswer>, ApiError> {
    let subject: String = audit_subject(&run, &gate).chars().take(MAX_SUBJECT_CHARS).collect();
    let answered = request.clone().reading(move |request| {
        let children = |run: &RunId| match request.host.runs() {
            Some(runs) => runs.children(request.tenant(), run),
            None => Err(StoreError::unavailable("the host has no durable store")),
        };
        Ok(waiting::answered_at(&request.host, &run, &gate, children)?)
    });
    let Some(at) = answered.await? else { return Ok(None) };
    // Without tokens every caller is the same one, and nothing is logged.
    let searches = if request.app.identity.asks_for_tokens() { SEARCHES } else { 0 };
    for search in 0..searches {
        if search > 0 {
            tokio::time::sleep(SEARCH_INTERVAL).await;
        }
        let subject = subject.clone();
        let by = request.clone().blocking(move |request| {
            let is_answer = |entry: &AuditEntry| {
                entry.action == REPLY && entry.subject == subject && entry.ts.abs_diff(at) <= MAX_ENTRY_DELAY_MS
            };
            Ok(find_last_entry(&Tenants::of(&request.app.host), request.tenant().as_str(), is_answer)?)
        });
        if let Some((entry, name)) = by.await? {
            return Ok(Some(FirstAnswer { at, by: Some((entry.actor, name)) }));
        }
    }
    Ok(Some(FirstAnswer { at, by: None }))
}

impl FirstAnswer {
    fn describe(self, error: ApiError, now: u64) -> ApiError {
        let seconds = now.saturating_sub(self.at) / 1_000;
        let mut details = json!({ "answeredAt": self.at });
        let who = self.by.map_or_else(String::new, |(actor, name)| {
            details["answeredBy"] = json!({ "id": actor });
            if name.is_empty() {
                return format!(" by `{actor}`");
            }
            details["answeredBy"]["name"] = name.as_str().into();
            format!(" by `{name}` (`{actor}`)")
        });
        error.with_addition(&format!("; it was answered{who} {seconds} s ago")).with_details(details)
    }
}
