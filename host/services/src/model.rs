//! The capability `model`: one turn of a language model, the same for every provider. A turn is a request to a model
//! and its complete reply. The host makes attempts at a turn until one succeeds.
//!
//! Functions: `generate` and `start-generate`. `generate` returns the reply. `start-generate` returns the id of the
//! call at once, and the reply arrives as an event of the node's queue. The WIT interface `model` describes the
//! request, which is the argument of both functions, and the reply. Every turn is streamed: the events `agent:text` and
//! `agent:thinking` report `{ delta }`, the first piece at once and later ones at most every 50 ms. A turn that breaks
//! off is retried. The event `agent:retry` with `{ attempt, reason, delayMs }` then reports that the deltas so far do
//! not count; `attempt` is the number of the next attempt, from 2.
//!
//! The operator configures the providers: see [`Providers`]. A flow grants models by patterns of `provider/model`. The
//! host reads keys when it makes a turn. Keys never appear in failures, events or logs.
//!
//! | subject | limit |
//! |---|---|
//! | request body | 32 MiB, images included |
//! | line, event and total of a stream | 4 MiB, 8 MiB, 64 MiB |
//! | texts, thoughts and tool inputs of a reply | 16 MiB |
//! | silence within a stream | 90 s ([`Profile::idle_ms`]) |
//! | a turn with all its attempts | 10 min ([`Profile::timeout_ms`]) |
//! | attempts | 3 ([`Profile::max_retries`] and the first) |
//! | wait between two attempts | the wait that the provider requests; else 0.5 s, doubled after each attempt up to 8 s, and shortened at random by up to a quarter |
//!
//! The host retries failed connections, broken streams, timeouts, and the statuses 408, 409, 429 and from 500, unless
//! the provider's `x-should-retry` says otherwise. It never retries after an exhausted quota. For the dialects `chat`
//! and `responses` it ignores a requested wait of more than 60 s. If a wait is longer than the remaining time, the
//! turn fails, and its `retryAfterMs` is the wait that the provider requested.
//!
//! `usage` sums all attempts: `input` includes cached tokens, and `output` includes thoughts. Numbers that the provider
//! does not report are estimated at four bytes per token, and `estimated` is true. `costUsd` comes from the provider
//! (basis `managed`) or from the prices of its profile (`list`); without both the basis is `unknown`. A cost is ignored
//! if the provider reports more than 1,000,000 USD, or 0 for a model that has a price. A turn that was running when its
//! process ended is requested again. Its `usage` includes an estimate of the lost request.
//!
//! If a provider does not support a hint such as `seed`, the host leaves the hint out. If a provider does not support
//! `stop`, the host refuses the request. Blocks of type `raw`, and the member `raw` of a block, are sent only to the
//! provider that wrote them. Tool arguments that are not JSON become a string in `input`, not an object.
//!
//! A turn is made at least once, unless the node type says that its calls are idempotent or made once. A turn with
//! effect `once` is repeated only if the provider certainly did not make it. If such a turn fails although the provider
//! may have made it, the failure is `ambiguous`.
//!
//! | code | when | retryable |
//! |---|---|---|
//! | `denied` | the flow does not grant the model, or the provider's address is not public | no |
//! | `invalid_input` | the request has the wrong form, or names an unknown provider | no |
//! | `model_auth`, `model_permission` | the key is missing or rejected | no |
//! | `model_invalid_request`, `model_not_found`, `model_too_large`, `model_context_exceeded` | the provider refuses the request | no |
//! | `model_quota` | the paid quota is used up | no |
//! | `model_rate_limited`, `model_overloaded`, `model_timeout`, `model_connect` | the provider does not answer now | yes |
//! | `model_stream_truncated` | the stream broke off, in every attempt | yes |
//! | `model_bad_response` | the answer violates the dialect or exceeds a limit | no |
//! | `ambiguous` | a turn of effect `once` may have been made; `details.code` holds the original code | no |
//!
//! `details` has `provider`, `model`, `attempts`, and where known `status`, `providerCode`, `requestId` and the `usage`
//! of failed attempts.

pub(crate) mod attempt_error;
mod clock;
mod delta_buffer;
mod dialect;
mod grant;
mod object_reader;
mod price;
mod profile;
mod providers;
mod reply;
mod request;
mod schema;
mod script;
mod simulated;
mod turn;

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use flowcell_contract::{
    Admission, Blobs, BuiltIn, Call, Caller, Capability, Effect, Failure, Json, Outgoing, Prepared, Value,
};
use futures_util::future::BoxFuture;

pub use self::{
    clock::{Clock, SystemClock, Wait},
    price::{DEFAULT_IMAGE_TOKENS, Price},
    profile::{
        Auth, DEFAULT_IDLE_MS, DEFAULT_MAX_CALLS, DEFAULT_MAX_RETRIES, DEFAULT_MAX_TOKENS, DEFAULT_TIMEOUT_MS, Dialect,
        Profile,
    },
    providers::Providers,
    script::{Entry, ScriptedCall, ScriptedError, ScriptedUsage},
};
use self::{
    object_reader::{suggest_known, wrong},
    price::Usage,
    providers::Provider,
    request::{Block, Request},
    turn::Turn,
};
pub use crate::secret::Environment;
use crate::{client::Client, files::AsyncBlobs, preview::cut, secret};

/// The name of the capability, in calls and in grants.
pub const INTERFACE: &str = BuiltIn::Model.name();

/// Maximum number of characters of each text in the preview of a request.
const MAX_SHOWN_TEXT_CHARS: usize = 4_000;
/// Maximum number of messages in the preview of a request.
const MAX_SHOWN_MESSAGES: usize = 8;

/// The capability `model`. Clones share their connections.
#[derive(Clone)]
pub struct ModelCapability {
    providers: Providers,
    /// One client per provider, because each provider may connect to different private addresses.
    clients: Arc<HashMap<Arc<str>, Client>>,
    files: AsyncBlobs,
    clock: Arc<dyn Clock>,
    environment: Environment,
}

impl ModelCapability {
    /// Creates the capability. Requests pass the egress guard of `client`. Images in requests are read from `blobs`.
    pub fn new(client: &Client, blobs: Arc<dyn Blobs>, providers: Providers) -> ModelCapability {
        let clients = providers.iter().map(|provider| {
            let egress = client.egress().clone().with_private(&provider.private);
            (provider.name.clone(), Client::new(egress))
        });
        ModelCapability {
            clients: Arc::new(clients.collect()),
            files: AsyncBlobs::new(blobs),
            clock: Arc::new(SystemClock),
            environment: secret::environment(),
            providers,
        }
    }

    /// Returns the same capability with another clock.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> ModelCapability {
        ModelCapability { clock, ..self }
    }

    /// Returns the same capability, for which `environment` replaces the environment of this process.
    pub fn with_environment(self, environment: Environment) -> ModelCapability {
        ModelCapability { environment, ..self }
    }

    /// Returns the providers.
    pub fn providers(&self) -> &Providers {
        &self.providers
    }

    /// Reads a request, finds its provider and model, and checks that the caller may use them.
    fn resolve(&self, call: &Call, caller: &Caller) -> Result<RequestedTurn, Failure> {
        if !matches!(&*call.function, "generate" | "start-generate") {
            return Err(wrong(format!("`model` has no function `{}`", call.function)));
        }
        let request = Request::read(call.args.json())?;
        let provider = self.providers.find(request.provider.as_deref())?.clone();
        let own = provider.profile.model.as_deref();
        let model = request.model.as_deref().filter(|model| !model.is_empty()).or(own).map(Arc::from);
        let model: Arc<str> = model.ok_or_else(|| wrong(no_model(&provider.name)))?;
        grant::check(caller, &provider.name, &model)?;
        check_params(&request, &provider)?;
        provider.profile.dialect.check(&request)?;
        Ok(RequestedTurn { request: Arc::new(request), provider, model })
    }

    /// Returns the turn that a call requests. If [`Capability::admit`] has stored the turn in `outgoing`, returns that
    /// one. Otherwise reads and checks the request, and stores the turn in `outgoing`.
    pub fn turn(&self, outgoing: &mut Outgoing) -> Result<Arc<RequestedTurn>, Failure> {
        if let Some(turn) = outgoing.prepared.get() {
            return Ok(turn);
        }
        let turn = Arc::new(self.resolve(&outgoing.call, &outgoing.caller)?);
        outgoing.prepared = Prepared::new(turn.clone());
        Ok(turn)
    }

    async fn perform_turn(self, mut outgoing: Outgoing) -> Result<Value, Failure> {
        let turn = self.turn(&mut outgoing)?;
        let RequestedTurn { request, provider, model } = RequestedTurn::clone(&turn);
        let client = self.clients.get(&provider.name).cloned();
        let client = client.ok_or_else(|| wrong(format!("unknown model provider `{}`", provider.name)))?;
        let ModelCapability { clock, environment, files, .. } = self;
        Turn { provider, model, request, outgoing, client, clock, environment, files }.make().await
    }
}

/// A turn that a call requests and that the caller may make: the request, its provider and its model.
#[derive(Clone)]
pub struct RequestedTurn {
    request: Arc<Request>,
    provider: Arc<Provider>,
    model: Arc<str>,
}

impl RequestedTurn {
    /// Returns the name of the provider.
    pub fn provider(&self) -> &str {
        &self.provider.name
    }

    /// Returns the profile of the provider.
    pub fn profile(&self) -> &Profile {
        &self.provider.profile
    }

    /// Returns the maximum cost in USD of the turn for the call `outgoing`, with all its attempts; `None` if the
    /// model's price or the maximum length of the reply is unknown. Each byte of the request counts as one token, and
    /// each image as [`Price::image_tokens`] tokens. For a call with effect `once` only one attempt counts: the host
    /// repeats such a turn only if the provider certainly did not make it.
    pub fn max_cost(&self, outgoing: &Outgoing) -> Option<f64> {
        let RequestedTurn { request, model, .. } = self;
        let profile = self.profile();
        let usual = (profile.dialect == Dialect::Messages).then_some(DEFAULT_MAX_TOKENS);
        let output = request.max_tokens.or(profile.max_tokens).or(usual);
        let (price, output) = (profile.price_of(model)?, output?);
        let images = request.blocks().filter(|block| matches!(block, Block::Image(_))).count() as u64;
        let attempts = if outgoing.effect == Effect::Once { 1.0 } else { f64::from(profile.max_retries) + 1.0 };
        Some(price.max_cost(outgoing.call.args.text().len() as u64, images, output) * attempts)
    }

    /// Returns the estimated cost in USD of the lost requests for this turn: those during which the host process ended.
    /// Returns 0 if no request was lost or the price is unknown.
    pub fn lost_usd(&self, outgoing: &Outgoing) -> f64 {
        let usage = Usage::estimate_unanswered(outgoing.call.args.text().len(), outgoing.lost);
        self.profile().price_of(&self.model).map_or(0.0, |price| price.cost_of(&usage))
    }
}

/// Returns the preview of a request: the system text, and the messages that follow the last message of the model, at
/// most the last [`MAX_SHOWN_MESSAGES`] of them.
fn preview(args: &Value) -> Json {
    let shown = |json: &Json| {
        let text = json.as_str().map_or_else(|| json.to_text().into(), Cow::Borrowed);
        Json::from(cut(&text, MAX_SHOWN_TEXT_CHARS).as_ref())
    };
    let args = args.json();
    let messages = args.get("messages").and_then(Json::as_array).unwrap_or_default();
    let member = |message: &Json, name: &str| message.get(name).cloned().unwrap_or_default();
    let is_new = |message: &&Json| member(message, "role").as_str() != Some("assistant");
    let first = messages.len() - messages.iter().rev().take_while(is_new).take(MAX_SHOWN_MESSAGES).count();
    let asked = messages[first..].iter().map(|message| {
        Json::object([("role", member(message, "role")), ("content", shown(&member(message, "content")))])
    });
    let system = args.get("system").filter(|system| !system.is_null()).map(|system| ("system", shown(system)));
    Json::object(system.into_iter().chain([("messages", Json::array(asked))]))
}

/// Refuses members of `params` that the operator did not list.
fn check_params(request: &Request, provider: &Provider) -> Result<(), Failure> {
    let profile = &provider.profile;
    match request.params.keys().find(|name| !profile.allows_param(name)) {
        None => Ok(()),
        Some(name) if profile.params.is_empty() => {
            Err(wrong(format!("`params.{name}`: the profile of `{}` allows no params", provider.name)))
        }
        Some(name) => {
            let known: Vec<&str> = profile.params.iter().map(String::as_str).collect();
            Err(wrong(format!(
                "`params.{name}` is not allowed for `{}`; {}",
                provider.name,
                suggest_known(name, &known)
            )))
        }
    }
}

impl Capability for ModelCapability {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        let turn = self.resolve(call, caller)?;
        let about = Json::object([
            ("provider", Json::from(turn.provider())),
            ("model", Json::from(turn.model.clone())),
            ("messages", Json::from(turn.request.messages.len() as u64)),
            ("tools", Json::from(turn.request.tools.len() as u64)),
        ]);
        let admission = Admission::new(caller.effect_of(true), about);
        Ok(Admission { preview: preview(&call.args), prepared: Prepared::new(Arc::new(turn)), ..admission })
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        Box::pin(self.clone().perform_turn(outgoing))
    }
}

fn no_model(provider: &str) -> String {
    format!(
        "`model` is missing, and the profile of `{provider}` has none: write `config: {{ model: … }}` on the node, or \
         `model` in the profile (`--providers`); `--simulate model` needs neither"
    )
}
