//! The capability `model`: one turn of a language model, the same for every provider.
//!
//! Functions: `generate` and `start-generate`, which differ only in how a node waits. The arguments are the request, the
//! reply is the turn; both are described with the interface `model` that nodes see. Turns are streamed always: while one is
//! made, `agent:text` and `agent:thinking` tell `{ delta }`, the first piece at once and later ones at most every 50 ms. A
//! turn that broke off is tried again, and `agent:retry` with `{ attempt, reason, delayMs }` says that what was told so far
//! does not count; `attempt` is the one that follows, from 2.
//!
//! Which providers there are is the operator's: see [`Providers`]. A flow grants models by patterns of `provider/model`. Keys
//! are read when a turn is made, and are in no failure, event or log.
//!
//! | what | limit |
//! |---|---|
//! | body of a request | 32 MiB, images included |
//! | line, event and whole of a stream | 4 MiB, 8 MiB, 64 MiB |
//! | silence within a stream | 90 s ([`Profile::idle_ms`]) |
//! | a turn with all its attempts | 10 min ([`Profile::timeout_ms`]) |
//! | attempts | 3 ([`Profile::max_retries`] and the first) |
//! | wait between two of them | what the provider asks for, or else 0.5 s doubled up to 8 s, less up to a quarter by chance |
//!
//! Tried again are failed connections, broken streams, timeouts, 408, 409, 429 and everything from 500, unless the provider
//! says otherwise by `x-should-retry`; never a quota that is used up. Of a provider of the dialects `chat` and `responses` a
//! wait of more than 60 s is not believed; what is longer than the rest of the time is left to whoever asked (`retryAfterMs`).
//!
//! `usage` counts all attempts together: `input` has the tokens of the cache in it, `output` those of thoughts. What a
//! provider did not say is guessed, four bytes a token, and `estimated` is true. `costUsd` comes from the provider (basis
//! `managed`) or from the prices of its profile (`list`); without both the basis is `unknown`.
//!
//! Members that a provider does not know are left out if they are hints (`seed`); `stop` is refused where it is not known.
//! Blocks of type `raw`, and `raw` beside a block, go back to the provider that wrote them, and are left out for others.
//! Arguments of a tool that are not JSON are a text instead of an object in `input`.
//!
//! A turn is made at least once, unless the node type says that its calls are idempotent or made once. One that is made once
//! is repeated only if it certainly was not made, and is `ambiguous` otherwise.
//!
//! | code | when | retryable |
//! |---|---|---|
//! | `denied` | the model is not granted, or the provider's address is not public | no |
//! | `invalid_input` | the request has another shape, or names an unknown provider | no |
//! | `model_auth`, `model_permission` | there is no key, or it is not accepted | no |
//! | `model_invalid_request`, `model_not_found`, `model_too_large`, `model_context_exceeded` | the provider refuses the request | no |
//! | `model_quota` | what was paid for is used up | no |
//! | `model_rate_limited`, `model_overloaded`, `model_timeout`, `model_connect` | the provider does not answer now | yes |
//! | `model_stream_truncated` | the stream broke off, in every attempt | yes |
//! | `model_bad_response` | the answer is not what the dialect says, or beyond a limit | no |
//! | `ambiguous` | a turn of effect `once` may have been made; `details.code` says how it failed | no |
//!
//! `details` has `provider`, `model`, `attempts`, and where known `status`, `providerCode`, `requestId` and the `usage` of
//! attempts that came to nothing.

mod clock;
mod dialect;
mod grant;
mod price;
mod profile;
mod providers;
mod reply;
mod request;
mod schema;
mod script;
mod shape;
mod simulated;
mod telling;
pub(crate) mod trouble;
mod turn;

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Admission, Blobs, Call, Caller, Capability, Failure, Json, Outgoing, Value};
use futures_util::future::BoxFuture;

pub use self::{
    clock::{Clock, SystemClock, Wait},
    price::Price,
    profile::{Auth, DEFAULT_IDLE_MS, DEFAULT_MAX_RETRIES, DEFAULT_MAX_TOKENS, DEFAULT_TIMEOUT_MS, Dialect, Profile},
    providers::Providers,
    script::{Entry, ScriptedCall, ScriptedError, ScriptedUsage},
};
use self::{
    price::Usage,
    providers::Provider,
    request::Request,
    shape::{instead, wrong},
    turn::Turn,
};
pub use crate::secret::Environment;
use crate::{client::Client, files::Files, secret};

/// The name of the capability, in calls and in grants.
pub const INTERFACE: &str = "model";

/// The capability `model`. Clones share their connections.
#[derive(Clone)]
pub struct ModelCapability {
    providers: Providers,
    /// One client for each provider: what one may connect to, another may not.
    clients: Arc<HashMap<Arc<str>, Client>>,
    files: Files,
    clock: Arc<dyn Clock>,
    environment: Environment,
}

impl ModelCapability {
    /// Turns leave behind the guard of this client; images are files of these blobs.
    pub fn new(client: &Client, blobs: Arc<dyn Blobs>, providers: Providers) -> ModelCapability {
        let clients = providers.iter().map(|provider| {
            let egress = client.egress().clone().also_private(&provider.private);
            (provider.name.clone(), Client::new(egress))
        });
        ModelCapability {
            clients: Arc::new(clients.collect()),
            files: Files::new(blobs),
            clock: Arc::new(SystemClock),
            environment: secret::environment(),
            providers,
        }
    }

    /// The same capability with another clock.
    pub fn timed_by(self, clock: Arc<dyn Clock>) -> ModelCapability {
        ModelCapability { clock, ..self }
    }

    /// The same capability, which looks variables of the environment up here.
    pub fn with_environment(self, environment: Environment) -> ModelCapability {
        ModelCapability { environment, ..self }
    }

    /// The providers.
    pub fn providers(&self) -> &Providers {
        &self.providers
    }

    /// Whose turn it is, of which model, and whether the caller may have it made.
    fn resolve(&self, call: &Call, caller: &Caller) -> Result<(Request, Arc<Provider>, Arc<str>), Failure> {
        if !matches!(&*call.function, "generate" | "start-generate") {
            return Err(wrong(format!("model has no function `{}`", call.function)));
        }
        let request = Request::read(call.args.json())?;
        let provider = self.providers.find(request.provider.as_deref())?.clone();
        let own = provider.profile.model.as_deref();
        let model = request.model.as_deref().filter(|model| !model.is_empty()).or(own).map(Arc::from);
        let model: Arc<str> = model
            .ok_or_else(|| wrong(format!("no `model` is named, and the profile of `{}` has none", provider.name)))?;
        grant::check(caller, &provider.name, &model)?;
        check_params(&request, &provider)?;
        provider.profile.dialect.check(&request)?;
        Ok((request, provider, model))
    }

    /// What a turn costs at most, in USD, reckoned with a token for every byte of the request; none if nobody knows its price, or
    /// how long a reply may be.
    /// Images are not reckoned, and neither are attempts that broke off.
    pub fn most_it_costs(&self, call: &Call, caller: &Caller) -> Result<Option<f64>, Failure> {
        let (request, provider, model) = self.resolve(call, caller)?;
        let profile = &provider.profile;
        let usual = (profile.dialect == Dialect::Messages).then_some(DEFAULT_MAX_TOKENS);
        let output = request.max_tokens.or(profile.max_tokens).or(usual);
        let (Some(price), Some(output)) = (profile.price_of(&model), output) else { return Ok(None) };
        let input = call.args.text().len() as u64;
        Ok(Some(price.of(&Usage { input, output, ..Usage::default() })))
    }

    async fn perform_resolved(self, outgoing: Outgoing) -> Result<Value, Failure> {
        let (request, provider, model) = self.resolve(&outgoing.call, &outgoing.caller)?;
        let client = self.clients.get(&provider.name).cloned();
        let client = client.ok_or_else(|| wrong(format!("there is no model provider `{}`", provider.name)))?;
        let ModelCapability { clock, environment, files, .. } = self;
        Turn { provider, model, request, outgoing, client, clock, environment, files }.make().await
    }
}

/// Refuses what a request wants to pass on, and the operator did not list.
fn check_params(request: &Request, provider: &Provider) -> Result<(), Failure> {
    let profile = &provider.profile;
    match request.params.keys().find(|name| !profile.lets_pass(name)) {
        None => Ok(()),
        Some(name) if profile.params.is_empty() => {
            Err(wrong(format!("`params.{name}`: the profile of `{}` lets no params pass", provider.name)))
        }
        Some(name) => {
            let known: Vec<&str> = profile.params.iter().map(String::as_str).collect();
            Err(wrong(format!("`params.{name}` may not pass to `{}`; {}", provider.name, instead(name, &known))))
        }
    }
}

impl Capability for ModelCapability {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        let (request, provider, model) = self.resolve(call, caller)?;
        let about = Json::object([
            ("provider", Json::from(provider.name.clone())),
            ("model", Json::from(model)),
            ("messages", Json::from(request.messages.len() as u64)),
            ("tools", Json::from(request.tools.len() as u64)),
        ]);
        Ok(Admission { effect: caller.effect_of(true), about, ask: None })
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        Box::pin(self.clone().perform_resolved(outgoing))
    }
}
