//! Helpers of the tests: [`Kit`] has the capability `model`, a clock and a caller, and sends requests to a fake
//! provider.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use flowcell_contract::{
    Admission, AttemptEnd, BlobRef, Blobs, Call, Caller, Capability, Effect, Failure, Grants, Json, NodeId, Outgoing,
    Prepared, Progress, RunId, Tenant, Value,
};
use flowcell_modelfake::Fake;
use flowcell_services::{
    client::Client,
    egress::{Egress, EgressPolicy},
    model::{Clock, ModelCapability, Providers, Wait},
};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::Notify;

/// The key of every provider in the tests.
pub(crate) const KEY: &str = "test-key";

pub(crate) const DIALECTS: [&str; 3] = ["messages", "chat", "responses"];

/// A Saturday, 21 November 2026, 12:00:00.
const NOW: u64 = 1_795_262_400;

/// A clock that stands still. Waits of the kinds `Backoff` and `Simulated` end at once, all others when a test calls
/// [`TestClock::fire`].
#[derive(Default)]
pub(crate) struct TestClock {
    slept: Mutex<Vec<(Wait, Duration)>>,
    fires: Mutex<HashMap<Wait, Arc<Notify>>>,
}

impl TestClock {
    /// Ends one wait of this kind: the current one, or the next one if there is none now.
    pub(crate) fn fire(&self, why: Wait) {
        self.fires.lock().unwrap().entry(why).or_default().notify_one();
    }

    /// Returns the waits of a kind, in milliseconds.
    pub(crate) fn slept(&self, why: Wait) -> Vec<u128> {
        let slept = self.slept.lock().unwrap();
        slept.iter().filter(|(own, _)| *own == why).map(|(_, time)| time.as_millis()).collect()
    }
}

impl Clock for TestClock {
    fn sleep(&self, why: Wait, how_long: Duration) -> BoxFuture<'static, ()> {
        self.slept.lock().unwrap().push((why, how_long));
        let notify = self.fires.lock().unwrap().entry(why).or_default().clone();
        match why {
            Wait::Backoff | Wait::Simulated => Box::pin(std::future::ready(())),
            Wait::Idle | Wait::Total | Wait::Coalesce => Box::pin(async move { notify.notified().await }),
        }
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
    }

    fn chance(&self) -> f64 {
        0.5
    }
}

/// The single file of one tenant.
struct OneFile;

impl Blobs for OneFile {
    fn put(&self, _: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        BlobRef { file_id: "none".into(), size: bytes.len() as u64, mime: mime.into() }
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        let own = *tenant == Tenant::local() && &*blob.file_id == "picture";
        Ok(own.then(|| Arc::from(&b"pixels"[..])))
    }
}

type ReportedEvents = Arc<Mutex<Vec<(String, Json)>>>;

/// A function that receives the type of every reported event.
type OnReport = Arc<dyn Fn(&str) + Send + Sync>;

pub(crate) struct Kit {
    pub(crate) model: ModelCapability,
    pub(crate) caller: Caller,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) told: ReportedEvents,
    pub(crate) on_tell: OnReport,
    pub(crate) effect: Option<Effect>,
    pub(crate) lost: u32,
}

impl Kit {
    /// Creates a kit that sends requests to `fake`. The profile has the name of its dialect; `more` are further members
    /// of the profile.
    pub(crate) fn with_fake(fake: &Fake, dialect: &str, more: serde_json::Value) -> Kit {
        let (base, auth) = match dialect {
            "messages" => (fake.url(""), "x-api-key"),
            _ => (fake.url("/v1"), "bearer"),
        };
        let mut profile = json!({ "dialect": dialect, "baseUrl": base, "auth": auth, "keyEnv": "FAKE_KEY",
            "model": "fake-1", "allowPrivate": ["127.0.0.1"] });
        profile.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        Kit::configured(&json!({ "default": dialect, "profiles": { dialect: profile } }))
    }

    pub(crate) fn configured(providers: &serde_json::Value) -> Kit {
        Kit::of(Providers::parse(&providers.to_string(), Path::new("")).unwrap())
    }

    pub(crate) fn of(providers: Providers) -> Kit {
        let client = Client::new(Egress::new(EgressPolicy::default()).unwrap());
        let clock = Arc::new(TestClock::default());
        let environment = Arc::new(|name: &str| (name == "FAKE_KEY").then(|| KEY.to_owned()));
        let model = ModelCapability::new(&client, Arc::new(OneFile), providers);
        let grants = Grants([("model".to_owned(), Json::array([Json::from("*")]))].into_iter().collect());
        let caller = Caller {
            tenant: Tenant::local(),
            run_id: RunId::from("r1"),
            pin: "flow".into(),
            node_id: NodeId::from("ask"),
            node_type: "agent.run".into(),
            grants: Arc::new(grants),
            effect: Effect::AtLeastOnce,
            config: Value::null(),
        };
        Kit {
            model: model.with_clock(clock.clone()).with_environment(environment),
            caller,
            clock,
            told: ReportedEvents::default(),
            on_tell: Arc::new(|_| {}),
            effect: None,
            lost: 0,
        }
    }

    pub(crate) fn with_grants(mut self, patterns: serde_json::Value) -> Kit {
        let grants = Grants([("model".to_owned(), Json::from(patterns))].into_iter().collect());
        self.caller.grants = Arc::new(grants);
        self
    }

    pub(crate) fn once(self) -> Kit {
        Kit { effect: Some(Effect::Once), ..self }
    }

    /// Sets the number of earlier tries of a turn during which the host process ended.
    pub(crate) fn lost(self, lost: u32) -> Kit {
        Kit { lost, ..self }
    }

    pub(crate) fn admit(&self, request: &serde_json::Value) -> Result<Admission, Failure> {
        self.model.admit(&call(request), &self.caller)
    }

    /// Admits a turn and makes it, as the runtime does.
    pub(crate) async fn generate(&self, request: &serde_json::Value) -> Result<serde_json::Value, Failure> {
        let call = call(request);
        let admission = self.model.admit(&call, &self.caller)?;
        self.perform(call, admission).await
    }

    /// Makes an admitted turn.
    pub(crate) async fn perform(&self, call: Call, admission: Admission) -> Result<serde_json::Value, Failure> {
        let (told, on_tell) = (self.told.clone(), self.on_tell.clone());
        let progress = Progress::new(move |kind, members| {
            told.lock().unwrap().push((kind.to_owned(), members));
            on_tell(kind);
        });
        let effect = self.effect.unwrap_or(admission.effect);
        let (caller, key, prepared) = (self.caller.clone(), "k3y-abc".into(), admission.prepared);
        let attempt_end = AttemptEnd::default();
        let outgoing = Outgoing { caller, call, effect, key, progress, prepared, lost: self.lost, attempt_end };
        Ok(self.model.perform(outgoing).await?.json().to_serde())
    }

    /// Returns the maximum cost of a turn, in USD.
    pub(crate) fn max_cost(&self, request: &serde_json::Value, effect: Effect) -> f64 {
        let (caller, key, prepared) = (self.caller.clone(), "k3y-abc".into(), Prepared::default());
        let (progress, call, attempt_end) = (Progress::default(), call(request), AttemptEnd::default());
        let mut outgoing = Outgoing { caller, call, effect, key, progress, prepared, lost: 0, attempt_end };
        self.model.turn(&mut outgoing).unwrap().max_cost(&outgoing).unwrap()
    }

    /// Makes a turn for one text of the user.
    pub(crate) async fn ask(&self, text: &str) -> Result<serde_json::Value, Failure> {
        self.generate(&json!({ "messages": [{ "role": "user", "content": text }] })).await
    }

    /// Returns the reported texts of an event type, joined.
    pub(crate) fn text_of_events(&self, kind: &str) -> String {
        let told = self.told.lock().unwrap();
        let deltas = told.iter().filter(|(own, _)| own == kind);
        deltas.map(|(_, members)| members.get("delta").and_then(Json::as_str).unwrap()).collect()
    }

    /// Returns the reported events of a type.
    pub(crate) fn events(&self, kind: &str) -> Vec<serde_json::Value> {
        let told = self.told.lock().unwrap();
        told.iter().filter(|(own, _)| own == kind).map(|(_, members)| members.to_serde()).collect()
    }
}

pub(crate) fn call(request: &serde_json::Value) -> Call {
    let args = Value::parse(request.to_string()).unwrap();
    Call { interface: "model".into(), function: "generate".into(), args }
}

/// Starts a fake provider that plays these turns.
pub(crate) async fn playing(turns: serde_json::Value) -> Fake {
    Fake::start(json!({ "turns": turns })).await.unwrap()
}

/// Returns a member of a failure's details, or null.
pub(crate) fn detail(failure: &Failure, name: &str) -> serde_json::Value {
    failure.details.as_ref().and_then(|details| details.get(name)).map(Json::to_serde).unwrap_or_default()
}
