//! Image endpoints: attempts, permitted answers, costs, and data that never leaves the host.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::{Call, Effect, Failure, Json, Outgoing, Prepared, Progress, Value, code};
use flowcell_services::{
    client::Client,
    egress::Egress,
    images::{Images, Profile, sample},
    model::{Clock, Wait},
};
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::outside::{
    kit::{Kit, LOCAL, policy},
    server::{Reaction, Seen, Server, answer},
};

/// A clock whose waits between attempts end at once and are recorded. Time limits never expire.
#[derive(Default)]
struct RecordingClock(Mutex<Vec<Duration>>);

impl Clock for RecordingClock {
    fn sleep(&self, why: Wait, how_long: Duration) -> BoxFuture<'static, ()> {
        if why != Wait::Backoff {
            return Box::pin(std::future::pending());
        }
        self.0.lock().unwrap().push(how_long);
        Box::pin(std::future::ready(()))
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn chance(&self) -> f64 {
        0.0
    }
}

/// A fake image endpoint, and a caller.
struct Setup {
    server: Server,
    kit: Kit,
    clock: Arc<RecordingClock>,
    effect: Effect,
}

fn refused(status: &str, headers: &[(&str, &str)]) -> Reaction {
    Reaction::Send(answer(status, headers, br#"{"error":{"message":"no: test-key"}}"#))
}

fn images(data: &serde_json::Value) -> Reaction {
    Reaction::Send(answer("200 OK", &[], json!({ "data": data }).to_string().as_bytes()))
}

fn one() -> serde_json::Value {
    json!({ "b64_json": STANDARD.encode(sample([1, 2, 3])) })
}

impl Setup {
    /// Starts the endpoint. `react` receives a request and the number of earlier requests, and returns the reaction.
    async fn new(react: impl Fn(&Seen, usize) -> Reaction + Send + Sync + 'static) -> Setup {
        let before = AtomicUsize::new(0);
        let server = Server::start(move |seen| react(seen, before.fetch_add(1, Ordering::SeqCst))).await;
        let (kit, clock) = (Kit::local(LOCAL), Arc::default());
        Setup { server, kit, clock, effect: Effect::AtLeastOnce }
    }

    async fn make(&self, args: serde_json::Value) -> Result<Value, Failure> {
        self.images().make(Json::parse(&args.to_string()).unwrap().as_array().unwrap(), &self.outgoing()).await
    }

    fn images(&self) -> Images {
        let profile = json!({ "baseUrl": self.server.url("/v1"), "keyEnv": "KEY", "usdPerImage": 0.25 });
        let profile = Profile::read(&Json::parse(&profile.to_string()).unwrap(), "".as_ref()).unwrap();
        let client = Client::new(Egress::new(policy(&[LOCAL])).unwrap());
        let images = Images::new(profile, &client, self.kit.blobs.clone()).with_clock(self.clock.clone());
        images.with_environment(Arc::new(|_| Some("test-key".into())))
    }

    fn outgoing(&self) -> Outgoing {
        let call = Call { interface: "services".into(), function: "start-call".into(), args: Value::null() };
        let (caller, key) = (self.kit.caller.clone(), "key-1".into());
        Outgoing {
            caller,
            call,
            effect: self.effect,
            key,
            progress: Progress::default(),
            prepared: Prepared::default(),
            lost: 0,
            attempt_end: Default::default(),
        }
    }
}

#[tokio::test]
async fn transient_failures_are_retried() {
    let setup = Setup::new(|_, before| match before {
        0 => refused("429 Too Many Requests", &[("retry-after", "7")]),
        1 => refused("503 Service Unavailable", &[]),
        _ => images(&json!([one()])),
    });
    let setup = setup.await;
    assert!(setup.make(json!([null, "a"])).await.is_ok());
    assert_eq!(*setup.clock.0.lock().unwrap(), [Duration::from_secs(7), Duration::from_secs(1)]);
    let keys: Vec<_> =
        setup.server.seen().iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect();
    assert_eq!(keys, ["key-1"; 3]);
}

#[tokio::test]
async fn permanent_failures_are_not_retried_and_keys_are_redacted() {
    for (status, expected, attempts) in [
        ("400 Bad Request", "model_invalid_request", 1),
        ("401 Unauthorized", "model_auth", 1),
        ("500 Oops", "model_overloaded", 3),
    ] {
        let setup = Setup::new(move |_, _| refused(status, &[])).await;
        let failure = setup.make(json!([null, "a"])).await.unwrap_err();
        assert_eq!((failure.code.as_str(), setup.server.seen().len()), (expected, attempts), "{failure}");
        assert!(!failure.message.contains("test-key"), "{failure}");
    }
}

#[tokio::test]
async fn a_call_of_effect_once_that_may_have_been_made_is_ambiguous() {
    for (status, expected) in [("500 Oops", code::AMBIGUOUS), ("400 Bad Request", "model_invalid_request")] {
        let setup = Setup::new(move |_, _| refused(status, &[])).await;
        let setup = Setup { effect: Effect::Once, ..setup };
        let failure = setup.make(json!([null, "a"])).await.unwrap_err();
        assert_eq!((failure.code.as_str(), setup.server.seen().len()), (expected, 1), "{failure}");
    }
}

#[tokio::test]
async fn several_images_are_a_list_of_files() {
    let setup = Setup::new(|_, _| images(&json!([one(), one()]))).await;
    let made = setup.make(json!([null, "a", { "n": 2 }])).await.unwrap();
    let files = made.json().as_array().unwrap();
    assert_eq!(files.len(), 2);
    let blob = Value::from(files[1].clone()).blob().unwrap();
    assert_eq!((&*blob.mime, blob.size), ("image/png", sample([1, 2, 3]).len() as u64));
}

#[tokio::test]
async fn malformed_answers_fail_without_a_retry() {
    let long = "x".repeat(65 << 20);
    let cases = [
        (json!([]), "no images"),
        (json!([one(), one()]), "2 images, but the request was for 1"),
        (json!([{ "b64_json": "&" }]), "not base64"),
        (json!([{ "b64_json": STANDARD.encode("text") }]), "not PNG"),
        (json!([{}]), "neither `b64_json` nor `url`"),
        (json!([{ "url": "http://elsewhere.example/a.png" }]), "neither `https` nor at the endpoint"),
        (json!([{ "url": "file:///etc/passwd" }]), "neither `https`"),
        (json!([{ "b64_json": long }]), "larger than"),
    ];
    for (data, message) in cases {
        let setup = Setup::new(move |_, _| images(&data)).await;
        let failure = setup.make(json!([null, "a"])).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("model_bad_response", false), "{failure}");
        assert!(failure.message.contains(message), "{message}: {failure}");
        assert_eq!(setup.server.seen().len(), 1, "{message}");
    }
}

#[tokio::test]
async fn an_image_behind_a_private_address_is_not_fetched() {
    let setup = Setup::new(|_, _| images(&json!([{ "url": "https://10.0.0.1/a.png" }]))).await;
    assert_eq!(setup.make(json!([null, "a"])).await.unwrap_err().code, code::DENIED);
}

#[tokio::test]
async fn images_cost_the_configured_price_even_if_they_are_lost() {
    let no_png = json!({ "b64_json": STANDARD.encode("text") });
    for (effect, answered, n, cost) in [
        (Effect::AtLeastOnce, images(&json!([one()])), 1, 0.25),
        (Effect::AtLeastOnce, images(&json!([one(), one()])), 2, 0.5),
        // The answer has one of two requested images.
        (Effect::AtLeastOnce, images(&json!([one()])), 2, 0.25),
        (Effect::AtLeastOnce, images(&json!([one(), no_png])), 2, 0.5),
        (Effect::Once, images(&json!([no_png])), 1, 0.25),
        (Effect::AtLeastOnce, refused("400 Bad Request", &[]), 1, 0.0),
    ] {
        let answered = Mutex::new(Some(answered));
        let setup = Setup::new(move |_, _| answered.lock().unwrap().take().unwrap()).await;
        let setup = Setup { effect, ..setup };
        let made = setup.make(json!([null, "a", { "n": n }])).await;
        assert_eq!(Images::cost(&made), cost, "{made:?}");
        let args = [Json::Null, Json::from("a"), Json::parse(&json!({ "n": n }).to_string()).unwrap()];
        let most = |effect| setup.images().max_cost(&args, effect).unwrap();
        assert_eq!(most(Effect::Once), Some(0.25 * f64::from(n)));
        assert_eq!(most(Effect::AtLeastOnce), Some(3.0 * 0.25 * f64::from(n)), "with three attempts");
    }
}

#[tokio::test]
async fn attempts_that_broke_off_are_charged() {
    let broken = || Reaction::SendAndClose(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec());
    let refusal = || refused("500 Internal Server Error", &[]);
    for (reactions, cost) in [
        (vec![broken(), broken(), images(&json!([one()]))], 0.75),
        (vec![refusal(), broken(), images(&json!([one()]))], 0.5),
        (vec![broken(), broken(), broken()], 0.75),
        (vec![broken(), refusal(), refusal()], 0.25),
        (vec![refusal(), refusal(), refusal()], 0.0),
    ] {
        let reactions = Mutex::new(reactions.into_iter());
        let setup = Setup::new(move |_, _| reactions.lock().unwrap().next().unwrap()).await;
        let made = setup.make(json!([null, "a"])).await;
        assert_eq!(Images::cost(&made), cost, "{made:?}");
    }
}
