//! The main task of a process: it looks for messages and writes documents.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use flowcell_contract::Tenant;
use flowcell_runtime::ports::{MaybeStoreError, StoreError};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{
    config::{NotifyFile, TargetSettings},
    message::{Message, NoticeKind},
    queue::Queues,
    record::{self, LEASE_MS, MAX_AGE_MS, Progress, StoredTenant},
    scan::{Look, MAX_READ_RUNS, MAX_READ_TIME},
    sender::{Shared, send_all, watch_store},
    target::open_all,
    watch,
};
use crate::{
    Host,
    operate::{documents::DocumentError, identity::Identify, policy::OPERATORS},
    shape::time,
};

/// Minimum time between two looks.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Looks take at most the time divided by this number.
const LOOK_SHARE: u32 = 20;
/// Minimum time between two looks if a message was sent meanwhile, which the second one records.
const MIN_REST: Duration = Duration::from_millis(50);
/// Time between two looks at the runs of the last minute, at quotas and at tokens.
pub const SECOND_LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// The time in milliseconds that passes at most until a document says that a tenant was looked at.
const MAX_UNSTORED_MS: u64 = 600_000;
/// The time for messages that are under way when the process stops.
pub const STOP_TIME: Duration = Duration::from_secs(3);

/// Tells the targets of a file what happens in a store.
pub struct Notifier {
    shared: Arc<Shared>,
    looker: Looker,
}

/// Looks for messages.
struct Looker {
    identity: Arc<dyn Identify>,
    id: String,
    tenants: HashMap<Tenant, Known>,
    /// The time from which the events of a new tenant count, in milliseconds since 1970.
    floor: u64,
    /// True until the first look has succeeded.
    is_first: bool,
    /// The number of tenants that had no document.
    new_tenants: u64,
    next_second: Instant,
    /// Sent messages about the operators' tokens.
    own: Progress,
    /// The tenants whose runs cannot be read, with the errors in the log.
    failures: HashMap<Tenant, String>,
}

/// A tenant whose document was read.
struct Known {
    progress: Progress,
    /// 0: there is no document yet.
    version: u64,
    /// `Progress::time` and `Progress::complete` in the document.
    stored: [u64; 2],
}

impl Known {
    /// Returns whether the document has to be written. If only the place in the list of runs has moved, and not by much,
    /// the next process reads those runs again.
    fn is_worth_storing(&self, before: &Progress) -> bool {
        let after = &self.progress;
        self.version == 0
            || before.floor != after.floor
            || before.once != after.once
            || after.seen.keys().any(|key| !before.seen.contains_key(key))
            || after.time.abs_diff(self.stored[0]) > record::OVERLAP_MS / 2
            || after.complete.abs_diff(self.stored[1]) > MAX_UNSTORED_MS
    }
}

impl Notifier {
    /// Opens the targets of a file: reads their secrets, and connects to none. The error is a sentence.
    pub async fn open(host: &Host, identity: Arc<dyn Identify>, file: &NotifyFile) -> Result<Notifier, String> {
        let targets: Vec<_> = open_all(host, file).await?.into_iter().map(Arc::new).collect();
        let (process, id) = (Tenant::from(OPERATORS), watch::process_id());
        let shared = host.shared().is_some();
        let shared = Shared {
            host: host.clone(),
            targets,
            queues: Queues::default(),
            may_send_until: Mutex::new(shared.then(Instant::now)),
            has_failed: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            process,
        };
        let looker = Looker {
            identity,
            id,
            tenants: HashMap::new(),
            floor: host.now(),
            is_first: true,
            new_tenants: 0,
            next_second: Instant::now(),
            own: Progress::default(),
            failures: HashMap::new(),
        };
        Ok(Notifier { shared: Arc::new(shared), looker })
    }

    /// Sends messages until `stop` is ready. Then it waits a short time for the messages that are under way, and records
    /// those that were sent.
    pub async fn attend(self, stop: impl Future<Output = ()>) {
        let Notifier { shared, mut looker } = self;
        if shared.targets.is_empty() {
            return;
        }
        let mut senders = JoinSet::new();
        for target in &shared.targets {
            senders.spawn(send_all(shared.clone(), target.clone()));
        }
        let mut watching = JoinSet::new();
        watching.spawn(watch_store(shared.clone(), looker.id.clone()));
        let (mut stop, mut is_last) = (std::pin::pin!(stop), false);
        loop {
            let looking = shared.clone();
            let began = Instant::now();
            let looked = tokio::task::spawn_blocking(move || {
                looker.look(&looking);
                looker
            });
            match looked.await {
                Ok(returned) => looker = returned,
                Err(error) => {
                    // The senders go on. Without a look they get no further messages, and other processes take over.
                    tracing::error!("notifications have stopped: {error}");
                    return while senders.join_next().await.is_some() {};
                }
            }
            if is_last {
                return;
            }
            let took = began.elapsed();
            let rest = LOOK_INTERVAL.max(took * (LOOK_SHARE - 1)).min(Duration::from_millis(LEASE_MS / 3));
            let has_sent = async {
                shared.queues.sent.notified().await;
                tokio::time::sleep(took.max(MIN_REST)).await;
            };
            tokio::select! {
                _ = tokio::time::timeout(rest, has_sent) => {}
                () = &mut stop => {
                    is_last = true;
                    shared.is_stopping.store(true, Ordering::Release);
                    shared.queues.arrived.notify_waiters();
                    _ = tokio::time::timeout(STOP_TIME, async { while senders.join_next().await.is_some() {} }).await;
                }
            }
        }
    }
}

impl Looker {
    /// Looks once. Errors are in the log.
    fn look(&mut self, shared: &Shared) {
        let looked = self.try_look(shared);
        for target in &shared.targets {
            shared.host.metrics().set_notices_waiting(target.name(), shared.queues.waiting(target.name()));
        }
        if let Err(error) = &looked
            && !shared.has_failed.load(Ordering::Acquire)
        {
            error.warn("cannot look for notifications; the look is repeated");
        }
        shared.has_failed.store(looked.is_err(), Ordering::Release);
    }

    fn try_look(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let began = shared.host.now();
        for message in watch::refusals(&shared.host, began) {
            shared.queue(&shared.process, &message, began);
        }
        shared.queues.close_windows(&shared.process, began);
        if shared.host.shared().is_some() {
            let asked = Instant::now();
            match record::take_lease(&shared.host, &self.id)? {
                // A part is left for the time of a message that is under way.
                Some(left) => *shared.may_send_until.lock() = Some(asked + Duration::from_millis(left)),
                None => {
                    self.stand_by(shared);
                    return Ok(());
                }
            }
        }
        let again = Instant::now() >= self.next_second;
        let tokens = if again { self.tokens(shared, began)? } else { HashMap::new() };
        let tenants = self.identity.tenants();
        if self.is_first {
            warn_of_unknown_tenants(shared, &tenants);
        }
        self.forget_others(shared, &tenants);
        let (mut last_error, mut is_readable) = (None, false);
        for tenant in tenants {
            if !shared.any_hears(&tenant, |_| true) || !shared.may_send() {
                continue;
            }
            let tokens = tokens.get(&tenant).map(Vec::as_slice).unwrap_or_default();
            match self.look_at_tenant(shared, &tenant, again, tokens) {
                Ok(()) => {
                    is_readable = true;
                    self.failures.remove(&tenant);
                }
                Err(error) if error.is_from_outage() => return Err(error.to_store_error()),
                Err(error) => {
                    let text = error.to_string();
                    if self.failures.get(&tenant) != Some(&text) {
                        error.warn(format_args!("cannot look for notifications about `{tenant}`"));
                        self.failures.insert(tenant.clone(), text);
                    }
                    last_error = Some(error);
                }
            }
        }
        // Otherwise the tenants that fail have trouble, and not the store.
        if let Some(error) = last_error.filter(|_| !is_readable) {
            return Err(error.to_store_error());
        }
        if again {
            self.next_second = Instant::now() + SECOND_LOOK_INTERVAL;
        }
        if self.is_first && self.new_tenants > 0 {
            tracing::warn!(
                "notifications about {} tenants begin now; earlier events are not reported",
                self.new_tenants
            );
        }
        (self.floor, self.is_first) = (began, false);
        Ok(())
    }

    /// Drops the messages of the store, since another process sends them.
    fn stand_by(&mut self, shared: &Shared) {
        *shared.may_send_until.lock() = Some(Instant::now());
        for (tenant, _) in self.tenants.drain() {
            shared.queues.remove_tenant(&tenant);
        }
    }

    /// Returns the messages about tokens, by tenants. Queues those about the operators' tokens.
    fn tokens(&mut self, shared: &Shared, now: u64) -> Result<HashMap<Tenant, Vec<(Message, u64)>>, StoreError> {
        let mut all: HashMap<Tenant, Vec<(Message, u64)>> = HashMap::new();
        if shared.targets.iter().all(|target| !wants(&target.settings, NoticeKind::TokenExpires)) {
            return Ok(all);
        }
        let found = watch::tokens(&shared.host, now).map_err(|error| error.to_store_error())?;
        for (tenant, message, until) in found {
            all.entry(tenant).or_default().push((message, until));
        }
        for (message, until) in all.remove(&shared.process).unwrap_or_default() {
            if self.own.tell_once(message.id.clone(), until) {
                shared.queue(&shared.process, &message, now);
            }
        }
        Ok(all)
    }

    /// Forgets the tenants that are disabled or removed.
    fn forget_others(&mut self, shared: &Shared, tenants: &[Tenant]) {
        let known: HashSet<&Tenant> = tenants.iter().collect();
        self.failures.retain(|tenant, _| known.contains(tenant));
        let gone: Vec<Tenant> = self.tenants.keys().filter(|tenant| !known.contains(tenant)).cloned().collect();
        for tenant in gone {
            self.tenants.remove(&tenant);
            let waiting = shared.queues.remove_tenant(&tenant);
            if waiting > 0 {
                tracing::warn!(
                    "{waiting} notifications about the tenant `{tenant}` are not sent: it is disabled or removed; they \
                     are sent if it is enabled again"
                );
            }
        }
    }

    fn look_at_tenant(
        &mut self,
        shared: &Shared,
        tenant: &Tenant,
        again: bool,
        tokens: &[(Message, u64)],
    ) -> Result<(), DocumentError> {
        let host = shared.host.for_tenant(tenant.clone());
        let mut known = match self.tenants.remove(tenant) {
            Some(known) => known,
            None => self.read_tenant(shared, &host)?,
        };
        let before = known.progress.clone();
        let looked = look_at_runs(shared, &host, &mut known.progress, again, tokens);
        // What was found before an error is stored, too.
        let now = host.now();
        shared.queues.close_windows(tenant, now);
        let is_changed = shared.queues.take_changed(tenant) || known.is_worth_storing(&before);
        if is_changed {
            let stored = StoredTenant { progress: known.progress.clone(), queues: shared.queues.of(tenant) };
            match record::write(&host, tenant, &stored, known.version) {
                Ok(true) => {
                    known.version += 1;
                    known.stored = [known.progress.time, known.progress.complete];
                }
                // Another process sends the messages now. They are read again if it stops.
                Ok(false) => {
                    shared.queues.remove_tenant(tenant);
                    return Ok(());
                }
                Err(error) => {
                    shared.queues.mark_changed(tenant);
                    self.tenants.insert(tenant.clone(), known);
                    return Err(error);
                }
            }
        }
        self.tenants.insert(tenant.clone(), known);
        looked.map_err(DocumentError::Store)
    }

    /// Reads the document of a tenant. Without one, events count from now on.
    fn read_tenant(&mut self, shared: &Shared, host: &Host) -> Result<Known, DocumentError> {
        let (tenant, now) = (host.tenant(), host.now());
        let Some((mut stored, version)) = record::read(host, tenant)? else {
            self.new_tenants += 1;
            return Ok(Known { progress: Progress::starting(self.floor.min(now)), version: 0, stored: [0, 0] });
        };
        let oldest = now.saturating_sub(MAX_AGE_MS);
        let progress = &mut stored.progress;
        if progress.complete < oldest {
            tracing::warn!(
                "notifications about `{tenant}` were off since {}; events before {} are not reported",
                time(progress.complete),
                time(oldest)
            );
            (progress.time, progress.run) = (oldest, None);
            (progress.complete, progress.floor) = (oldest, progress.floor.max(oldest));
        }
        let names: HashSet<&str> = shared.targets.iter().map(|target| target.name()).collect();
        for (target, waiting) in record::lost_targets(&mut stored.queues, &names) {
            if waiting > 0 {
                tracing::warn!(
                    "{waiting} notifications about `{tenant}` are dropped: the file has no target `{target}` any more"
                );
            }
        }
        shared.queues.insert(tenant, stored.queues);
        let at = [stored.progress.time, stored.progress.complete];
        Ok(Known { progress: stored.progress, version, stored: at })
    }
}

/// Warns of tenants in the file that the server does not have.
fn warn_of_unknown_tenants(shared: &Shared, tenants: &[Tenant]) {
    for target in &shared.targets {
        for name in target.settings.tenants.iter().flatten() {
            if !tenants.iter().any(|tenant| tenant.as_str() == name) {
                tracing::warn!(
                    "the target `{}` of notifications names the tenant `{}`, which the server does not have now",
                    target.name(),
                    name.escape_debug()
                );
            }
        }
    }
}

fn wants(settings: &TargetSettings, kind: NoticeKind) -> bool {
    settings.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
}

/// Looks at the runs of a tenant, and at its quotas and tokens. Queues the messages.
fn look_at_runs(
    shared: &Shared,
    host: &Host,
    progress: &mut Progress,
    again: bool,
    tokens: &[(Message, u64)],
) -> Result<(), StoreError> {
    use NoticeKind::{CrashLoop, GateOpened, Restored, RunBlocked};
    let (tenant, now) = (host.tenant(), host.now());
    progress.set_clock(now);
    let hears_waits =
        |of: &TargetSettings| [CrashLoop, GateOpened, Restored, RunBlocked].iter().any(|kind| wants(of, *kind));
    let waits = shared.any_hears(tenant, hears_waits);
    let contents = shared.any_hears(tenant, |of| of.contents);
    let mut look = Look {
        host,
        progress,
        waits,
        contents,
        reads_left: MAX_READ_RUNS,
        until: Instant::now() + MAX_READ_TIME,
        has_read: false,
        found: Vec::new(),
    };
    let mut looked = look.look(false);
    if let Ok(true) = looked {
        if again {
            looked = look.look(true);
        }
        look.progress.complete = look.progress.complete.max(now);
    }
    for message in std::mem::take(&mut look.found) {
        shared.queue(tenant, &message, now);
    }
    if again {
        if shared.any_hears(tenant, |of| wants(of, NoticeKind::Quota)) {
            for message in watch::quotas(host, progress, now)? {
                shared.queue(tenant, &message, now);
            }
        }
        for (message, until) in tokens {
            if progress.tell_once(message.id.clone(), *until) {
                shared.queue(tenant, message, now);
            }
        }
    }
    progress.prune(now);
    looked.map(drop)
}
