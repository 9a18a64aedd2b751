//! Looks for messages in the store, and writes the documents.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use flowcell_contract::Tenant;
use flowcell_runtime::ports::{MaybeStoreError, StoreError};

use super::{
    look::look_at_runs,
    message::{Message, NoticeKind},
    present::Change,
    record::{self, Lease, MAX_AGE_MS, Progress, StoredTenant},
    sender::Shared,
    target::Target,
    watch,
};
use crate::{
    Host,
    operate::{documents::DocumentError, identity::Identify},
    shape::time,
};

/// The time after which a look that goes on renews the lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// Time between two looks at the runs of the last minute, at quotas and at tokens.
const SECOND_LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// The time in milliseconds that passes at most until a document says that a tenant was looked at.
const MAX_UNSTORED_MS: u64 = 600_000;

/// Looks for messages.
pub(super) struct Looker {
    identity: Arc<dyn Identify>,
    lease: Lease,
    tenants: HashMap<Tenant, Known>,
    /// The tenant at which the next look begins, if the last one was not finished.
    start: Option<Tenant>,
    /// The events of a new tenant count from this time on, in milliseconds since 1970.
    floor: u64,
    /// True until the first look has succeeded.
    is_first: bool,
    /// The number of tenants that had no document.
    new_tenants: u64,
    next_second: Instant,
    /// Sent messages about the operators' tokens and about triggers.
    own: Progress,
    /// The error of the tokens in the log.
    token_error: Option<String>,
    /// The tenants whose runs cannot be read, with the errors in the log.
    failures: HashMap<Tenant, String>,
}

/// A tenant whose document was read.
struct Known {
    progress: Progress,
    /// 0: the store has no document yet.
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
            || after.reported.iter().any(|(run, waits)| before.reported.get(run) != Some(waits))
            || after.time.abs_diff(self.stored[0]) > record::OVERLAP_MS / 2
            || after.complete.abs_diff(self.stored[1]) > MAX_UNSTORED_MS
    }
}

impl Looker {
    /// Creates a looker of the process `id`. Events before `now` are old news for new tenants.
    pub(super) fn new(identity: Arc<dyn Identify>, id: String, now: u64) -> Looker {
        Looker {
            identity,
            lease: Lease::new(id),
            tenants: HashMap::new(),
            start: None,
            floor: now,
            is_first: true,
            new_tenants: 0,
            next_second: Instant::now(),
            own: Progress::default(),
            token_error: None,
            failures: HashMap::new(),
        }
    }

    /// Looks once. Errors are in the log.
    pub(super) fn look(&mut self, shared: &Shared) {
        if shared.present.get().targets.is_empty() {
            return;
        }
        let looked = self.try_look(shared);
        count_waiting(shared);
        if let Err(error) = &looked
            && !shared.has_failed.load(Ordering::Acquire)
        {
            error.warn("cannot look for notifications; the look is repeated");
        }
        shared.has_failed.store(looked.is_err(), Ordering::Release);
    }

    fn try_look(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let began = shared.host.now();
        for (message, key, until) in watch::refusals(&shared.host, began) {
            if self.own.tell_once(key, until) {
                shared.queue(&shared.process, &message, began);
            }
        }
        self.own.prune(began);
        shared.queues.close_windows(&shared.process, began);
        if !self.take_lease(shared)? {
            return Ok(());
        }
        let again = Instant::now() >= self.next_second;
        let tokens = if again { self.tokens(shared, began)? } else { HashMap::new() };
        let mut tenants = self.identity.tenants();
        if self.is_first {
            warn_of_unknown_tenants(shared, &tenants);
        }
        self.forget_others(shared, &tenants);
        tenants.retain(|tenant| shared.any_hears(tenant, |_| true));
        tenants.sort();
        // Each tenant has its turn, although looks are cut off.
        if let Some(start) = self.start.take() {
            let first = tenants.partition_point(|tenant| *tenant < start);
            tenants.rotate_left(first);
        }
        let (mut last_error, mut is_readable, mut renewed) = (None, false, Instant::now());
        for tenant in tenants {
            if renewed.elapsed() >= RENEW_INTERVAL {
                renewed = Instant::now();
                if !self.take_lease(shared)? {
                    return Ok(());
                }
            }
            // After an error, the next look begins here. A look that ends here has not seen each tenant.
            self.start = Some(tenant.clone());
            if !shared.may_send() {
                return Ok(());
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
        self.start = None;
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

    /// Takes or renews the lease of a shared store. Returns false if another process sends the messages.
    fn take_lease(&mut self, shared: &Shared) -> Result<bool, StoreError> {
        if shared.host.shared().is_none() {
            return Ok(true);
        }
        let until = self.lease.take(&shared.host, Instant::now())?;
        match until {
            Some(_) => *shared.may_send_until.lock() = until,
            None => self.stand_by(shared),
        }
        Ok(until.is_some())
    }

    /// Writes the documents of the tenants whose messages were sent. Errors are in the log, and the next look repeats it. A
    /// document that another process has written stays as it is.
    pub(super) fn record_sent(&mut self, shared: &Shared) {
        for tenant in shared.queues.changed() {
            let Some(known) = self.tenants.remove(&tenant) else { continue };
            let host = shared.host.for_tenant(tenant);
            shared.queues.take_changed(host.tenant());
            if let Err(error) = self.store(shared, &host, known) {
                if !shared.has_failed.swap(true, Ordering::AcqRel) {
                    error.warn("cannot record the notifications that were sent");
                }
                break;
            }
        }
        count_waiting(shared);
    }

    /// Puts the targets of a file that was read again in force. Drops the messages that they do not hear.
    pub(super) fn adopt(&mut self, shared: &Shared, change: Option<Change>) {
        let Some(Change { opened, done }) = change else { return };
        self.record_sent(shared);
        let earlier = shared.present.replace(opened);
        let present = shared.present.get();
        if earlier.targets.is_empty() {
            // Events before the first target are old news.
            self.floor = shared.host.now();
        }
        let is_gone = |target: &&Arc<Target>| present.targets.iter().all(|other| other.name() != target.name());
        for target in earlier.targets.iter().filter(is_gone) {
            shared.host.metrics().set_notices_waiting(target.name(), 0);
        }
        let settings = present.targets.iter().map(|target| &target.settings);
        for (tenant, target, waiting) in shared.queues.drop_unheard(settings) {
            warn_of_dropped(&tenant, &target, waiting);
        }
        self.record_sent(shared);
        warn_of_unknown_tenants(shared, &self.identity.tenants());
        // The server may have stopped to wait.
        let _ = done.send(());
    }

    /// Records the sent messages, and gives the lease back.
    pub(super) fn end(&mut self, shared: &Shared) {
        self.record_sent(shared);
        if shared.host.shared().is_some()
            && let Err(error) = self.lease.release(&shared.host)
        {
            error.warn("cannot give back the lease of notifications; another process waits for its end");
        }
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
        if shared.present.get().targets.iter().all(|target| !target.settings.hears_kind(NoticeKind::TokenExpires)) {
            return Ok(all);
        }
        let found = match watch::tokens(&shared.host, now) {
            Err(error) if error.is_from_outage() => return Err(error.to_store_error()),
            // Such as a damaged token. It must not hold up the messages about runs.
            Err(error) => {
                let text = error.to_string();
                if self.token_error.as_ref() != Some(&text) {
                    error.warn("cannot read the tokens for notifications, which tell of no token until it is mended");
                    self.token_error = Some(text);
                }
                return Ok(all);
            }
            Ok(found) => found,
        };
        self.token_error = None;
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
        // Messages that were found before an error are stored, too.
        let now = host.now();
        shared.queues.close_windows(tenant, now);
        if shared.queues.take_changed(tenant) || known.is_worth_storing(&before) {
            self.store(shared, &host, known)?;
        } else {
            self.tenants.insert(tenant.clone(), known);
        }
        looked.map_err(DocumentError::Store)
    }

    /// Writes the document of a tenant, and keeps it in memory.
    fn store(&mut self, shared: &Shared, host: &Host, mut known: Known) -> Result<(), DocumentError> {
        let tenant = host.tenant();
        let stored = StoredTenant { progress: known.progress.clone(), queues: shared.queues.of(tenant) };
        let written = record::write(host, tenant, &stored, known.version);
        match written {
            Ok(true) => {
                known.version += 1;
                known.stored = [known.progress.time, known.progress.complete];
            }
            // Another process sends the messages now. They are read again if it stops.
            Ok(false) => {
                shared.queues.remove_tenant(tenant);
                return Ok(());
            }
            Err(_) => shared.queues.mark_changed(tenant),
        }
        self.tenants.insert(tenant.clone(), known);
        written.map(drop)
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
        let present = shared.present.get();
        let targets = present.targets.iter().map(|target| &target.settings);
        let waiting_before = stored.queues.clone();
        for (target, waiting) in stored.queues.drop_unheard(tenant, targets) {
            warn_of_dropped(tenant, &target, waiting);
        }
        let is_changed = stored.queues != waiting_before;
        shared.queues.insert(tenant, stored.queues);
        if is_changed {
            shared.queues.mark_changed(tenant);
        }
        let at = [stored.progress.time, stored.progress.complete];
        Ok(Known { progress: stored.progress, version, stored: at })
    }
}

/// Warns of messages that a target of the file does not hear any more.
fn warn_of_dropped(tenant: &Tenant, target: &str, waiting: u64) {
    tracing::warn!(
        "{waiting} notifications about `{tenant}` are dropped: the file does not send them to a target `{target}` any more"
    );
}

/// Updates the numbers of waiting messages in the metrics.
fn count_waiting(shared: &Shared) {
    for target in &shared.present.get().targets {
        shared.host.metrics().set_notices_waiting(target.name(), shared.queues.waiting(target.name()));
    }
}

/// Warns of tenants in the file that the server does not have.
fn warn_of_unknown_tenants(shared: &Shared, tenants: &[Tenant]) {
    for target in &shared.present.get().targets {
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
