//! Makes images through an endpoint that has the image API of OpenAI. A prompt alone is sent as JSON:
//! `POST {baseUrl}/images/generations`. A prompt with images is sent as a form: `POST {baseUrl}/images/edits`.
//!
//! The answer contains each image as base64, or a URL to load it from. The host stores each image as a file. It loads
//! a URL through the egress guard, without the key: over `https`, or from the endpoint itself.
//!
//! | subject | limit |
//! |---|---|
//! | images of a request | 16 |
//! | prompt | 32,000 characters |
//! | new images per call (`n`) | 10 |
//! | request body, images included | 32 MiB |
//! | answer | 64 MiB |
//! | image behind a URL | 32 MiB |
//! | a call with all its attempts | 5 min ([`Profile::timeout_ms`]) |
//! | attempts | 3 ([`Profile::max_retries`] and the first) |
//! | wait between two attempts | the wait that the endpoint requests; else 0.5 s, doubled after each attempt up to 8 s, and shortened at random by up to a quarter |
//!
//! Failures have the codes of the capability [`model`](crate::model): `invalid_input`, `model_auth`,
//! `model_permission`, `model_invalid_request`, `model_not_found`, `model_too_large`, `model_rate_limited`,
//! `model_quota`, `model_overloaded`, `model_timeout`, `model_connect`, `model_bad_response`. If a call of effect
//! `once` fails and the endpoint may have made its images, the failure is `ambiguous`.

mod answer;
mod exchange;
mod form;
mod picture;
mod profile;
mod request;
mod sample;

use std::{pin::pin, sync::Arc};

use flowcell_contract::{Blobs, Effect, Failure, Json, Outgoing, Value, code as codes};
use futures_util::future::{BoxFuture, Either, select};

use self::{exchange::Exchange, request::Request};
pub use self::{picture::media_type, profile::Profile, sample::sample};
use crate::{
    client::Client,
    code,
    endpoint::Endpoint,
    files::AsyncBlobs,
    model::{Clock, Environment, SystemClock, Wait},
    secret,
};

/// The member with a cost in USD: in the `meta` of an image the cost of the image, in the details of a failure the cost
/// of the failed attempts.
const COST_USD: &str = "costUsd";

/// An endpoint that makes images. Clones share their connections.
#[derive(Clone)]
pub struct Images {
    profile: Arc<Profile>,
    endpoint: Arc<Endpoint>,
    client: Client,
    files: AsyncBlobs,
    clock: Arc<dyn Clock>,
    environment: Environment,
}

impl Images {
    /// Creates the endpoint. Requests pass the egress guard of `client`. Images are read from and stored in `blobs`.
    pub fn new(profile: Profile, client: &Client, blobs: Arc<dyn Blobs>) -> Images {
        let endpoint = profile.endpoint.clone();
        Images {
            client: Client::new(client.egress().clone().with_private(&endpoint.private)),
            profile: Arc::new(profile),
            endpoint: Arc::new(endpoint),
            files: AsyncBlobs::new(blobs),
            clock: Arc::new(SystemClock),
            environment: secret::environment(),
        }
    }

    /// Returns the same endpoint with another clock.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Images {
        Images { clock, ..self }
    }

    /// Returns the same endpoint, for which `environment` replaces the environment of this process.
    pub fn with_environment(self, environment: Environment) -> Images {
        Images { environment, ..self }
    }

    /// Returns the operator's profile of the endpoint.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Checks the arguments of a call: a file, a list of files, or `null`; the prompt; and options.
    pub fn check(&self, args: &[Json]) -> Result<(), Failure> {
        Request::read(args, &self.profile).map(drop)
    }

    /// Returns the maximum cost in USD of a call with all its attempts, or `None` if no price is configured.
    pub fn max_cost(&self, args: &[Json], effect: Effect) -> Result<Option<f64>, Failure> {
        let attempts = if effect == Effect::Once { 1 } else { u64::from(self.profile.max_retries()) + 1 };
        Ok(self.profile.price_of(Request::read(args, &self.profile)?.count() * attempts))
    }

    /// Returns the cost of a finished call in USD, as its result or its failure reports it; 0 if it reports none.
    pub fn cost(ended: &Result<Value, Failure>) -> f64 {
        let told = |json: &Json| json.get(COST_USD).and_then(Json::as_f64);
        let of_image = |image: &Json| image.get("meta").and_then(told).unwrap_or_default();
        match ended {
            Ok(made) => {
                made.json().as_array().map_or_else(|| of_image(made.json()), |all| all.iter().map(of_image).sum())
            }
            Err(failure) => failure.details.as_ref().and_then(told).unwrap_or_default(),
        }
    }

    /// Makes the images of a call: returns a file value, or a list of them if `n` is more than 1.
    pub fn make(&self, args: &[Json], outgoing: &Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        let (images, request, outgoing) = (self.clone(), Request::read(args, &self.profile), outgoing.clone());
        Box::pin(async move { images.make_with_timeout(request?, outgoing).await })
    }

    async fn make_with_timeout(self, request: Request, outgoing: Outgoing) -> Result<Value, Failure> {
        let within = self.profile.timeout();
        let mut exchange = Exchange::new(&self, &request, &outgoing);
        let ended = {
            let attempts = pin!(exchange.attempts());
            match select(attempts, self.clock.sleep(Wait::Total, within)).await {
                Either::Left((ended, _)) => Some(ended),
                Either::Right(_) => None,
            }
        };
        let ended = ended.unwrap_or_else(|| {
            exchange.end_failed_attempt();
            let message = format!("the images took longer than {} ms", within.as_millis());
            Err(Failure::retryable(code::MODEL_TIMEOUT, message))
        });
        ended.map_err(|failure| exchange.with_lost_cost(failure)).map_err(|failure| {
            match outgoing.effect == Effect::Once && exchange.may_have_happened() {
                true => ambiguous(failure),
                false => failure,
            }
        })
    }
}

fn ambiguous(failure: Failure) -> Failure {
    let message = format!("the provider may have made the images: {}", failure.message);
    let cost = failure.details.as_ref().and_then(|details| Some((COST_USD, details.get(COST_USD)?.clone())));
    let details = Some(Json::object([("code", Json::from(failure.code))].into_iter().chain(cost)));
    Failure { details, ..Failure::new(codes::AMBIGUOUS, message) }
}
