//! Makes one turn: attempts until one gets a complete answer, and the sum of the usage of all attempts.

mod exchange;

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use flowcell_contract::{Effect, Failure, Json, Outgoing, Value, code as codes};
use futures_util::future::{Either, select};

use super::{
    attempt_error::{self, AttemptError},
    clock::{Clock, Wait},
    delta_buffer::DeltaBuffer,
    dialect::{Assembly, Pictures, TurnRequest},
    object_reader::wrong,
    price::{Bill, Spent, Usage, estimated_tokens},
    profile::Dialect,
    providers::Provider,
    reply::{Blocks, Outcome},
    request::{Block, Image, Request, Source},
};
use crate::{
    client::{Client, Progress},
    code,
    files::AsyncBlobs,
    redaction::SearchBudget,
    secret::Environment,
};

/// Maximum bytes of a request body.
pub(super) const MAX_BODY: usize = 32 * 1024 * 1024;

/// A turn to make.
pub(super) struct Turn {
    pub(super) provider: Arc<Provider>,
    pub(super) model: Arc<str>,
    pub(super) request: Arc<Request>,
    pub(super) outgoing: Outgoing,
    pub(super) client: Client,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) environment: Environment,
    pub(super) files: AsyncBlobs,
}

/// The state of a turn over all its attempts.
struct State {
    deltas: DeltaBuffer,
    bill: Bill,
    attempts: u32,
    /// The request body.
    body: Bytes,
    /// The progress of the current attempt.
    progress: Progress,
    assembly: Box<dyn Assembly>,
    request_id: Option<String>,
    /// The budget of the searches for the key in all answers of the turn.
    budget: SearchBudget,
    /// The budget of the searches in the pieces that are reported while the model writes.
    stream_budget: SearchBudget,
}

impl State {
    fn begin_attempt(&mut self, dialect: Dialect) {
        self.attempts += 1;
        self.progress = Progress::Unsent;
        self.assembly = dialect.assembly();
        self.request_id = None;
    }

    /// Returns true if the provider certainly did not make the turn.
    fn is_certainly_not_made(&self) -> bool {
        match self.progress {
            Progress::Unsent => true,
            Progress::Sent => false,
            Progress::Answered(status) => status.is_client_error() || status.as_u16() == 529,
        }
    }

    /// Adds the usage of the current attempt to the bill. A refused attempt used nothing. The usage of an attempt that
    /// broke off is an estimate, unless the provider reported it.
    fn add_usage(&mut self, complete: bool) {
        let refused = matches!(self.progress, Progress::Answered(status) if !status.is_success());
        if self.progress == Progress::Unsent || refused {
            return;
        }
        let used = self.assembly.used();
        let guess = Usage {
            input: estimated_tokens(self.body.len()),
            output: estimated_tokens(used.written),
            estimated: true,
            ..Usage::default()
        };
        let mut spent = used.spent_or(guess);
        if !complete && spent.usage.output < guess.output {
            spent.usage = Usage { output: guess.output, estimated: true, ..spent.usage };
        }
        self.bill.add(spent);
    }
}

impl Turn {
    /// Makes the turn, within the time limit of its provider's profile.
    pub(super) async fn make(self) -> Result<Value, Failure> {
        let dialect = self.provider.profile.dialect;
        let within = self.provider.profile.timeout();
        let mut state = State {
            deltas: DeltaBuffer::new(self.outgoing.progress.clone(), self.clock.clone()),
            bill: self.lost_bill(),
            attempts: 0,
            body: Bytes::new(),
            progress: Progress::Unsent,
            assembly: dialect.assembly(),
            request_id: None,
            budget: SearchBudget::for_call(&self.outgoing.caller.tenant),
            stream_budget: SearchBudget::for_stream(&self.outgoing.caller.tenant),
        };
        let total = self.clock.sleep(Wait::Total, within);
        let ended = match select(pin!(self.attempts(&mut state)), total).await {
            Either::Left((ended, _)) => Some(ended),
            Either::Right(_) => None,
        };
        match ended {
            Some(Ok(outcome)) => Ok(self.reply(&state, outcome)),
            Some(Err(failure)) => Err(self.with_details(&state, failure)),
            None => {
                state.add_usage(false);
                let message = format!("the turn took longer than {} ms", within.as_millis());
                Err(self.with_details(
                    &state,
                    self.ambiguous_if_once(&state, AttemptError::new(code::MODEL_TIMEOUT, message).failure),
                ))
            }
        }
    }

    /// Returns the bill of the lost requests for this turn: those during which the host process ended. Their usage is
    /// estimated. If the price is unknown, their cost is zero.
    fn lost_bill(&self) -> Bill {
        let mut bill = Bill::default();
        if self.outgoing.lost > 0 {
            let usage = Usage::estimate_unanswered(self.outgoing.call.args.text().len(), self.outgoing.lost);
            let price = self.provider.profile.price_of(&self.model);
            bill.add(Spent { usage, cost_usd: price.is_none().then_some(0.0) });
        }
        bill
    }

    async fn attempts(&self, state: &mut State) -> Result<Outcome, Failure> {
        let begin = self.clock.now();
        let profile = &self.provider.profile;
        state.body = self.body().await?;
        let mut blocks = Blocks::new(self.provider.name.clone(), &self.request, &self.outgoing.key);
        loop {
            state.begin_attempt(profile.dialect);
            let failed = match self.attempt(state, &mut blocks).await {
                Ok(outcome) => {
                    state.deltas.finish().await;
                    state.add_usage(true);
                    return Ok(outcome);
                }
                Err(failed) => failed,
            };
            state.add_usage(false);
            let usual = attempt_error::usual_wait(state.attempts, self.clock.chance());
            let wait = failed.wait.unwrap_or(usual);
            let gone = self.clock.now().duration_since(begin).unwrap_or_default();
            let late = gone.saturating_add(wait) >= profile.timeout();
            if !self.may_repeat(state, &failed.failure) || late {
                return Err(self.ambiguous_if_once(state, into_failure(failed)));
            }
            tracing::debug!(provider = %self.provider.name, reason = %failed.failure.code, "retrying a turn");
            state.deltas.retry(state.attempts + 1, &failed.failure.code, wait);
            self.clock.sleep(Wait::Backoff, wait).await;
        }
    }

    fn may_repeat(&self, state: &State, failure: &Failure) -> bool {
        let allowed = self.outgoing.effect != Effect::Once || state.is_certainly_not_made();
        failure.retryable && allowed && state.attempts <= self.provider.profile.max_retries
    }

    async fn attempt(&self, state: &mut State, blocks: &mut Blocks) -> Result<Outcome, AttemptError> {
        match self.provider.profile.dialect {
            Dialect::Simulated => {
                let script = &self.provider.script;
                let played =
                    script.play(&self.request, state.attempts, &*self.clock, &mut state.deltas, blocks).await?;
                state.bill.add(played.spent);
                Ok(played.outcome)
            }
            _ => {
                let redaction = self.exchange(state).await?;
                let finished = state.assembly.finish(blocks);
                match finished {
                    Ok(outcome) => Ok(outcome.redacted(&redaction).await),
                    Err(AttemptError { failure, wait }) => {
                        Err(AttemptError { failure: redaction.failure(failure).await, wait })
                    }
                }
            }
        }
    }

    /// Builds the body, which is the same for every attempt.
    async fn body(&self) -> Result<Bytes, Failure> {
        let profile = &self.provider.profile;
        if profile.dialect == Dialect::Simulated {
            return Ok(Bytes::new());
        }
        let pictures = self.pictures().await?;
        let (provider, model) = (&*self.provider.name, &*self.model);
        let turn = TurnRequest { request: &self.request, profile, provider, model, pictures: &pictures };
        let body = profile.dialect.body(&turn)?.to_text();
        match body.len() > MAX_BODY {
            true => Err(Failure::new(code::MODEL_TOO_LARGE, format!("the request is larger than {MAX_BODY} bytes"))),
            false => Ok(Bytes::from(body)),
        }
    }

    /// Reads the request's images that are files.
    async fn pictures(&self) -> Result<Pictures, Failure> {
        let mut pictures = Pictures::default();
        let mut room = MAX_BODY;
        for block in self.request.blocks() {
            if let Block::Image(Image { mime, source: Source::File(file) }) = block {
                if pictures.has(file) {
                    continue;
                }
                let blob = flowcell_contract::BlobRef { file_id: file.clone(), size: 0, mime: mime.clone() };
                let bytes = self.files.get(&self.outgoing.caller.tenant, blob).await?;
                room = room.checked_sub(bytes.len()).ok_or_else(|| wrong("the images are too large in total"))?;
                pictures.add(file.clone(), &bytes);
            }
        }
        Ok(pictures)
    }

    /// Converts a failure of a call with effect `once` to `ambiguous`, unless the provider certainly did not make the
    /// turn.
    fn ambiguous_if_once(&self, state: &State, failure: Failure) -> Failure {
        if self.outgoing.effect != Effect::Once || state.is_certainly_not_made() {
            return failure;
        }
        let message = format!("the provider may have done the turn: {}", failure.message);
        Failure {
            details: with_detail(failure.details, "code", failure.code.into()),
            ..Failure::new(codes::AMBIGUOUS, message)
        }
    }

    /// Adds the provider, the model, the number of attempts and the usage of failed attempts to a failure.
    fn with_details(&self, state: &State, failure: Failure) -> Failure {
        let mut details = with_detail(failure.details, "provider", Json::from(self.provider.name.clone()));
        details = with_detail(details, "model", Json::from(self.model.clone()));
        details = with_detail(details, "attempts", Json::from(state.attempts));
        if let Some(id) = &state.request_id {
            details = with_detail(details, "requestId", Json::from(id.as_str()));
        }
        if !state.bill.is_empty() {
            details = with_detail(details, "usage", state.bill.to_json(self.provider.profile.price_of(&self.model)));
        }
        let message = format!("{}: {}", self.provider.name, failure.message);
        Failure { message, details, ..failure }
    }

    fn reply(&self, state: &State, outcome: Outcome) -> Value {
        let profile = &self.provider.profile;
        let named = outcome.model.unwrap_or_else(|| self.model.clone());
        let price = profile.price_of(&self.model).or_else(|| profile.price_of(&named));
        let mut members = vec![
            ("id", Json::from(outcome.id)),
            ("provider", Json::from(self.provider.name.clone())),
            ("model", Json::from(named)),
            ("content", Json::array(outcome.content)),
            ("stop", Json::from(outcome.stop.name())),
        ];
        members.extend(outcome.raw_stop.map(|stop| ("rawStop", Json::from(stop))));
        members.push(("usage", state.bill.to_json(price)));
        members.extend(state.request_id.as_deref().map(|id| ("requestId", Json::from(id))));
        Value::from(Json::object(members))
    }
}

/// Returns the failure of an attempt. If it is retryable, its `retryAfterMs` is the wait that the provider asked for.
fn into_failure(failed: AttemptError) -> Failure {
    let wait = failed.wait.map(|wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    Failure { retry_after_ms: wait.filter(|_| failed.failure.retryable), ..failed.failure }
}

fn with_detail(details: Option<Json>, name: &str, value: Json) -> Option<Json> {
    let mut members = details.as_ref().and_then(Json::as_object).cloned().unwrap_or_default();
    members.insert(name.into(), value);
    Some(Json::object(members))
}
