//! Metrics of a process, in the format of Prometheus.
//!
//! | module | contents |
//! |---|---|
//! | fleet | the numbers of a whole store |
//! | names | the values of labels, up to a limit |
//! | notices | the outcomes of notifications |
//! | own | the metrics that one tenant may see |
//! | refused | the refused posts of each trigger |
//!
//! A count takes a lock per family and an atomic addition. Labels are names that flows, packs and operators have
//! given, and contain no data of runs.

mod fleet;
mod names;
mod notices;
mod own;
mod refused;

use std::{
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Duration,
};

use flowcell_contract::{Failure, Json, RunId, Tenant, Value};
use flowcell_services::{code, egress::Outbound};
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

pub use self::{
    fleet::{Fleet, LateTriggers, TenantFleet},
    notices::NoticeOutcome,
    refused::RefusedTrigger,
};
use self::{
    names::{Names, OTHER},
    refused::RefusedTriggers,
};
use crate::observe::observed::{EndedSpan, Observer, SpanSubject, Tokens};

/// Maximum number of tenants with a label value of their own. Later tenants count as `other`.
pub(crate) const MAX_TENANT_LABELS: usize = 200;
/// Maximum number of node types with a label value of their own.
pub(crate) const MAX_NODE_TYPE_LABELS: usize = 500;
/// Maximum number of call interfaces with a label value of their own. The same limit applies to providers, and to
/// models.
pub(crate) const MAX_INTERFACE_LABELS: usize = 100;

/// Buckets in seconds for network and model calls, and for whole runs.
const LONG_BUCKETS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 600.0];

type Label = (&'static str, Arc<str>);
type Counts<const N: usize> = Family<[Label; N], Counter>;
type Sums<const N: usize> = Family<[Label; N], Counter<f64, AtomicU64>>;
type Breakers = Family<[Label; 1], Gauge>;
type Durations<const N: usize> = Family<[Label; N], Histogram>;

/// The prefix of the names of all metrics.
const PREFIX: &str = "flowcell";
/// The names and the help of the families that a tenant sees its own series of.
const RUNS_STARTED: [&str; 2] = ["runs_started", "Runs that began, by tenant"];
const RUNS_ENDED: [&str; 2] = ["runs_ended", "Runs that ended, by tenant and status"];
const RUNS_PAUSED: [&str; 2] = ["runs_paused", "Times that a run was parked for a quota, by tenant"];
const RUNS_REMOVED: [&str; 2] = ["runs_removed", "Ended runs that were removed, by tenant"];
const COMPUTE: [&str; 2] = ["compute", "Compute time of attempts, by tenant"];
const MODEL_COST: [&str; 2] = ["model_cost", "Known cost of model turns and images, by tenant"];
const BREAKERS: [&str; 2] = ["outbound_breakers_open", "Origins whose circuit breaker is open, by tenant"];
const REFUSALS: [&str; 2] = ["outbound_refusals", "Requests that were not sent, by tenant and code"];
/// The codes of requests that were not sent.
const REFUSAL_CODES: [&str; 2] = [code::CIRCUIT_OPEN, code::RATE_LIMITED];
const WEBHOOK_POSTS: [&str; 2] = ["webhook_posts", "Posts to triggers, by tenant and outcome"];

/// The metrics of a process. Cloning is cheap.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    registry: Registry,
    tenants: Names,
    node_types: Names,
    interfaces: Names,
    providers: Names,
    models: Names,
    runs_started: Counts<1>,
    runs_ended: Counts<2>,
    run_seconds: Durations<1>,
    runs_removed: Counts<1>,
    runs_paused: Counts<1>,
    runs_driven: Gauge,
    runs_waiting: Gauge,
    runs_below: Gauge,
    attempts: Counts<2>,
    computed: Sums<1>,
    calls: Durations<2>,
    tokens: Counts<3>,
    cost: Sums<1>,
    requests: Durations<3>,
    requests_active: Gauge,
    failed_handshakes: Counter,
    subscribers: Gauge,
    commits: Counter,
    free_room: Family<[Label; 0], Gauge>,
    least_room: Family<[Label; 0], Gauge>,
    store_available: Gauge,
    started: Gauge<f64, AtomicU64>,
    posts: Counts<2>,
    refusals: Counts<2>,
    outbound: OnceLock<Outbound>,
    notices: Counts<2>,
    notices_waiting: Family<[Label; 1], Gauge>,
    refused: RefusedTriggers,
}

/// The outcome of a post to a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    /// The post started a run.
    Started,
    /// The same post has started a run before.
    Repeated,
    /// The post only tested the address, and was answered.
    Challenge,
    /// The post is for a trigger that the server does not have. Its tenant is not counted.
    UnknownTrigger,
    /// The signature, its time or a header does not fit, or the server cannot read a key of the trigger.
    Unsigned,
    /// The post was not checked, because too many posts of its sender were refused.
    TooMany,
    /// An earlier post with the same id had another body.
    OtherBody,
    /// The post has no valid id at the place that its scheme names.
    InvalidId,
    /// The body cannot be the input of a run.
    InvalidBody,
    /// The server stops, the store does not answer, or a quota is used up. The sender may post again.
    Later,
    /// The flow cannot start with this post.
    Failed,
}

impl PostOutcome {
    /// All outcomes.
    const ALL: [PostOutcome; 11] = [
        PostOutcome::Started,
        PostOutcome::Repeated,
        PostOutcome::Challenge,
        PostOutcome::UnknownTrigger,
        PostOutcome::Unsigned,
        PostOutcome::TooMany,
        PostOutcome::OtherBody,
        PostOutcome::InvalidId,
        PostOutcome::InvalidBody,
        PostOutcome::Later,
        PostOutcome::Failed,
    ];

    /// Returns whether the post has started nothing and was no test.
    pub(crate) fn is_refusal(self) -> bool {
        !matches!(self, PostOutcome::Started | PostOutcome::Repeated | PostOutcome::Challenge)
    }

    /// Returns the value of the label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PostOutcome::Started => "started",
            PostOutcome::Repeated => "repeated",
            PostOutcome::Challenge => "challenge",
            PostOutcome::UnknownTrigger => "unknown_trigger",
            PostOutcome::Unsigned => "unsigned",
            PostOutcome::TooMany => "too_many",
            PostOutcome::OtherBody => "other_body",
            PostOutcome::InvalidId => "invalid_id",
            PostOutcome::InvalidBody => "invalid_body",
            PostOutcome::Later => "later",
            PostOutcome::Failed => "failed",
        }
    }
}

/// Values that are not counted here. The caller reads them when a client asks for the metrics.
pub struct ScrapeValues {
    /// New runs that wait for their turn.
    pub runs_waiting: u64,
    /// Child runs that this process drives.
    pub runs_below: u64,
    /// Requests that are being answered.
    pub requests_active: u64,
    /// Live streams of events.
    pub subscribers: u64,
    /// Commits of the store that this process has made. `None` for a store in memory.
    pub commits: Option<u64>,
    /// Free room of the disk of a store in a folder, in bytes.
    pub free_room: Option<u64>,
    /// Free room that new runs need, in bytes.
    pub least_room: Option<u64>,
    /// True if the store answers.
    pub store_available: bool,
    /// The time at which the server started, in milliseconds since 1970.
    pub started: u64,
    /// The present time, in milliseconds since 1970.
    pub now: u64,
    /// The numbers of the store. `None` if they were not read yet, or if the store has no lists of runs.
    pub fleet: Option<Arc<Fleet>>,
}

/// Counts a run as driven until this value is dropped.
pub struct DrivenRun(Metrics);

impl Drop for DrivenRun {
    fn drop(&mut self) {
        self.0.0.runs_driven.dec();
    }
}

fn durations<const N: usize>() -> Durations<N> {
    Family::new_with_constructor(|| Histogram::new(LONG_BUCKETS))
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut families = Families {
            registry: Registry::with_prefix(PREFIX),
            tenants: Names::new(MAX_TENANT_LABELS),
            node_types: Names::new(MAX_NODE_TYPE_LABELS),
            interfaces: Names::new(MAX_INTERFACE_LABELS),
            providers: Names::new(MAX_INTERFACE_LABELS),
            models: Names::new(MAX_INTERFACE_LABELS),
            runs_started: Family::default(),
            runs_ended: Family::default(),
            run_seconds: durations(),
            runs_removed: Family::default(),
            runs_paused: Family::default(),
            runs_driven: Gauge::default(),
            runs_waiting: Gauge::default(),
            runs_below: Gauge::default(),
            attempts: Family::default(),
            computed: Family::default(),
            calls: durations(),
            tokens: Family::default(),
            cost: Family::default(),
            requests: durations(),
            requests_active: Gauge::default(),
            failed_handshakes: Counter::default(),
            subscribers: Gauge::default(),
            commits: Counter::default(),
            free_room: Family::default(),
            least_room: Family::default(),
            store_available: Gauge::default(),
            started: Gauge::default(),
            posts: Family::default(),
            refusals: Family::default(),
            outbound: OnceLock::new(),
            notices: Family::default(),
            notices_waiting: Family::default(),
            refused: RefusedTriggers::default(),
        };
        families.register();
        Metrics(Arc::new(families))
    }
}

impl Families {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(RUNS_STARTED[0], RUNS_STARTED[1], self.runs_started.clone());
        registry.register(RUNS_ENDED[0], RUNS_ENDED[1], self.runs_ended.clone());
        let help = "Duration of runs with their pauses, by status";
        registry.register_with_unit("run_duration", help, Unit::Seconds, self.run_seconds.clone());
        registry.register(RUNS_REMOVED[0], RUNS_REMOVED[1], self.runs_removed.clone());
        registry.register(RUNS_PAUSED[0], RUNS_PAUSED[1], self.runs_paused.clone());
        registry.register("runs_driven", "Runs that this process drives now", self.runs_driven.clone());
        registry.register("runs_waiting", "Runs that wait for their turn to be driven", self.runs_waiting.clone());
        registry.register("runs_below", "Driven runs that other runs called", self.runs_below.clone());
        registry.register("attempts", "Attempts that ended, by node type and outcome", self.attempts.clone());
        registry.register_with_unit(COMPUTE[0], COMPUTE[1], Unit::Seconds, self.computed.clone());
        let help = "Calls of nodes, by interface and outcome";
        registry.register_with_unit("call_duration", help, Unit::Seconds, self.calls.clone());
        let help = "Tokens of model turns, by provider, model and kind";
        registry.register("model_tokens", help, self.tokens.clone());
        registry.register_with_unit(MODEL_COST[0], MODEL_COST[1], Unit::Other("usd".into()), self.cost.clone());
        let help = "Time until the answer to a request begins, by method, route and status";
        registry.register_with_unit("http_request_duration", help, Unit::Seconds, self.requests.clone());
        let help = "Requests of known callers in progress";
        registry.register("http_requests_active", help, self.requests_active.clone());
        let help = "Handshakes of TLS that failed or took too long";
        registry.register("tls_failed_handshakes", help, self.failed_handshakes.clone());
        registry.register("live_subscribers", "Open streams of events", self.subscribers.clone());
        let help = "Free room of the disk of a store in a folder";
        registry.register("store_free_bytes", help, self.free_room.clone());
        let help = "Free room that new runs need on the disk of a store in a folder";
        registry.register("store_least_free_bytes", help, self.least_room.clone());
        registry.register("store_available", "1 if the store answers, else 0", self.store_available.clone());
        let help = "Time at which the server started, in seconds since 1970";
        registry.register("process_start_time_seconds", help, self.started.clone());
        registry.register(WEBHOOK_POSTS[0], WEBHOOK_POSTS[1], self.posts.clone());
        registry.register(REFUSALS[0], REFUSALS[1], self.refusals.clone());
        let help = "Notifications, by target and outcome";
        registry.register("notifications", help, self.notices.clone());
        let help = "Notifications that wait for a target, in this process";
        registry.register("notifications_waiting", help, self.notices_waiting.clone());
        registry.register("store_commits", "Commits of this process to its store", self.commits.clone());
    }
}

impl Families {
    /// Returns the numbers of open circuit breakers by tenant. Tenants beyond the limit share a label.
    fn open_breakers(&self) -> Breakers {
        let breakers = Breakers::default();
        for (tenant, open) in self.outbound.get().map(Outbound::open_breakers).unwrap_or_default() {
            breakers.get_or_create(&[("tenant", self.tenants.label(tenant.as_str()))]).inc_by(number(open as u64));
        }
        breakers
    }
}

impl Metrics {
    /// Returns all metrics in the text format of Prometheus.
    pub fn render(&self, now: &ScrapeValues) -> String {
        let set = |gauge: &Gauge, value: u64| _ = gauge.set(number(value));
        set(&self.0.runs_waiting, now.runs_waiting);
        set(&self.0.runs_below, now.runs_below);
        set(&self.0.requests_active, now.requests_active);
        set(&self.0.subscribers, now.subscribers);
        if let Some(commits) = now.commits {
            self.0.commits.inner().store(commits, std::sync::atomic::Ordering::Relaxed);
        }
        if let Some(free) = now.free_room {
            set(&self.0.free_room.get_or_create(&[]), free);
        }
        if let Some(least) = now.least_room {
            set(&self.0.least_room.get_or_create(&[]), least);
        }
        set(&self.0.store_available, u64::from(now.store_available));
        self.0.started.set(now.started as f64 / 1e3);
        let mut store = Registry::with_prefix(PREFIX);
        store.register(BREAKERS[0], BREAKERS[1], self.0.open_breakers());
        if let Some(fleet) = &now.fleet {
            fleet::register_all(&mut store, fleet, &self.0.tenants, now.now);
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode_registry(&mut text, &self.0.registry);
        let _ = text::encode(&mut text, &store);
        text
    }

    /// Returns the metrics of one tenant in the text format of Prometheus: its own series, and none that other tenants
    /// change. `fleet` has the numbers of the store, and `now` is in milliseconds since 1970.
    pub fn render_for(&self, tenant: &Tenant, fleet: Option<&Fleet>, now: u64) -> String {
        own::render(&self.0, tenant.as_str(), fleet, now)
    }

    /// Creates the circuit breakers and limits of outgoing requests, whose state these metrics show.
    pub(crate) fn watch_outbound(&self) -> Outbound {
        let families = Arc::downgrade(&self.0);
        let outbound = Outbound::with_observer(Arc::new(move |tenant: &Tenant, code| {
            if let Some(families) = families.upgrade() {
                let labels = [("tenant", families.tenants.label(tenant.as_str())), ("code", code.into())];
                families.refusals.get_or_create(&labels).inc();
            }
        }));
        self.0.outbound.get_or_init(|| outbound).clone()
    }

    /// Counts a run as driven until the returned value is dropped.
    pub fn count_driven_run(&self) -> DrivenRun {
        self.0.runs_driven.inc();
        DrivenRun(self.clone())
    }

    /// Adds computing time of a tenant's attempts to the metrics.
    pub(crate) fn add_compute_time(&self, tenant: &Tenant, time: Duration) {
        let labels = [("tenant", self.0.tenants.label(tenant.as_str()))];
        self.0.computed.get_or_create(&labels).inc_by(time.as_secs_f64());
    }

    /// Adds the tokens of a model's turn that has ended, by provider and model.
    pub(crate) fn add_turn_tokens(&self, reply: &Result<Value, Failure>) {
        let told = match reply {
            Ok(value) => Some(value.json()),
            Err(failure) => failure.details.as_ref(),
        };
        let Some((told, usage)) = told.and_then(|told| Some((told, told.get("usage")?))) else { return };
        let name = |names: &Names, member| names.label(told.get(member).and_then(Json::as_str).unwrap_or("unknown"));
        let (provider, model) = (name(&self.0.providers, "provider"), name(&self.0.models, "model"));
        if let Some(Tokens { input, output }) = Tokens::read(usage) {
            for (kind, count) in [("input", input), ("output", output)] {
                let labels = [("provider", provider.clone()), ("model", model.clone()), ("kind", kind.into())];
                self.0.tokens.get_or_create(&labels).inc_by(count);
            }
        }
    }

    /// Forgets the series of a removed tenant.
    pub(crate) fn forget(&self, tenant: &Tenant) {
        own::forget(&self.0, tenant.as_str());
    }

    /// Counts removed runs of a tenant.
    pub(crate) fn count_removed(&self, tenant: &Tenant, runs: u64) {
        if runs > 0 {
            self.0.runs_removed.get_or_create(&[("tenant", self.0.tenants.label(tenant.as_str()))]).inc_by(runs);
        }
    }

    /// Adds costs of a tenant, in USD.
    pub(crate) fn add_cost(&self, tenant: &Tenant, usd: f64) {
        if usd > 0.0 {
            self.0.cost.get_or_create(&[("tenant", self.0.tenants.label(tenant.as_str()))]).inc_by(usd);
        }
    }

    /// Counts a handshake of TLS that has failed.
    pub fn count_failed_handshake(&self) {
        self.0.failed_handshakes.inc();
    }

    /// Counts a post to a trigger of a tenant. `None`: no tenant has the trigger, so the sender has made up the names.
    pub(crate) fn count_post(&self, tenant: Option<&Tenant>, outcome: PostOutcome) {
        let tenant = tenant.map_or(OTHER, Tenant::as_str);
        let labels = [("tenant", self.0.tenants.label(tenant)), ("outcome", outcome.name().into())];
        self.0.posts.get_or_create(&labels).inc();
    }

    /// Returns the triggers that refuse posts.
    pub(crate) fn refused_triggers(&self) -> &RefusedTriggers {
        &self.0.refused
    }

    /// Counts a request. `took` is the time until its answer began.
    pub fn count_request(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        let labels = [("method", method.into()), ("route", route.into()), ("status", status.to_string().into())];
        self.0.requests.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

impl Observer for Metrics {
    fn started(&self, tenant: &Tenant, _run: &RunId, _flow: &str) {
        self.0.runs_started.get_or_create(&[("tenant", self.0.tenants.label(tenant.as_str()))]).inc();
    }

    fn paused(&self, tenant: &Tenant, _run: &RunId, _quota: &str, _until: u64) {
        self.0.runs_paused.get_or_create(&[("tenant", self.0.tenants.label(tenant.as_str()))]).inc();
    }

    fn ended(&self, _root: &RunId, ended: &EndedSpan) {
        let outcome: Arc<str> = ended.outcome.into();
        let seconds = Duration::from_millis(ended.ended - ended.began).as_secs_f64();
        match &ended.what {
            SpanSubject::Run { .. } => {
                self.0.run_seconds.get_or_create(&[("status", outcome.clone())]).observe(seconds);
                let labels = [("tenant", self.0.tenants.label(ended.tenant.as_str())), ("status", outcome)];
                self.0.runs_ended.get_or_create(&labels).inc();
            }
            SpanSubject::Attempt { node_type, .. } => {
                let labels = [("node_type", self.0.node_types.label(node_type)), ("outcome", outcome)];
                self.0.attempts.get_or_create(&labels).inc();
            }
            SpanSubject::Call { call, .. } => {
                let labels = [("interface", self.0.interfaces.label(&call.interface)), ("outcome", outcome)];
                self.0.calls.get_or_create(&labels).observe(seconds);
            }
            SpanSubject::Agent { .. } => {}
        }
    }
}

/// Returns a count as the value of a gauge.
fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
