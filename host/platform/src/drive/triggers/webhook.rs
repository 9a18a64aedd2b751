//! Accepts incoming posts. A post is authenticated by its signature alone. All posts to a trigger with the same id
//! start one run.
//!
//! The sender is anonymous until a signature fits. So a sender without the right key gets the same answer whether the
//! tenant, the flow or the trigger exists or not.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_flow::triggers::Cause;
use flowcell_services::webhook::{Received, SigningKey, Unsigned};
use http::HeaderMap;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{
    Triggers,
    live::TenantTrigger,
    start::{Outcome, Start, TriggerStartError, run_id, short_hash, start},
};
use crate::Host;

/// Maximum size in bytes of a post.
pub const POST_BYTES: usize = 1024 * 1024;
/// The secret that checks posts to unknown triggers, so that such a check takes as long as any other.
const DUMMY_SECRET: &str = "a secret that nobody has";

/// A sender that is not authenticated gets its answer at a multiple of this time after the arrival of the post.
/// So the time of the answer does not reveal whether the trigger exists, nor how many keys it has.
pub const REFUSAL_INTERVAL: Duration = Duration::from_millis(50);

/// The result of an accepted post.
#[derive(Debug)]
pub enum PostResult {
    /// The new run is on stable storage.
    Started(RunId),
    /// The same post has come before. The value is the run that it has started.
    Known(RunId),
}

/// An error of a post.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The sender is not authenticated.
    #[error(transparent)]
    Unsigned(#[from] Unsigned),
    /// An earlier post with the same id had another body.
    #[error("the `webhook-id` was used before with another body")]
    OtherBody,
    /// The body is JSON with numbers that cannot be stored exactly.
    #[error("the body cannot be the input of a run: {0}")]
    Body(serde_json::Error),
    /// The server is stopping.
    #[error("the server is stopping")]
    Draining,
    /// A temporary error. The sender may retry.
    #[error("{0}")]
    Later(TriggerStartError),
    /// A permanent error. A retry would fail again.
    #[error("{0}")]
    Never(TriggerStartError),
}

impl Triggers {
    /// Accepts a post with its original headers and body, and starts the flow of the trigger. `place` is the tenant,
    /// the flow and the id of the trigger. `now` is in milliseconds since 1970. The answer to an unauthenticated sender
    /// is delayed, see [`REFUSAL_INTERVAL`].
    pub async fn receive(
        &self,
        place: (&Tenant, &str, &str),
        headers: &HeaderMap,
        body: &[u8],
        now: u64,
    ) -> Result<PostResult, HookError> {
        let came = Instant::now();
        let taken = self.check_and_start(place, headers, body, now).await;
        if matches!(taken, Err(HookError::Unsigned(_))) {
            tokio::time::sleep_until(came + refusal_time(came.elapsed())).await;
        }
        taken
    }

    async fn check_and_start(
        &self,
        (tenant, flow, id): (&Tenant, &str, &str),
        headers: &HeaderMap,
        body: &[u8],
        now: u64,
    ) -> Result<PostResult, HookError> {
        let received = Received::read(headers, system_time(now))?;
        let known = self.triggers_at_last_look(tenant);
        let live = known.iter().find(|live| live.enabled && live.flow == flow && live.trigger.id == id);
        let host = live.and_then(|_| self.owners.host(tenant));
        let keys = match (&host, live) {
            (Some(host), Some(live)) => signing_keys(host, live).await,
            _ => Vec::new(),
        };
        let nobodys = SigningKey::new(DUMMY_SECRET).map(|key| vec![key]).unwrap_or_default();
        let checked = received.check(if keys.is_empty() { &nobodys } else { &keys }, body);
        let (Some(host), Some(live), false) = (host, live, keys.is_empty()) else {
            return Err(Unsigned::NoSignatureFits.into());
        };
        checked?;
        self.start_run(&host, live, &received, body).await
    }

    async fn start_run(
        &self,
        host: &Host,
        live: &TenantTrigger,
        received: &Received,
        body: &[u8],
    ) -> Result<PostResult, HookError> {
        let run = run_id("hook", live, &short_hash(&received.id));
        let digest: Box<str> = hex::encode(Sha256::digest(body)).into();
        if let Some(taken) = find_earlier_post(host, &run, &digest)? {
            return Ok(taken);
        }
        if self.owners.is_draining() {
            return Err(HookError::Draining);
        }
        let about = vec![
            ("kind", Json::from("webhook")),
            ("messageId", Json::from(received.id.as_str())),
            ("body", parse_body(body)?),
        ];
        let begin = Start { run, about, request: Some(digest.clone()) };
        match start(&*self.owners, host, live, begin).await {
            Outcome::Started(run) => Ok(PostResult::Started(run)),
            // The same post, or another one with the same id, came at the same time.
            Outcome::Known(run) => Ok(find_earlier_post(host, &run, &digest)?.unwrap_or(PostResult::Known(run))),
            Outcome::Later(problem) => Err(HookError::Later(problem)),
            Outcome::Never(problem) => Err(HookError::Never(problem)),
        }
    }
}

/// Returns the time between the arrival and the refusal of a post. `known` is the time that the decision took. The
/// result is the next multiple of [`REFUSAL_INTERVAL`].
fn refusal_time(known: Duration) -> Duration {
    let steps = known.as_micros() / REFUSAL_INTERVAL.as_micros() + 1;
    REFUSAL_INTERVAL * u32::try_from(steps).unwrap_or(u32::MAX)
}

/// Returns the result of an earlier post that has started the run `run`, or `None` if there was none. Fails if the
/// earlier post had a body with another digest. If the run was removed, the body of the earlier post is unknown, and
/// the posts count as the same.
fn find_earlier_post(host: &Host, run: &RunId, digest: &str) -> Result<Option<PostResult>, HookError> {
    let later = |error: flowcell_runtime::ports::StoreError| HookError::Later(error.into());
    if !host.knows(run).map_err(later)? {
        return Ok(None);
    }
    match host.record(run) {
        Ok(Some(record)) if record.request.as_deref() != Some(digest) => Err(HookError::OtherBody),
        _ => Ok(Some(PostResult::Known(run.clone()))),
    }
}

/// Returns the keys that may sign posts to a trigger. A key that cannot be loaded is logged.
async fn signing_keys(host: &Host, live: &TenantTrigger) -> Vec<SigningKey> {
    let Cause::Webhook { secret } = &live.trigger.cause else { return Vec::new() };
    let mut keys = Vec::new();
    for name in secret {
        match host.signing_key(name).await {
            Ok(key) => keys.push(key),
            Err(failure) => tracing::warn!("the trigger `{}`: {}", live.key(), failure.message),
        }
    }
    keys
}

/// Parses a body as JSON, or else as a string. JSON with numbers that cannot be stored exactly is an error.
fn parse_body(body: &[u8]) -> Result<Json, HookError> {
    let text = String::from_utf8_lossy(body);
    match serde_json::from_str::<Json>(&text) {
        Ok(json) => Json::check_numbers(&text).map(|()| json).map_err(HookError::Body),
        Err(_) => Ok(Json::from(&*text)),
    }
}

fn system_time(now: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h7_the_time_of_a_refusal_reveals_nothing() {
        let ms = Duration::from_millis;
        for (known, told) in [(0, 50), (1, 50), (49, 50), (50, 100), (51, 100), (149, 150)] {
            assert_eq!(refusal_time(ms(known)), ms(told), "{known}");
        }
        assert_eq!(refusal_time(Duration::from_micros(159)), refusal_time(Duration::from_micros(264)));
    }
}
