//! Helpers of the tests: [`Kit`] has the capability `http`, a store for files and a caller.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use flowcell_contract::{
    Admission, AttemptEnd, BlobRef, Blobs, Call, Caller, Capability, Effect, Failure, Grants, Json, NodeId, Outgoing,
    Progress, RunId, Tenant, Value,
};
use flowcell_services::{
    client::Client,
    egress::{AddressRange, Egress, EgressPolicy, Resolve},
    http::{HttpCapability, Limits},
};
use futures_util::future::BoxFuture;

/// All loopback addresses of IPv4.
pub(crate) const LOCAL: &str = "127.0.0.0/8";

/// Blobs in memory, numbered.
#[derive(Default)]
pub(crate) struct MemoryBlobs(Mutex<Vec<(Tenant, Arc<[u8]>)>>);

impl MemoryBlobs {
    /// Returns the number of stored contents.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Blobs for MemoryBlobs {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let mut blobs = self.0.lock().unwrap();
        blobs.push((tenant.clone(), bytes.clone()));
        let file_id = (blobs.len() - 1).to_string();
        BlobRef { file_id: file_id.into(), size: bytes.len() as u64, mime: mime.into() }
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        let blobs = self.0.lock().unwrap();
        let found = blob.file_id.parse::<usize>().ok().and_then(|number| blobs.get(number));
        Ok(found.filter(|(owner, _)| owner == tenant).map(|(_, bytes)| bytes.clone()))
    }
}

/// A resolver with a list of answers for a name. It gives them one after the other, and then the last one forever. It
/// counts the requests.
#[derive(Default)]
pub(crate) struct FakeResolver {
    answers: HashMap<String, Vec<Vec<IpAddr>>>,
    asked: Mutex<HashMap<String, usize>>,
}

impl FakeResolver {
    pub(crate) fn new(answers: &[(&str, &[&[&str]])]) -> Arc<FakeResolver> {
        let parsed = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        let answers = answers.iter().map(|(name, answers)| (name.to_string(), answers.iter().map(parsed).collect()));
        Arc::new(FakeResolver { answers: answers.collect(), ..FakeResolver::default() })
    }

    pub(crate) fn asked(&self, name: &str) -> usize {
        self.asked.lock().unwrap().get(name).copied().unwrap_or(0)
    }
}

impl Resolve for FakeResolver {
    fn resolve<'a>(&'a self, _tenant: &'a Tenant, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let mut asked = self.asked.lock().unwrap();
        let count = asked.entry(name.to_owned()).or_default();
        let answers = self.answers.get(name);
        let answer = answers.and_then(|answers| answers.get(*count).or(answers.last())).cloned();
        *count += 1;
        Box::pin(async move { answer.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such name")) })
    }
}

pub(crate) fn policy(listed: &[&str]) -> EgressPolicy {
    let allow_private = listed.iter().map(|range| range.parse::<AddressRange>().unwrap()).collect();
    EgressPolicy { allow_private, ..EgressPolicy::default() }
}

/// A capability, and a caller whose node has a grant.
pub(crate) struct Kit {
    pub(crate) http: HttpCapability,
    pub(crate) blobs: Arc<MemoryBlobs>,
    pub(crate) caller: Caller,
    /// The effect of performed calls. `None`: the effect in their admission.
    pub(crate) effect: Option<Effect>,
    pub(crate) attempt_end: AttemptEnd,
}

impl Kit {
    /// Creates a kit whose policy lists every loopback address.
    pub(crate) fn local(grant: &str) -> Kit {
        Kit::new(policy(&[LOCAL]), FakeResolver::new(&[]), grant)
    }

    pub(crate) fn new(policy: EgressPolicy, names: Arc<FakeResolver>, grant: &str) -> Kit {
        let egress = Egress::new(policy).unwrap().with_resolver(names);
        let blobs = Arc::new(MemoryBlobs::default());
        let http = HttpCapability::new(Client::new(egress), blobs.clone());
        let grants = Grants([("http".to_owned(), Json::array([Json::from(grant)]))].into_iter().collect());
        let caller = Caller {
            tenant: Tenant::local(),
            run_id: RunId::from("r1"),
            pin: "flow".into(),
            node_id: NodeId::from("fetch"),
            node_type: "acme.fetch".into(),
            grants: Arc::new(grants),
            effect: Effect::AtLeastOnce,
            config: Value::null(),
        };
        Kit { http, blobs, caller, effect: None, attempt_end: AttemptEnd::default() }
    }

    pub(crate) fn with_limits(self, limits: Limits) -> Kit {
        Kit { http: self.http.with_limits(limits), ..self }
    }

    pub(crate) fn once(self) -> Kit {
        Kit { effect: Some(Effect::Once), ..self }
    }

    pub(crate) fn admit(&self, args: serde_json::Value) -> Result<Admission, Failure> {
        self.http.admit(&call(args), &self.caller)
    }

    /// Sends a request, as the runtime does.
    pub(crate) async fn send(&self, args: serde_json::Value) -> Result<Value, Failure> {
        self.call("send", args).await
    }

    /// Admits a call and performs it, as the runtime does.
    pub(crate) async fn call(&self, function: &str, args: serde_json::Value) -> Result<Value, Failure> {
        let call = Call { function: function.into(), ..call(args) };
        let admission = self.http.admit(&call, &self.caller)?;
        let effect = self.effect.unwrap_or(admission.effect);
        self.http
            .perform(Outgoing {
                caller: self.caller.clone(),
                call,
                effect,
                key: "key-1".into(),
                progress: Progress::default(),
                prepared: admission.prepared,
                lost: 0,
                attempt_end: self.attempt_end.clone(),
            })
            .await
    }

    pub(crate) async fn get(&self, url: &str) -> Result<Value, Failure> {
        self.send(serde_json::json!({ "method": "GET", "url": url })).await
    }

    /// Returns the content and the media type of a reply's body that is a file.
    pub(crate) fn file(&self, reply: &Value) -> (Arc<[u8]>, Arc<str>) {
        let file = reply.json().pointer("/body/file").cloned().unwrap_or_else(|| panic!("no file in {reply}"));
        let blob = Value::from(file).blob().unwrap();
        (self.blobs.get(&self.caller.tenant, &blob).unwrap().unwrap(), blob.mime)
    }
}

pub(crate) fn call(args: serde_json::Value) -> Call {
    Call { interface: "http".into(), function: "send".into(), args: Value::parse(args.to_string()).unwrap() }
}

pub(crate) fn text(reply: &Value) -> &str {
    reply.json().pointer("/body/text").and_then(Json::as_str).unwrap_or_else(|| panic!("no text in {reply}"))
}

/// Returns all values of one header of a reply.
pub(crate) fn header<'a>(reply: &'a Value, name: &str) -> Vec<&'a str> {
    let pairs = reply.json().get("headers").and_then(Json::as_array).unwrap();
    let pairs = pairs
        .iter()
        .map(|pair| (pair.at(0).and_then(Json::as_str).unwrap(), pair.at(1).and_then(Json::as_str).unwrap()));
    pairs.filter(|(own, _)| *own == name).map(|(_, value)| value).collect()
}
