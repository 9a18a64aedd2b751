//! Accepts incoming posts. A post is authenticated by the [scheme](flowcell_flow::triggers::schemes) of its webhook
//! alone. All posts to a trigger with the same id start one run.
//!
//! The sender is anonymous until it has proved that it knows a secret. So a sender without the right key gets the same
//! answer whether the tenant, the flow or the trigger exists or not, and whatever the scheme of the webhook is.

mod post;
mod proof;
#[cfg(test)]
mod tests;

use std::{
    fmt::Display,
    hint::black_box,
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_flow::triggers::{
    Webhook,
    schemes::{Place, Proof, STANDARD, Scheme},
};
use flowcell_services::webhook::SigningKey;
use http::HeaderMap;
use ring::hmac::HMAC_SHA256;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

pub use self::post::ChallengeReply;
use self::{
    post::{Content, Post},
    proof::SenderProof,
};
use super::{
    Triggers,
    live::TenantTrigger,
    post_limiter::{MAX_REFUSED_POSTS, Pair},
    reply::AwaitedReply,
    start::{Outcome, Start, TriggerStartError, run_id, short_hash, start},
};
use crate::{Host, observe::metrics::PostOutcome};

/// Maximum size in bytes of a post.
pub const POST_BYTES: usize = 1024 * 1024;
/// The secret that checks posts to unknown triggers, so that such a check takes as long as any other.
const DUMMY_SECRET: &str = "a secret that nobody has";
/// Maximum characters of a sender's text in the log.
const MAX_SHOWN_CHARS: usize = 64;

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
    /// The run of this or an earlier post exists, and answers the post.
    Awaits(AwaitedReply),
    /// The run of this or an earlier post exists, and the sender expects 204 without a body.
    Taken,
    /// The post only tests the address, and has started nothing.
    Challenge(ChallengeReply),
}

/// An error of a post.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// Too many posts from the address of the sender to this trigger were refused. The post was not checked.
    #[error(
        "too many posts from this address to this trigger were refused; check the secret, and try again in {seconds} s"
    )]
    TooMany {
        /// The number of seconds for which posts from the address to the trigger are not checked.
        seconds: u32,
    },
    /// The sender is not authenticated. The text is the same for all schemes and for unknown triggers.
    #[error(
        "the post is not accepted: its proof is missing or wrong, or there is no such trigger; the log of the server \
         has the reason"
    )]
    Unsigned,
    /// An earlier post with the same id had another body.
    #[error("the id of the post was used before with another body")]
    OtherBody,
    /// The post has no valid id at the place that its scheme names.
    #[error("the post has no valid id, which makes repeated deliveries count once: {0}")]
    Id(String),
    /// The body has several parts, and is not a form.
    #[error("a trigger reads no bodies of several parts but `multipart/form-data`; send such a form, or JSON")]
    Multipart,
    /// The parts of a form cannot be read.
    #[error("the body is not `multipart/form-data`, as its header says: {0}")]
    Parts(String),
    /// A part of a form cannot be used.
    #[error("the form cannot be the input of a run: {0}")]
    Part(String),
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
    /// the flow and the id of the trigger. `from` is the address of the sender; without it the number of refused posts is not
    /// limited. `now` is in milliseconds since 1970. The answer to an unauthenticated sender is delayed, see
    /// [`REFUSAL_INTERVAL`].
    pub async fn receive(
        &self,
        place: (&Tenant, &str, &str),
        from: Option<IpAddr>,
        headers: &HeaderMap,
        body: &[u8],
        now: u64,
    ) -> Result<PostResult, HookError> {
        let came = Instant::now();
        let (tenant, flow, id) = place;
        let sender = from.map(|from| Pair::new(from, place));
        let known = self.triggers_at_last_look(tenant);
        let addressed = known.iter().find_map(|live| Some((live, live.webhook_at(flow, id)?)));
        let addressed = addressed.and_then(|(live, webhook)| Some((self.owners.host(tenant)?, live, webhook)));
        let expects_nothing = addressed.as_ref().is_some_and(|(.., webhook)| webhook.scheme().expects_nothing);
        let (counted, taken) = match addressed {
            Some((host, live, webhook)) => {
                let taken = self.check_and_start((&host, live, webhook), sender, headers, body, now).await;
                ((Some(tenant), outcome(&taken)), taken)
            }
            None => {
                let limited = self.check_limit(sender);
                let refused = limited.and_then(|()| Err(self.refuse_unknown(place, sender, body, now)));
                ((None, PostOutcome::UnknownTrigger), refused)
            }
        };
        if let (Err(HookError::TooMany { .. }), Some(from)) = (&taken, from) {
            self.log_limited(place, from, now);
        }
        // Before the delay, so that the time of the answer does not depend on the count.
        if let Some(metrics) = self.owners.metrics() {
            metrics.count_post(counted.0, counted.1);
            if let Some(tenant) = counted.0
                && counted.1.is_refusal()
            {
                metrics.refused_triggers().count(tenant, flow, id, counted.1.name(), now);
            }
        }
        if matches!(taken, Err(HookError::Unsigned | HookError::TooMany { .. })) {
            tokio::time::sleep_until(came + refusal_time(came.elapsed())).await;
        }
        match taken {
            Ok(PostResult::Started(_) | PostResult::Known(_)) if expects_nothing => Ok(PostResult::Taken),
            taken => taken,
        }
    }

    /// Fails if too many posts of this sender to this trigger were refused.
    fn check_limit(&self, sender: Option<Pair>) -> Result<(), HookError> {
        let seconds = sender.and_then(|sender| self.post_limiter.retry_after(&sender, Instant::now()));
        seconds.map_or(Ok(()), |seconds| Err(HookError::TooMany { seconds }))
    }

    /// Counts a refused post.
    fn count_refused(&self, sender: Option<Pair>) {
        if let Some(sender) = sender {
            self.post_limiter.count(sender, Instant::now());
        }
    }

    /// Logs that posts of an address are not checked, once a minute for each address.
    fn log_limited(&self, (tenant, flow, id): (&Tenant, &str, &str), from: IpAddr, now: u64) {
        if let Some(count) = self.refused_posts.count(&format!("limited {from}"), now) {
            let (tenant, flow, id) = (shown(tenant.as_str()), shown(flow), shown(id));
            tracing::warn!(
                "posts from {from} were not checked, because {MAX_REFUSED_POSTS} posts to the same trigger were refused \
                 within a minute: {count} since the last such line; the last one was to the trigger `{id}` of the flow \
                 `{flow}` of `{tenant}`"
            );
        }
    }

    /// Logs and counts a post to a trigger that is missing or disabled, and returns the error for its sender. This takes as
    /// long as the check of one secret of a trigger.
    fn refuse_unknown(
        &self,
        (tenant, flow, id): (&Tenant, &str, &str),
        sender: Option<Pair>,
        body: &[u8],
        now: u64,
    ) -> HookError {
        if let Some(count) = self.refused_posts.count("unknown", now) {
            let (tenant, flow, id) = (shown(tenant.as_str()), shown(flow), shown(id));
            tracing::warn!(
                "posts to unknown or disabled triggers were refused, {count} since the last such line; the last one was \
                 to the trigger `{id}` of the flow `{flow}` of `{tenant}`"
            );
        }
        let key = SigningKey::from_text(DUMMY_SECRET);
        let _ = black_box(key.has_signed(HMAC_SHA256, body, &[0; 32]));
        self.count_refused(sender);
        HookError::Unsigned
    }

    async fn check_and_start(
        &self,
        (host, live, webhook): (&Host, &TenantTrigger, &Webhook),
        sender: Option<Pair>,
        headers: &HeaderMap,
        body: &[u8],
        now: u64,
    ) -> Result<PostResult, HookError> {
        let scheme = webhook.scheme();
        // A signature cannot be guessed, and a service sends the hooks of all its customers from the same addresses. So a
        // post that is signed rightly is accepted above the limit, too. Others get the same answers with every scheme.
        let may_guess = !matches!(scheme.proof, Proof::Hmac(_) | Proof::Ed25519 { .. });
        if may_guess {
            self.check_limit(sender)?;
        }
        let trigger = format!("the trigger `{}` of `{}`", live.key(), host.tenant());
        // Anyone can send such posts.
        let log_together = |line: String| {
            if let Some(count) = self.refused_posts.count(&line, now) {
                tracing::warn!("{line} ({count} since the last such line)");
            }
        };
        let logged = |post: Option<&str>, why: &dyn Display| {
            let post = post.map_or("a post".to_owned(), |id| format!("the post `{}`", shown(id)));
            tracing::warn!("{trigger} refuses {post}: {why}");
        };
        let proved = match SenderProof::read(&scheme, headers, body, system_time(now)) {
            Ok(proof) => {
                let (keys, failures) = keys(host, webhook).await;
                failures.iter().for_each(|why| log_together(format!("{trigger}: {why}")));
                // Nothing waits between this check and the count, so posts that came at the same time count, too.
                if may_guess {
                    self.check_limit(sender)?;
                }
                proof.check(&keys)
            }
            Err(why) => Err(why),
        };
        if let Err(why) = proved {
            let limited = self.check_limit(sender);
            self.count_refused(sender);
            log_together(format!("{trigger} refuses posts: {why}"));
            return limited.and(Err(HookError::Unsigned));
        }
        match post::read(&scheme, headers, body, &|name, bytes| host.keep_file(name, bytes)).await {
            Ok(Content::Event(post)) => {
                // A post of a scheme without ids has a random one, which its sender does not know.
                let id = scheme.id.map(|_| post.id.clone());
                let taken =
                    self.start_run(host, live, &scheme, post, body).await.map(|taken| awaiting(host, webhook, taken));
                taken.inspect_err(|why| logged(id.as_deref(), why))
            }
            Ok(Content::Challenge(reply)) => Ok(PostResult::Challenge(reply)),
            Err(why) => {
                let id = match scheme.id {
                    Some(Place::Header(name)) => proof::single_header(headers, name).ok(),
                    _ => None,
                };
                logged(id, &why);
                Err(why)
            }
        }
    }

    async fn start_run(
        &self,
        host: &Host,
        live: &TenantTrigger,
        scheme: &Scheme<'_>,
        post: Post,
        body: &[u8],
    ) -> Result<PostResult, HookError> {
        let run = run_id("hook", live, &short_hash(&post.id));
        let parts = post.has_parts.then(|| post.body.to_text());
        let same = match &parts {
            _ if !scheme.repeats_body => post.id.as_bytes(),
            Some(parts) => parts.as_bytes(),
            None => body,
        };
        let digest: Box<str> = hex::encode(Sha256::digest(same)).into();
        // Only the post that has started the run knows whether it is on stable storage.
        let _alone = self.posts.lock(host.tenant(), &run).await;
        if let Some(taken) = find_earlier_post(host, &run, &digest)? {
            return Ok(taken);
        }
        if self.owners.is_draining() {
            return Err(HookError::Draining);
        }
        let mut about = vec![("kind", Json::from("webhook")), ("messageId", Json::from(post.id))];
        about.extend(post.event.map(|event| ("event", event)));
        about.push(("body", post.body));
        let begin = Start { run, about, request: Some(digest.clone()) };
        match start(&*self.owners, host, live, begin).await {
            Outcome::Started(run) => Ok(PostResult::Started(run)),
            // The same post, or another one with the same id, came to another process at the same time.
            Outcome::Known(run) => Ok(find_earlier_post(host, &run, &digest)?.unwrap_or(PostResult::Known(run))),
            Outcome::Later(problem) => Err(HookError::Later(problem)),
            Outcome::Never(problem) => Err(HookError::Never(problem)),
        }
    }
}

/// Returns the result of a post to a webhook whose runs may answer.
fn awaiting(host: &Host, webhook: &Webhook, taken: PostResult) -> PostResult {
    let reply = match &taken {
        PostResult::Started(run) => AwaitedReply::new(host, webhook, run, true),
        PostResult::Known(run) => AwaitedReply::new(host, webhook, run, false),
        PostResult::Awaits(_) | PostResult::Taken | PostResult::Challenge(_) => None,
    };
    reply.map_or(taken, PostResult::Awaits)
}

/// Prepares a text of a sender for the log: at most [`MAX_SHOWN_CHARS`] characters, which are escaped.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect()
}

/// Returns the outcome of a post to a trigger that the server has.
fn outcome(taken: &Result<PostResult, HookError>) -> PostOutcome {
    match taken {
        Ok(PostResult::Started(_)) => PostOutcome::Started,
        Ok(PostResult::Known(_) | PostResult::Taken) => PostOutcome::Repeated,
        Ok(PostResult::Awaits(reply)) if reply.is_new() => PostOutcome::Started,
        Ok(PostResult::Awaits(_)) => PostOutcome::Repeated,
        Ok(PostResult::Challenge(_)) => PostOutcome::Challenge,
        Err(HookError::Unsigned) => PostOutcome::Unsigned,
        Err(HookError::TooMany { .. }) => PostOutcome::TooMany,
        Err(HookError::OtherBody) => PostOutcome::OtherBody,
        Err(HookError::Id(_)) => PostOutcome::InvalidId,
        Err(HookError::Body(_) | HookError::Multipart | HookError::Parts(_) | HookError::Part(_)) => {
            PostOutcome::InvalidBody
        }
        Err(HookError::Draining | HookError::Later(_)) => PostOutcome::Later,
        Err(HookError::Never(_)) => PostOutcome::Failed,
    }
}

/// Returns the time between the arrival and the refusal of a post. `known` is the time that the decision took. The
/// result is the next multiple of [`REFUSAL_INTERVAL`].
fn refusal_time(known: Duration) -> Duration {
    let steps = known.as_micros() / REFUSAL_INTERVAL.as_micros() + 1;
    REFUSAL_INTERVAL * u32::try_from(steps).unwrap_or(u32::MAX)
}

/// Returns the result of an earlier post that has started the run `run`, or `None` if there was none. Fails if the
/// earlier post had another digest: of its body, or of its id if deliveries may differ. If the run was removed, the digest
/// of the earlier post is unknown, and the posts count as the same.
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

/// Returns the keys of the senders of a webhook, and why other keys cannot be loaded.
async fn keys(host: &Host, webhook: &Webhook) -> (Vec<SigningKey>, Vec<String>) {
    let (mut keys, mut failures) = (Vec::new(), Vec::new());
    for name in &webhook.secret {
        let key = match webhook.scheme().name {
            STANDARD => host.signing_key(name).await,
            _ => host.text_key(name).await,
        };
        let needs_public_key = matches!(webhook.scheme().proof, Proof::Ed25519 { .. });
        match key {
            Ok(key) if needs_public_key && key.public_key().is_none() => {
                failures.push(format!("the secret `{name}` must be the sender's public key, in 64 hexadecimal digits"));
            }
            Ok(key) => keys.push(key),
            Err(failure) => failures.push(failure.message.to_string()),
        }
    }
    (keys, failures)
}

fn system_time(now: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(now)
}
