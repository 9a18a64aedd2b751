//! Wrappers that count a run's usage: its journal and blobs, the runner of its nodes, its models, and other paid
//! calls.

use std::{future::ready, sync::Arc};

use flowcell_contract::{
    Admission, Attempt, BlobRef, BlobWriter, Blobs, Call, Caller, Calls, Capability, Digest, Failure, Json, NodeRunner,
    Outgoing, RunId, StepResult, Tenant, Value,
};
use flowcell_engine::Engine;
use flowcell_runtime::ports::{Entry, Journal, Record, StoreError, Unit};
use flowcell_services::model::ModelCapability;
use futures_util::future::BoxFuture;

use super::{Usage, Used, shares::SharedServer};
use crate::operate::{policy::Policy, quota::QuotaError};

/// A journal that counts events and bytes.
pub(crate) struct CountedJournal {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) usage: Usage,
}

impl Journal for CountedJournal {
    fn append(&self, entry: Entry) {
        if self.usage.counts() {
            let (events, bytes) = (entry.unit.facts.len() as u64, entry.unit.size());
            self.usage.count(&entry.tenant, |used| {
                used.events += events;
                used.written_bytes += bytes;
            });
        }
        self.journal.append(entry);
    }

    fn force(&self) {
        self.journal.force();
    }

    fn force_here(&self) {
        self.journal.force_here();
    }

    fn left_below(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.journal.left_below(tenant, run)
    }

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.journal.children_of(tenant, run)
    }

    fn repeats_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.journal.repeats_of(tenant, run)
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        self.journal.find(tenant, run)
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        self.journal.read(tenant, run, from, limit)
    }
}

/// Blobs that count bytes.
pub(crate) struct CountedBlobs {
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) usage: Usage,
}

impl Blobs for CountedBlobs {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        if self.usage.counts() {
            self.usage.count(tenant, |used| used.written_bytes += bytes.len() as u64);
        }
        self.blobs.put(tenant, bytes, mime)
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        self.blobs.get(tenant, blob)
    }

    fn size(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<u64>, Failure> {
        self.blobs.size(tenant, blob)
    }

    fn read_part(
        &self,
        tenant: &Tenant,
        blob: &BlobRef,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        self.blobs.read_part(tenant, blob, offset, length)
    }

    fn writer(self: Arc<Self>, tenant: &Tenant) -> Result<Box<dyn BlobWriter>, Failure> {
        let writer = self.blobs.clone().writer(tenant)?;
        Ok(Box::new(CountedWriter { writer, tenant: tenant.clone(), usage: self.usage.clone() }))
    }
}

/// A file that counts its bytes when it is finished.
struct CountedWriter {
    writer: Box<dyn BlobWriter>,
    tenant: Tenant,
    usage: Usage,
}

impl BlobWriter for CountedWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write(bytes)
    }

    fn size(&self) -> u64 {
        self.writer.size()
    }

    fn finish(self: Box<Self>, mime: &str) -> Result<BlobRef, Failure> {
        if self.usage.counts() {
            let bytes = self.writer.size();
            self.usage.count(&self.tenant, |used| used.written_bytes += bytes);
        }
        self.writer.finish(mime)
    }
}

/// The engine, which refuses attempts of tenants over a quota that does not pause their runs.
pub(crate) struct CountedRunner {
    pub(crate) engine: Engine,
    pub(crate) usage: Usage,
}

impl NodeRunner for CountedRunner {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        match self.usage.admits(&attempt.tenant) {
            Ok(()) => self.engine.run(attempt, calls),
            Err(error) => Box::pin(ready(Err(error.into()))),
        }
    }

    fn prepare(&self, tenant: &Tenant, packs: Vec<Digest>) -> BoxFuture<'static, ()> {
        NodeRunner::prepare(&self.engine, tenant, packs)
    }
}

/// Models that charge the tenant for turns.
pub(crate) struct CountedModels {
    pub(crate) models: ModelCapability,
    pub(crate) usage: Usage,
}

impl Capability for CountedModels {
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure> {
        self.models.admit(call, caller)
    }

    fn perform(&self, mut outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        let (models, usage) = (self.models.clone(), self.usage.clone());
        Box::pin(async move {
            let tenant = outgoing.caller.tenant.clone();
            let turn = models.turn(&mut outgoing)?;
            let (name, profile) = (format!("model:{}", turn.provider()), turn.profile());
            let (permits, within) = (profile.max_calls, profile.timeout());
            let server = SharedServer { name: &name, permits, within, code: flowcell_services::code::MODEL_OVERLOADED };
            let _permit = usage.permit(&tenant, server).await?;
            let most = || Ok(turn.max_cost(&outgoing));
            let paid = PaidCall { reserved_before: turn.lost_usd(&outgoing), ..TURN };
            let reply = usage.pay(&tenant, &paid, most, models.perform(outgoing.clone())).await;
            usage.0.metrics.add_turn_tokens(&reply);
            reply
        })
    }
}

/// A kind of paid call.
pub(crate) struct PaidCall {
    /// A sentence for the operator: the setting that is missing if the price of the call is unknown.
    pub(crate) needs: &'static str,
    /// Returns the actual cost of the call in USD, as far as the cost is known.
    pub(crate) cost: fn(&Result<Value, Failure>) -> f64,
    /// The part of the cost that an earlier process has already reserved, in USD. That reservation stays.
    pub(crate) reserved_before: f64,
}

/// A model's turn as a paid call.
const TURN: PaidCall = PaidCall {
    needs: "the profile of the model needs `prices` and `maxTokens`",
    cost: turn_cost,
    reserved_before: 0.0,
};

/// Returns the cost of a model's turn in USD, including its failed attempts.
fn turn_cost(reply: &Result<Value, Failure>) -> f64 {
    let usage = match reply {
        Ok(value) => value.json().get("usage"),
        Err(failure) => failure.details.as_ref().and_then(|details| details.get("usage")),
    };
    usage.and_then(|usage| usage.get("costUsd")).and_then(Json::as_f64).unwrap_or(0.0)
}

/// A reserved amount of the tenant's quota.
struct Reserved {
    day: u64,
    usd: f64,
}

impl Usage {
    /// Runs paid work and charges the tenant for its cost. `most` returns the maximum cost in USD, or `None` if the
    /// price is unknown. If usage is not counted, only the metrics record the cost.
    pub(crate) async fn pay(
        &self,
        tenant: &Tenant,
        what: &PaidCall,
        most: impl FnOnce() -> Result<Option<f64>, Failure>,
        work: impl Future<Output = Result<Value, Failure>>,
    ) -> Result<Value, Failure> {
        let reserved = match self.counts() {
            true => {
                let most = most()?.ok_or(QuotaError::NoPrice(what.needs));
                Some(self.run_blocking(tenant, |usage, tenant| usage.reserve(tenant, most)).await??)
            }
            false => None,
        };
        let ended = work.await;
        let cost = (what.cost)(&ended);
        self.0.metrics.add_cost(tenant, cost);
        if let Some(reserved) = reserved {
            // If the correction fails, the reservation counts until the day ends.
            let before = if reserved.is_some() { what.reserved_before } else { 0.0 };
            let cost = (cost - before).max(0.0);
            self.run_blocking(tenant, move |usage, tenant| usage.correct(tenant, reserved, cost)).await??;
        }
        ended
    }

    /// Runs blocking work on the store in another thread.
    async fn run_blocking<T: Send + 'static>(
        &self,
        tenant: &Tenant,
        work: impl FnOnce(&Usage, &Tenant) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (usage, tenant) = (self.clone(), tenant.clone());
        let done = tokio::task::spawn_blocking(move || work(&usage, &tenant)).await;
        done.map_err(|error| StoreError(error.to_string().into()).into())
    }

    /// If the operator limits the tenant's costs, reserves the maximum cost `most`. Fails if the price is unknown or
    /// the limit would be exceeded. Without a limit, reserves nothing and returns `None`.
    fn reserve(&self, tenant: &Tenant, most: Result<f64, QuotaError>) -> Result<Option<Reserved>, QuotaError> {
        let policy = Policy::read(&*self.0.documents, tenant)?;
        let Some(limit) = policy.per_day.model_usd else { return Ok(None) };
        let usd = most?;
        let (day, seconds) = self.today();
        let sum = |used: &Used| match used.model_usd + usd > limit {
            true => Err(QuotaError::Day { what: "modelUsd", most: limit, seconds }),
            false => Ok(Used { model_usd: used.model_usd + usd, ..*used }),
        };
        let refused = |error| self.refuse_cost(tenant, policy.per_day, usd, error);
        self.change(tenant, day, sum).map_err(refused)?;
        Ok(Some(Reserved { day, usd }))
    }

    /// Replaces the reserved amount by the actual cost. Without a reservation, adds the cost to the counts of this
    /// process.
    fn correct(&self, tenant: &Tenant, reserved: Option<Reserved>, cost: f64) -> Result<(), StoreError> {
        match reserved {
            Some(Reserved { day, usd }) => {
                let more = Used { model_usd: cost - usd, ..Used::default() };
                self.add(tenant, day, &more).map(|_| ())
            }
            None => {
                self.count(tenant, |used| used.model_usd += cost);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::{collections::HashMap, path::Path};

    use flowcell_contract::{Effect, Grants, NodeId, Prepared, Progress};
    use flowcell_runtime::memory::MemoryBlobs;
    use flowcell_services::{
        client::Client,
        egress::{Egress, EgressPolicy},
        model::Providers,
    };

    use super::*;
    use crate::{Host, operate::policy::PerDay, tenants::Tenants};

    const PROVIDERS: &str = "
profiles:
  p:
    dialect: simulated
    model: m
    maxTokens: 4
    maxRetries: 0
    prices: [{ model: m, input: 1000000, output: 1000000 }]
    script: [{ text: done, usage: { input: 10, output: 3 } }]
";

    fn turn(tenant: &str, lost: u32) -> Outgoing {
        let request = r#"{"messages":[{"role":"user","content":"hello"}],"provider":"p"}"#;
        let args = Value::parse(request).unwrap();
        let grants = Grants([("model".to_owned(), Json::array([Json::from("*")]))].into_iter().collect());
        let caller = Caller {
            tenant: tenant.into(),
            run_id: RunId::from("r"),
            pin: "flow".into(),
            node_id: NodeId::from("ask"),
            node_type: "agent.run".into(),
            grants: Arc::new(grants),
            effect: Effect::AtLeastOnce,
            config: Value::null(),
        };
        let call = Call { interface: "model".into(), function: "generate".into(), args };
        let progress = Progress::default();
        Outgoing {
            caller,
            call,
            effect: Effect::AtLeastOnce,
            key: "key".into(),
            progress,
            prepared: Prepared::default(),
            lost,
            attempt_end: Default::default(),
        }
    }

    /// A turn that was lost with its process keeps its reservation, and its tokens are not charged again.
    #[tokio::test]
    async fn t5_a_turn_that_was_lost_is_paid_by_its_reservation() {
        let host = Host::builder().build().unwrap();
        let tenants = Tenants::of(&host);
        for name in ["limited", "free"] {
            tenants.create(name).unwrap();
        }
        let per_day = PerDay { model_usd: Some(1_000.0), ..PerDay::default() };
        tenants.set_policy("limited", &Policy { per_day, ..Policy::default() }).unwrap();
        let usage = host.usage().clone();
        usage.begin();
        let client = Client::new(Egress::new(EgressPolicy::default()).unwrap());
        let providers = Providers::parse(PROVIDERS, Path::new("")).unwrap();
        let models = ModelCapability::new(&client, Arc::new(MemoryBlobs::default()), providers);
        let models = CountedModels { models, usage: usage.clone() };
        let [mut told, mut paid] = [HashMap::new(), HashMap::new()];
        for tenant in ["limited", "free"] {
            let reply = models.perform(turn(tenant, 2)).await;
            told.insert(tenant, turn_cost(&reply));
            usage.flush().unwrap();
            paid.insert(tenant, usage.of_today(&tenant.into()).unwrap().model_usd);
        }
        assert!(told["limited"] > 40.0 && told["limited"] == told["free"], "the bill has all three turns: {told:?}");
        assert_eq!((paid["limited"], paid["free"]), (13.0, told["free"]));
    }
}
