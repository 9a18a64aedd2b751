//! Webhooks: JSON bodies that the host posts to a URL of the operator, through the egress guard.
//!
//! A post has the headers `content-type: application/json` and `user-agent: flowcell/VERSION`, and those of the
//! Standard Webhooks. `webhook-id` is the same in every attempt. `webhook-timestamp` is the time of the attempt in
//! seconds. With a secret, `webhook-signature: v1,BASE64` is the HMAC-SHA-256 of `ID.TIMESTAMP.BODY`. A secret
//! `whsec_BASE64` is decoded, any other is used unchanged.
//!
//! Any 2xx status is success. After 408, 429, a 5xx or no answer, the host posts again. Every other status is a
//! refusal, including redirects.
//!
//! | subject | limit |
//! |---|---|
//! | attempts | 8 |
//! | wait between two attempts | the server's `retry-after`, at most 60 s; else 0.5 s, doubled after each attempt up to 30 s, and shortened at random by up to a quarter |
//! | one attempt | 10 s |
//! | read part of an answer | 64 KiB |
//!
//! Failures name only the origin, because many webhook URLs are secrets themselves.

mod signature;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flowcell_contract::{Failure, Tenant, code as codes};
use futures_util::future::{Either, select};
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT},
};

pub use self::signature::{SecretSource, SigningKey};
use crate::{
    client::{Answer, Client, Message, Progress},
    code,
    egress::{Destination, OriginGrant, OriginGrants},
    model::{Clock, SystemClock, Wait},
};

/// Maximum attempts at a post.
pub const MAX_ATTEMPTS: u32 = 8;
/// Time limit of an attempt.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The first wait between two attempts; each later wait is twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait if the server requests none.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The longest wait that a server may request; a longer one is reduced to this.
const MAX_ASKED_WAIT: Duration = Duration::from_secs(60);
/// Maximum fraction by which a wait is shortened at random.
const MAX_JITTER: f64 = 0.25;
/// Maximum bytes of an answer that are read, to make its connection reusable.
const MAX_ANSWER: usize = 64 * 1024;

const ID_HEADER: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP_HEADER: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE_HEADER: HeaderName = HeaderName::from_static("webhook-signature");

/// A URL that receives posts.
#[derive(Clone)]
pub struct Webhook {
    client: Client,
    to: Destination,
    key: Option<SigningKey>,
    clock: Arc<dyn Clock>,
}

/// The reason why an attempt failed, and the decision about another attempt.
struct AttemptError {
    why: String,
    retry: Retry,
}

/// The reason why one post failed. The caller decides about another attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostError {
    /// The reason as part of a sentence. It names only the origin of the URL.
    pub why: String,
    /// True if the server has refused this post. False if it did not answer, or accepts no posts at present.
    pub is_refusal: bool,
    /// The wait that the server requests, at most 60 s.
    pub wait: Option<Duration>,
}

/// The decision about another attempt, and the wait before it.
enum Retry {
    /// Another attempt is pointless.
    Never,
    /// Another attempt follows, after the wait of [`usual_wait`].
    Default,
    /// Another attempt follows, after the wait that the server requests.
    After(Duration),
}

impl Webhook {
    /// Creates a webhook at this URL, of any port. The egress guard refuses private addresses that are not listed.
    pub fn new(client: Client, url: &str, key: Option<SigningKey>) -> Result<Webhook, Failure> {
        let wrong = |why: String| Failure::new(codes::INVALID_INPUT, why);
        let parsed = url::Url::parse(url).map_err(|error| wrong(format!("this is not a URL: {error}")))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(wrong("the URL of a webhook must begin with `https://` or `http://`".into()));
        }
        let grant: OriginGrant = parsed.origin().ascii_serialization().parse().map_err(wrong)?;
        let to = client.egress().admit(url, &[grant].into_iter().collect::<OriginGrants>())?;
        Ok(Webhook { client, to, key, clock: Arc::new(SystemClock) })
    }

    /// Returns the same webhook with another clock.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Webhook {
        Webhook { clock, ..self }
    }

    /// Returns the origin of the URL, without the parts that may be secret.
    pub fn origin(&self) -> String {
        self.to.origin().to_string()
    }

    /// Posts a body until the server accepts it, in at most [`MAX_ATTEMPTS`] attempts. The error gives the reason of
    /// the last attempt.
    pub async fn post(&self, id: &str, body: Bytes) -> Result<(), Failure> {
        let mut failed = 0;
        loop {
            let Err(refusal) = self.attempt(id, body.clone()).await else { return Ok(()) };
            failed += 1;
            let why = format!("{}: {}", self.origin(), refusal.why);
            let asked = match refusal.retry {
                Retry::Never => return Err(Failure::new(code::PROTOCOL, why)),
                Retry::Default => None,
                Retry::After(wait) => Some(wait),
            };
            if failed == MAX_ATTEMPTS {
                return Err(Failure::retryable(code::PROTOCOL, format!("{why}, after {MAX_ATTEMPTS} attempts")));
            }
            tracing::debug!("retrying a post to a webhook: {why}");
            let wait = asked.unwrap_or_else(|| usual_wait(failed, self.clock.chance()));
            self.clock.sleep(Wait::Backoff, wait).await;
        }
    }

    /// Posts a body once.
    pub async fn post_once(&self, id: &str, body: Bytes) -> Result<(), PostError> {
        self.attempt(id, body).await.map_err(|error| PostError {
            why: format!("{}: {}", self.origin(), error.why),
            is_refusal: matches!(error.retry, Retry::Never),
            wait: if let Retry::After(wait) = error.retry { Some(wait) } else { None },
        })
    }

    async fn attempt(&self, id: &str, body: Bytes) -> Result<(), AttemptError> {
        let timeout = self.clock.sleep(Wait::Total, ATTEMPT_TIMEOUT);
        match select(Box::pin(self.exchange(id, body)), timeout).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => Err(AttemptError {
                why: format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs()),
                retry: Retry::Default,
            }),
        }
    }

    async fn exchange(&self, id: &str, body: Bytes) -> Result<(), AttemptError> {
        let failed = |failure: Failure| {
            let retry = match failure.retry_after_ms {
                _ if !failure.retryable => Retry::Never,
                Some(wait) => Retry::After(Duration::from_millis(wait)),
                None => Retry::Default,
            };
            AttemptError { why: failure.message, retry }
        };
        let headers = self.headers(id, &body).map_err(failed)?;
        let message = Message { method: Method::POST, headers, body, reuse: true, run: None, until: None };
        let sent = self.client.send(&Tenant::local(), &self.to, message, &mut Progress::Unsent).await;
        let mut answer = sent.map_err(failed)?;
        let refusal = self.refusal(&answer);
        drain(&mut answer).await;
        refusal.map_or(Ok(()), Err)
    }

    fn headers(&self, id: &str, body: &[u8]) -> Result<HeaderMap, Failure> {
        let value = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| Failure::new(codes::INVALID_INPUT, "the id does not fit into a header"))
        };
        let agent = concat!("flowcell/", env!("CARGO_PKG_VERSION"));
        let now = self.clock.now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(ID_HEADER, value(id)?);
        headers.insert(TIMESTAMP_HEADER, HeaderValue::from(now));
        if let Some(key) = &self.key {
            headers.insert(SIGNATURE_HEADER, value(&key.signature(id, now, body))?);
        }
        Ok(headers)
    }

    /// Returns the reason that an answer is not a success, or `None` if it is one.
    fn refusal(&self, answer: &Answer) -> Option<AttemptError> {
        let status = answer.status;
        if status.is_success() {
            return None;
        }
        let why = format!("it answered {}", status.as_u16());
        let passes = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
            || (500..600).contains(&status.as_u16());
        let retry = match passes {
            true => self.asked_wait(&answer.headers).map_or(Retry::Default, Retry::After),
            false => Retry::Never,
        };
        Some(AttemptError { why, retry })
    }

    /// Returns the wait that the server requests by `retry-after`, in seconds or as a date, reduced to
    /// [`MAX_ASKED_WAIT`] if it is longer. Returns `None` without a valid header.
    fn asked_wait(&self, headers: &HeaderMap) -> Option<Duration> {
        let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let date = || httpdate::parse_http_date(text).ok()?.duration_since(self.clock.now()).ok();
        let wait = text.parse().ok().map(Duration::from_secs).or_else(date)?;
        Some(wait.min(MAX_ASKED_WAIT))
    }
}

/// Returns the wait after `failed` attempts have failed, if the server requests none. `chance` is a random number from
/// 0 to 1, and shortens the wait.
fn usual_wait(failed: u32, chance: f64) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << failed.saturating_sub(1).min(16));
    doubled.min(MAX_WAIT).mul_f64(1.0 - chance * MAX_JITTER)
}

async fn drain(answer: &mut Answer) {
    let mut left = MAX_ANSWER;
    while let Ok(Some(piece)) = answer.body.next().await {
        match left.checked_sub(piece.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
