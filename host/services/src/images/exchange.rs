//! Makes attempts at a call of an image endpoint until one succeeds.

use bytes::Bytes;
use flowcell_contract::{BINARY, Effect, Failure, Json, Outgoing, Value};
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
};

use super::{
    COST_USD, Images,
    answer::{Answer, ImageSource, too_large},
    form::Form,
    picture,
    request::{Request, wrong},
};
use crate::{
    client::{self, Message, Progress},
    code,
    egress::{Destination, OriginGrants},
    model::{
        Dialect, Wait,
        attempt_error::{self, AttemptError, Report},
    },
    redaction::{Redaction, SearchBudget},
    secret::Key,
};

/// Maximum bytes of a request's body.
const MAX_BODY: usize = 32 << 20;
/// Maximum bytes of an answer.
const MAX_ANSWER: usize = 64 << 20;
/// Maximum bytes of an image behind a URL.
const MAX_IMAGE: usize = 32 << 20;
/// Maximum bytes of an error body that are read.
const MAX_ERROR: usize = 64 << 10;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A running call.
pub(super) struct Exchange<'a> {
    images: &'a Images,
    request: &'a Request,
    outgoing: &'a Outgoing,
    /// The progress of the current attempt.
    progress: Progress,
    /// The number of failed attempts whose images the endpoint may have made and charged.
    charged_failures: u64,
    /// The budget of the searches for the key in all answers of the call.
    budget: SearchBudget,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(images: &'a Images, request: &'a Request, outgoing: &'a Outgoing) -> Exchange<'a> {
        let budget = SearchBudget::for_call(&outgoing.caller.tenant);
        Exchange { images, request, outgoing, progress: Progress::Unsent, charged_failures: 0, budget }
    }

    /// Returns true if the endpoint may have made images in the current attempt.
    pub(super) fn may_have_happened(&self) -> bool {
        match self.progress {
            Progress::Unsent => false,
            Progress::Sent => true,
            Progress::Answered(status) => !status.is_client_error(),
        }
    }

    /// Ends a failed attempt, and counts it in `charged_failures` unless nothing was sent or the endpoint answered
    /// with a status that is not a success. The host assumes that such an attempt is not charged, although after a
    /// 5xx status images may exist ([`Exchange::may_have_happened`]).
    pub(super) fn end_failed_attempt(&mut self) {
        let refused = matches!(self.progress, Progress::Answered(status) if !status.is_success());
        if self.progress != Progress::Unsent && !refused {
            self.charged_failures += 1;
        }
    }

    /// Returns the cost in USD of the failed attempts that `charged_failures` counts, or `None` if no price is
    /// configured.
    fn lost_cost(&self) -> Option<f64> {
        self.images.profile.price_of(self.charged_failures * self.request.count())
    }

    /// Adds the cost of the failed attempts to the details of a failure.
    pub(super) fn with_lost_cost(&self, failure: Failure) -> Failure {
        let Some(usd) = self.lost_cost().filter(|_| self.charged_failures > 0) else { return failure };
        let mut members = failure.details.as_ref().and_then(Json::as_object).cloned().unwrap_or_default();
        members.insert(COST_USD.into(), Json::from(serde_json::Value::from(usd)));
        Failure { details: Some(Json::object(members)), ..failure }
    }

    pub(super) async fn attempts(&mut self) -> Result<Value, Failure> {
        let (kind, body) = self.body().await?;
        let images = self.images;
        for attempt in 1.. {
            self.progress = Progress::Unsent;
            let failed = match self.attempt(&kind, &body).await {
                Ok(made) => return Ok(made),
                Err(failed) => failed,
            };
            self.end_failed_attempt();
            let again = self.outgoing.effect != Effect::Once || !self.may_have_happened();
            if !failed.failure.retryable || !again || attempt > images.profile.max_retries() {
                return Err(failed.failure);
            }
            let usual = attempt_error::usual_wait(attempt, images.clock.chance());
            images.clock.sleep(Wait::Backoff, failed.wait.unwrap_or(usual)).await;
        }
        Err(Failure::new(code::MODEL_OVERLOADED, "all attempts failed"))
    }

    /// Builds the body, which is the same for every attempt, and its media type.
    async fn body(&self) -> Result<(String, Bytes), Failure> {
        let Request { images, mask, prompt, options } = self.request;
        if images.is_empty() {
            let members = [("prompt".into(), Json::from(prompt.as_str()))].into_iter().chain(options.clone());
            return Ok(("application/json".into(), Bytes::from(Json::object(members).to_text())));
        }
        let mut form = Form::new(&self.outgoing.key);
        let name = if images.len() == 1 { "image" } else { "image[]" };
        let all = images.iter().map(|image| (name, image)).chain(mask.iter().map(|mask| ("mask", mask)));
        let mut room = MAX_BODY;
        for (number, (name, file)) in all.enumerate() {
            let bytes = self.images.files.get(&self.outgoing.caller.tenant, file.clone()).await?;
            let left = room.checked_sub(bytes.len());
            room = left.ok_or_else(|| wrong(&format!("the images have more than {MAX_BODY} bytes in total")))?;
            let mime = picture::media_type(&bytes).unwrap_or(BINARY);
            form.add_file(name, &format!("{name}-{}.{}", number + 1, picture::file_extension(&bytes)), mime, &bytes);
        }
        form.add_text("prompt", prompt);
        for (name, value) in options {
            form.add_text(name, &value.as_str().map_or_else(|| value.to_text(), str::to_owned));
        }
        let (kind, bytes) = form.finish();
        Ok((kind, Bytes::from(bytes)))
    }

    async fn attempt(&mut self, kind: &str, body: &Bytes) -> Result<Value, AttemptError> {
        let images = self.images;
        let key = match &images.endpoint.key {
            Some(source) => Some(source.read(&images.environment, code::MODEL_AUTH).await?),
            None => None,
        };
        let redaction = Redaction::new(key.clone(), self.budget.clone());
        let function = if self.request.images.is_empty() { "images/generations" } else { "images/edits" };
        let egress = images.client.egress();
        let to = egress.admit(&images.profile.function_url(function), &images.endpoint.origin)?;
        let message = self.message(key.as_ref(), kind, body)?;
        let tenant = &self.outgoing.caller.tenant;
        let sent = images.client.send(tenant, &to, message, &mut self.progress).await;
        let answer = sent.map_err(|failure| attempt_error::from_exchange(failure, false))?;
        if answer.status != StatusCode::OK {
            return Err(self.read_refusal(answer, &redaction).await);
        }
        let bytes = read_whole(answer, MAX_ANSWER, "the answer").await?;
        // Each image carries its share of the cost of failed attempts.
        let usd = |made: u64| Some((images.profile.price_of(made)? + self.lost_cost()?) / made.max(1) as f64);
        let answer = Answer::read(&bytes, self.request.count(), usd)?.redacted(&redaction).await;
        // The images exist now, and another attempt would make further images.
        let kept = self.store_images(answer, &to, &redaction).await;
        match kept {
            Ok(kept) => Ok(kept),
            Err(failed) => Err(Failure { retryable: false, ..redaction.failure(failed.failure).await }.into()),
        }
    }

    fn message(&self, key: Option<&Key>, kind: &str, body: &Bytes) -> Result<Message, AttemptError> {
        let mut headers = plain_headers("application/json");
        let value = |text: &str| {
            let unsendable = |_| Failure::new(code::MODEL_INVALID_REQUEST, "a header of the call is invalid");
            HeaderValue::from_str(text).map_err(unsendable)
        };
        headers.insert(CONTENT_TYPE, value(kind)?);
        headers.insert(IDEMPOTENCY_KEY, value(&self.outgoing.key)?);
        headers.extend(self.images.endpoint.headers.iter().cloned());
        if let Some(key) = key {
            let shown = self.images.profile.members.auth.add_header(key, &mut headers);
            shown.map_err(|why| Failure::new(code::MODEL_AUTH, why))?;
        }
        let reuse = self.outgoing.effect != Effect::Once;
        let run = Some(self.outgoing.caller.run_id.clone());
        Ok(Message { method: Method::POST, headers, body: body.clone(), reuse, run, until: None })
    }

    /// Converts an answer with an error status to the error of the attempt, with the key redacted.
    async fn read_refusal(&self, answer: client::Answer, redaction: &Redaction) -> AttemptError {
        let (status, headers) = (answer.status, answer.headers.clone());
        let text = read_whole(answer, MAX_ERROR, "the answer").await.unwrap_or_default();
        let report = Json::parse(&String::from_utf8_lossy(&text)).map(|json| Report::read(&json)).unwrap_or_default();
        let mut failed = report.attempt_error(Some(status), redaction).await;
        failed.wait = attempt_error::asked_wait(&headers, Dialect::Chat, self.images.clock.now());
        failed
    }

    /// Stores the images of an answer as files, and returns the reply of the call.
    async fn store_images(
        &self,
        mut answer: Answer,
        endpoint: &Destination,
        redaction: &Redaction,
    ) -> Result<Value, AttemptError> {
        let mut kept = Vec::new();
        for made in std::mem::take(&mut answer.made) {
            let bytes = match made {
                ImageSource::Bytes(bytes) => bytes,
                ImageSource::Url(url) => self.fetch_image(&url, endpoint).await?,
            };
            let bytes = redaction.bytes(bytes).await;
            let mime = picture::media_type(&bytes);
            let mime = mime.ok_or_else(|| AttemptError::nonsense("the content is not PNG, JPEG, GIF, WebP or AVIF"))?;
            kept.push(self.images.files.put(&self.outgoing.caller.tenant, bytes, mime.to_owned()).await?);
        }
        Ok(answer.into_value(kept, self.request.count()))
    }

    /// Loads an image from a URL. Does not send the API key, which is only for the endpoint.
    async fn fetch_image(&self, url: &str, endpoint: &Destination) -> Result<Vec<u8>, AttemptError> {
        let (client, tenant) = (&self.images.client, &self.outgoing.caller.tenant);
        let origin = url.split('/').take(3).collect::<Vec<_>>().join("/");
        if !origin.starts_with("https://") && origin != endpoint.origin().to_string() {
            return Err(AttemptError::nonsense(
                "the answer has the URL of an image that is neither `https` nor at the endpoint",
            ));
        }
        let grant =
            origin.parse().map_err(|why| AttemptError::nonsense(format!("the URL of an image is invalid: {why}")))?;
        let to = client.egress().admit(url, &OriginGrants::from_iter([grant]))?;
        let (headers, run) = (plain_headers("image/*"), Some(self.outgoing.caller.run_id.clone()));
        let message = Message { method: Method::GET, headers, body: Bytes::new(), reuse: true, run, until: None };
        let sent = client.send(tenant, &to, message, &mut Progress::default()).await;
        let answer = sent.map_err(|failure| attempt_error::from_exchange(failure, false))?;
        if answer.status != StatusCode::OK {
            let message = format!("the server of an image answered with the status {}", answer.status.as_u16());
            return Err(AttemptError::nonsense(message));
        }
        read_whole(answer, MAX_IMAGE, "the image").await
    }
}

fn plain_headers(accept: &'static str) -> HeaderMap {
    HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static(accept)),
        // A compressed answer could be a decompression bomb, and images are compressed already.
        (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        (USER_AGENT, HeaderValue::from_static(concat!("flowcell/", env!("CARGO_PKG_VERSION")))),
    ])
}

/// Reads the body of an answer to its end; at most `limit` bytes. `what` names it in error messages.
async fn read_whole(answer: client::Answer, limit: usize, what: &str) -> Result<Vec<u8>, AttemptError> {
    let client::Answer { headers, mut body, .. } = answer;
    if !client::encodings(&headers).is_empty() {
        return Err(AttemptError::nonsense(format!("{what} is encoded, which the host did not request")));
    }
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await.map_err(|failure| attempt_error::from_exchange(failure, true))? {
        if bytes.len() + piece.len() > limit {
            return Err(too_large(what, limit));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
