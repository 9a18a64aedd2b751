//! Protects the servers that a process calls, and the flows that wait for them: a circuit breaker and limits of the rate
//! for each tenant and origin.
//!
//! [`Egress::with_outbound`](crate::egress::Egress::with_outbound) adds it to an egress guard. All clients of that guard
//! share it, and [`Client::send`](crate::client::Client::send) asks it before each request. A request that it refuses
//! has certainly sent nothing: the client has not even looked up the name.
//!
//! * **Breaker.** After 10 failures in a row, none older than 60 s, the origin is refused at once (`circuit_open`). A
//!   failure is a missing connection, a missing answer, or the status 502, 503 or 504. After a wait one request probes
//!   the origin. The wait begins with 1 s, doubles with each failed probe up to 30 s, and is extended at random by up to
//!   a third. After an answered probe the rate grows for 7 s: 10 requests in the first second, twice as many in each
//!   later one. Refused requests are told to come back at a random time after the wait: within twice the wait, and within
//!   20 s.
//! * **Limits**, if the operator sets [`OutboundLimits`] for a tenant: requests per second, and requests at a time.
//! * A request that has to wait for its turn waits for at most 10 s (`rate_limited`). The runs of a tenant take turns.
//!
//! | subject | limit |
//! |---|---|
//! | tracked origins | 256 of a tenant, 16,384 in all |
//! | requests that wait for one origin | 1,000 of a tenant; a run at most as many as are still free |
//!
//! An origin that answers is not tracked, unless its tenant has limits, so that a request costs nothing while all is
//! well. Tenants share nothing here: neither failures, nor waits, nor room in the table.

mod breaker;
mod bucket;
mod entry;
mod limits;
mod queue;
mod table;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flowcell_contract::{Failure, RunId, Tenant};
use futures_util::future::{BoxFuture, Either, select};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::oneshot, time::Instant};

pub(crate) use self::breaker::Outcome;
pub use self::{breaker::BreakerState, limits::OutboundLimits};
use self::{
    breaker::{Change, Ticket},
    entry::{Entry, MAX_WAIT_FOR_TURN, Next, circuit_open, rate_limited},
    table::Table,
};
use super::origin::Origin;
use crate::code;

/// A request that ends without an answer after this time, because its caller gives up, counts as a failure of the server.
const SLOW: Duration = Duration::from_secs(30);

/// The time and the randomness of [`Outbound`].
pub trait OutboundClock: Send + Sync {
    /// Returns the present time.
    fn now(&self) -> Instant;
    /// Waits for a time.
    fn sleep(&self, how_long: Duration) -> BoxFuture<'static, ()>;
    /// Returns a random number from 0 (inclusive) to 1 (exclusive).
    fn random(&self) -> f64;
}

/// The clock of this machine.
struct SystemClock;

impl OutboundClock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, how_long: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }

    fn random(&self) -> f64 {
        rand::random()
    }
}

/// Receives the code of each refused request, with its tenant.
pub type OnRefusal = Arc<dyn Fn(&Tenant, &'static str) + Send + Sync>;

/// The circuit breakers and the limits of a process. Clones share them.
#[derive(Clone)]
pub struct Outbound(Arc<Shared>);

struct Shared {
    table: Mutex<Table<Turn>>,
    /// False while the table is empty, so that a request takes no lock then.
    is_used: AtomicBool,
    clock: Arc<dyn OutboundClock>,
    on_refusal: Option<OnRefusal>,
}

impl fmt::Debug for Outbound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Outbound").field("tracked", &self.tracked()).finish_non_exhaustive()
    }
}

impl Default for Outbound {
    fn default() -> Outbound {
        Outbound::new(Arc::new(SystemClock), None)
    }
}

/// A circuit breaker of a tenant that is not closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBreaker {
    /// The tenant.
    pub tenant: Tenant,
    /// The origin that has failed.
    pub origin: Origin,
    /// The state of the breaker.
    pub state: BreakerState,
    /// The time since the breaker first opened.
    pub open_for: Duration,
    /// The time until the next probe, or until a recovering breaker is closed. Zero if the breaker waits for a request.
    pub remaining: Duration,
}

/// The right to send one request. Its end is [reported](Permit::report); a request that is dropped before counts as a
/// failure only if the server had 30 s for an answer.
pub(crate) struct Permit {
    outbound: Outbound,
    tenant: Tenant,
    origin: Origin,
    ticket: Ticket,
    began: Instant,
    is_reported: bool,
    /// True if the request holds one of the places of [`OutboundLimits::max_concurrency`].
    holds_place: bool,
}

/// Tells a waiting request that it may begin, or that it is refused.
type Turn = oneshot::Sender<Result<Permit, Failure>>;

/// The answer to a request that wants to begin.
enum Entered {
    Begins(Permit),
    Waits(oneshot::Receiver<Result<Permit, Failure>>),
    Refused(Failure),
}

impl Outbound {
    /// Creates breakers with this clock. `on_refusal` is called for each refused request.
    pub fn new(clock: Arc<dyn OutboundClock>, on_refusal: Option<OnRefusal>) -> Outbound {
        Outbound(Arc::new(Shared { table: Mutex::default(), is_used: AtomicBool::new(false), clock, on_refusal }))
    }

    /// Creates breakers with the clock of this machine. `on_refusal` is called for each refused request.
    pub fn with_observer(on_refusal: OnRefusal) -> Outbound {
        Outbound::new(Arc::new(SystemClock), Some(on_refusal))
    }

    /// Sets the limits of a tenant for each origin.
    pub fn set_limits(&self, tenant: &Tenant, limits: Option<OutboundLimits>) {
        let limits = limits.filter(|limits| !limits.limits_nothing() && limits.check().is_ok());
        // The default limits count as a use.
        if limits.is_none() && !self.is_used() {
            return;
        }
        let mut table = self.0.table.lock();
        table.set_limits(tenant, limits, self.0.clock.now());
        self.note_use(&table);
    }

    /// Sets the limits of the tenants that have none of their own.
    pub fn set_default_limits(&self, limits: OutboundLimits) {
        if !limits.limits_nothing() && limits.check().is_ok() {
            let mut table = self.0.table.lock();
            table.set_default_limits(limits, self.0.clock.now());
            self.note_use(&table);
        }
    }

    /// Returns the tenants with open breakers, and how many each has. Forgets breakers that no request has asked for 10
    /// min after their wait.
    pub fn open_breakers(&self) -> Vec<(Tenant, usize)> {
        let mut table = self.0.table.lock();
        let now = self.0.clock.now();
        table.sweep(now);
        self.note_use(&table);
        table.open_breakers(now)
    }

    /// Returns the breakers that are not closed, of one tenant or of all: those that are open for longest come first.
    pub fn breakers(&self, only: Option<&Tenant>) -> Vec<OpenBreaker> {
        let mut breakers = self.0.table.lock().breakers(only, self.0.clock.now());
        let name = |breaker: &OpenBreaker| (breaker.tenant.to_string(), breaker.origin.to_string());
        breakers.sort_by(|a, b| b.open_for.cmp(&a.open_for).then_with(|| name(a).cmp(&name(b))));
        breakers
    }

    /// Returns the number of tracked origins.
    pub fn tracked(&self) -> usize {
        self.0.table.lock().count()
    }

    /// Asks to send a request. Waits for its turn if the operator limits the rate, or if the origin recovers.
    pub(crate) async fn begin(&self, tenant: &Tenant, origin: &Origin, run: Option<&RunId>) -> Result<Permit, Failure> {
        if !self.is_used() {
            return Ok(self.permit(tenant, origin, (Ticket::default(), false), self.0.clock.now()));
        }
        let refused = match self.enter(tenant, origin, run) {
            Entered::Begins(permit) => return Ok(permit),
            Entered::Refused(failure) => failure,
            Entered::Waits(turn) => match select(turn, self.0.clock.sleep(MAX_WAIT_FOR_TURN)).await {
                Either::Left((Ok(Ok(permit)), _)) => return Ok(permit),
                Either::Left((Ok(Err(failure)), _)) => failure,
                Either::Left((Err(_), _)) | Either::Right(_) => {
                    rate_limited(origin, MAX_WAIT_FOR_TURN, self.0.clock.random())
                }
            },
        };
        if let Some(on_refusal) = &self.0.on_refusal {
            let is_open = refused.code == code::CIRCUIT_OPEN;
            on_refusal(tenant, if is_open { code::CIRCUIT_OPEN } else { code::RATE_LIMITED });
        }
        Err(refused)
    }

    fn enter(&self, tenant: &Tenant, origin: &Origin, run: Option<&RunId>) -> Entered {
        let (now, random) = (self.0.clock.now(), || self.0.clock.random());
        let mut table = self.0.table.lock();
        let entry = if table.limits_of(tenant).is_some() {
            let tracked = table.track(tenant, origin, now);
            let Some(entry) = tracked else {
                return Entered::Refused(rate_limited(origin, MAX_WAIT_FOR_TURN, random()));
            };
            entry
        } else {
            match table.get(tenant, origin) {
                Some(entry) => entry,
                None => return Entered::Begins(self.permit(tenant, origin, (Ticket::default(), false), now)),
            }
        };
        let run = run.cloned();
        let ahead = entry.waiting.ahead_of(&run);
        let next = match entry.next(now, ahead) {
            Next::Refused(refusal) => return Entered::Refused(circuit_open(origin, refusal, random())),
            Next::At(at) if at <= now && entry.waiting.is_empty() => {
                return Entered::Begins(self.permit(tenant, origin, entry.begin(now), now));
            }
            Next::At(at) if at > now + MAX_WAIT_FOR_TURN => {
                return Entered::Refused(rate_limited(origin, at - now, random()));
            }
            next => next,
        };
        let (sender, turn) = oneshot::channel();
        if let Err(sender) = entry.waiting.push(run.clone(), sender) {
            // Requests whose callers have given up may fill the queue.
            entry.waiting.retain(|turn| !turn.is_closed());
            if entry.waiting.push(run, sender).is_err() {
                return Entered::Refused(rate_limited(origin, MAX_WAIT_FOR_TURN, random()));
            }
        }
        if matches!(next, Next::At(_)) {
            self.pump_or_start(entry, tenant, origin, now);
        }
        Entered::Waits(turn)
    }

    /// Starts the task that lets waiting requests of an origin begin when their time has come. It ends when none waits
    /// for a time.
    fn start_pump(&self, entry: &mut Entry<Turn>, tenant: &Tenant, origin: &Origin) {
        // Without a runtime no request waits.
        let Ok(runtime) = Handle::try_current() else { return };
        if entry.pump.as_ref().is_some_and(|pump| !pump.is_finished()) {
            return;
        }
        let (outbound, tenant, origin) = (self.clone(), tenant.clone(), origin.clone());
        let pump = runtime.spawn(async move {
            loop {
                let wait = {
                    let mut table = outbound.0.table.lock();
                    let Some(entry) = table.get(&tenant, &origin) else { return };
                    let now = outbound.0.clock.now();
                    match outbound.pump(entry, &tenant, &origin, now) {
                        Some(at) => at - now,
                        None => {
                            entry.pump = None;
                            return;
                        }
                    }
                };
                outbound.0.clock.sleep(wait).await;
            }
        });
        entry.pump = Some(pump.abort_handle());
    }

    /// Lets waiting requests begin whose time has come. Returns the time of the next one, or `None` if none waits for a
    /// time.
    fn pump(&self, entry: &mut Entry<Turn>, tenant: &Tenant, origin: &Origin, now: Instant) -> Option<Instant> {
        loop {
            if entry.waiting.is_empty() {
                return None;
            }
            match entry.next(now, 0) {
                Next::At(at) if at > now => return Some(at),
                Next::NoPlace => return None,
                Next::Refused(refusal) => {
                    while let Some(turn) = entry.waiting.pop() {
                        // A request that has given up needs no answer.
                        let _ = turn.send(Err(circuit_open(origin, refusal, self.0.clock.random())));
                    }
                }
                Next::At(_) => {
                    let turn = entry.waiting.pop()?;
                    self.give(turn, entry, tenant, origin, now);
                }
            }
        }
    }

    /// Begins a waiting request, unless its caller has given up.
    fn give(&self, turn: Turn, entry: &mut Entry<Turn>, tenant: &Tenant, origin: &Origin, now: Instant) {
        if turn.is_closed() {
            return;
        }
        let begun = entry.begin(now);
        if let Err(Ok(mut permit)) = turn.send(Ok(self.permit(tenant, origin, begun, now))) {
            // The table is locked here, so the permit must not return its place by itself.
            if std::mem::take(&mut permit.holds_place) {
                entry.release();
            }
            permit.is_reported = true;
            let _ = entry.breaker.end(permit.ticket, Outcome::Unknown, now, 0.0);
        }
    }

    fn permit(&self, tenant: &Tenant, origin: &Origin, begun: (Ticket, bool), now: Instant) -> Permit {
        Permit {
            outbound: self.clone(),
            tenant: tenant.clone(),
            origin: origin.clone(),
            ticket: begun.0,
            began: now,
            is_reported: false,
            holds_place: begun.1,
        }
    }

    fn is_used(&self) -> bool {
        self.0.is_used.load(Ordering::Acquire)
    }

    fn note_use(&self, table: &Table<Turn>) {
        self.0.is_used.store(!table.is_empty(), Ordering::Release);
    }

    /// Takes in the end of a request. `pause` is the time for which the server asks its clients to wait.
    fn end(&self, permit: &Permit, outcome: Outcome, pause: Option<Duration>) {
        let Permit { tenant, origin, ticket, .. } = permit;
        if outcome != Outcome::Failed && !self.is_used() {
            return;
        }
        let (now, random) = (self.0.clock.now(), self.0.clock.random());
        let mut table = self.0.table.lock();
        let (entry, ticket) = match table.get(tenant, origin) {
            Some(_) => (table.get(tenant, origin), *ticket),
            None if outcome == Outcome::Failed => (table.track(tenant, origin, now), Ticket::default()),
            None => (None, *ticket),
        };
        let Some(entry) = entry else { return };
        if let Some(pause) = pause {
            entry.pause(now, pause);
        }
        let change = if entry.has_breaker { entry.breaker.end(ticket, outcome, now, random) } else { None };
        if change.is_some() {
            self.pump_or_start(entry, tenant, origin, now);
        }
        table.forget_if_as_new(tenant, origin, now);
        self.note_use(&table);
        drop(table);
        match change {
            Some(Change::Opened) => {
                tracing::warn!(%tenant, %origin, "the circuit breaker opens: the origin fails, and no request is sent");
            }
            Some(Change::Reopened) => tracing::debug!(%tenant, %origin, "the origin still fails"),
            Some(Change::Recovers) => tracing::info!(%tenant, %origin, "the origin answers again"),
            None => {}
        }
    }

    fn pump_or_start(&self, entry: &mut Entry<Turn>, tenant: &Tenant, origin: &Origin, now: Instant) {
        if self.pump(entry, tenant, origin, now).is_some() {
            self.start_pump(entry, tenant, origin);
        }
    }
}

impl Permit {
    /// Takes in the end of the request. The place of the request stays taken until the permit is dropped.
    pub(crate) fn report(&mut self, outcome: Outcome, pause: Option<Duration>) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.outbound.clone().end(self, outcome, pause);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_reported {
            let waited = self.outbound.0.clock.now().saturating_duration_since(self.began);
            self.report(if waited >= SLOW { Outcome::Failed } else { Outcome::Unknown }, None);
        }
        if self.holds_place {
            let outbound = self.outbound.clone();
            let mut table = outbound.0.table.lock();
            let now = outbound.0.clock.now();
            if let Some(entry) = table.get(&self.tenant, &self.origin) {
                entry.release();
                outbound.pump_or_start(entry, &self.tenant, &self.origin, now);
            }
        }
    }
}
