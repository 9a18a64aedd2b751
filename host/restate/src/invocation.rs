//! An invocation that drives a run tree in this process: it takes the entries of the drivers as commits, and reports
//! when they are durable.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use flowcell_contract::RunId;
use flowcell_runtime::{
    HubError,
    blocking::blocking,
    fact::Fact,
    ports::{Entry, StoreError},
};

use crate::{
    messages,
    recorded::Recorded,
    shared::Shared,
    tree::{Key, Queued, Tree},
    units,
    wire::{Commit, Drive, Form, Mail, Status, Then},
};

/// The time after which an invocation that still drives offers an awakeable to the inbox.
const LISTEN_AFTER: Duration = Duration::from_millis(100);
/// The time after which units that are only in the journal of the invocation go to the state, for readers elsewhere.
const PUBLISH_AFTER: Duration = Duration::from_millis(250);
/// The time that an invocation waits for the messages for which it was begun. Another one may have handled them.
const MAIL_PATIENCE: Duration = Duration::from_secs(1);
/// The number of commits after which an invocation hands over as soon as no call is open.
const HAND_OVER_AFTER: u32 = 300;
/// The bytes of units after which an invocation hands over as soon as no call is open. A process that takes it over reads
/// them all.
const HAND_OVER_BYTES: usize = 64 << 20;
/// The number of commits after which an invocation hands over even with open calls.
const HAND_OVER_AT: u32 = 2_000;

/// An invocation in this process.
pub(crate) struct Invocation {
    shared: Arc<Shared>,
    tree: Arc<Tree>,
    number: u64,
    began: Instant,
    commits: u32,
    bytes: usize,
    open_calls: i64,
    is_listening: bool,
    /// The time until which the invocation waits for the messages for which it was begun.
    mail_until: Option<Instant>,
    /// The time of the first commit that the state lacks.
    unpublished: Option<Instant>,
    /// The entries of the commit that is not durable yet.
    in_flight: Vec<Queued>,
    has_finished: bool,
}

/// The next step of an invocation.
enum Next {
    Commit,
    Wait(Option<Instant>),
}

impl Invocation {
    /// Begins to drive a tree whose invocation has arrived. `recorded` has the facts that the cluster has recorded.
    ///
    /// Facts of an earlier try of the invocation may lack their rows in the lists of runs. These rows are durable before a
    /// driver asks for the runs below its own.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        key: &Key,
        recorded: &Recorded,
        input: &Drive,
    ) -> Result<Invocation, StoreError> {
        if shared.is_retired() {
            return Err(StoreError::unavailable("this process ends"));
        }
        for run in recorded.heads.keys().filter(|run| **run != key.1) {
            shared.set_top(&key.0, run, &key.1);
        }
        shared.index.add_all(&key.0, recorded)?;
        if recorded.units.len() > input.first.len() {
            blocking(|| shared.index.settle())?;
        }
        Ok(Invocation::in_tree(shared, shared.tree(key), recorded, input))
    }

    fn in_tree(shared: &Arc<Shared>, tree: Arc<Tree>, recorded: &Recorded, input: &Drive) -> Invocation {
        let number = shared.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        let mut state = tree.lock();
        // The invocation before this one may have entries whose commit was lost.
        let is_taken_over = state.session.replace(number).is_some();
        (state.is_asked, state.is_offered) = (false, false);
        state.heads = recorded.heads.iter().map(|(run, head)| (run.clone(), head.clone())).collect();
        state.taken = state.heads.get(&tree.key.1).map_or(0, |head| head.heard);
        state.mail.clear();
        for stored in &recorded.units {
            // Readers report a damaged unit.
            if let Ok(unit) = units::parse(&shared.blobs, &tree.key.0, &stored.run, &stored.unit) {
                state.add_to_tail(&stored.run, unit);
            }
        }
        // Entries of a driver that does not know all facts of its run.
        let is_behind = state.queue.iter().any(|Queued { entry, .. }| {
            state.heads.get(&entry.run).is_some_and(|head| entry.unit.first_seq < head.next)
        });
        if is_taken_over || is_behind {
            state.refuse();
        }
        if let Some((run, claimed)) = input.claim.as_ref().and_then(|claim| state.claims.remove(claim))
            && claimed.send(()).is_ok()
        {
            state.drivers.insert(run);
        }
        drop(state);
        tree.changed.notify_waiters();
        let unpublished = recorded.has_unpublished().then(Instant::now);
        Invocation {
            shared: shared.clone(),
            tree,
            number,
            began: Instant::now(),
            commits: 0,
            bytes: 0,
            open_calls: 0,
            is_listening: input.mail,
            mail_until: input.mail.then(|| Instant::now() + MAIL_PATIENCE),
            unpublished,
            in_flight: Vec::new(),
            has_finished: false,
        }
    }

    /// Waits until there is a commit to take.
    pub(crate) async fn ready(&self) {
        loop {
            let changed = self.tree.changed.notified();
            match self.next() {
                Next::Commit => return,
                Next::Wait(None) => changed.await,
                Next::Wait(Some(until)) => _ = tokio::time::timeout_at(until.into(), changed).await,
            }
        }
    }

    fn next(&self) -> Next {
        let now = Instant::now();
        let mut state = self.tree.lock();
        if state.session != Some(self.number) {
            return Next::Commit;
        }
        let is_last = self.shared.is_retired() && state.drivers.is_empty();
        if state.is_due(now) || !state.outcomes.is_empty() || is_last {
            return Next::Commit;
        }
        // The handler hears of messages only after its first commit.
        if self.mail_until.is_some() && self.commits == 0 {
            return Next::Commit;
        }
        let mut wake = state.due_at();
        let awaits_mail = self.awaits_mail(now);
        let mut wait_until = |at: Instant| wake = Some(wake.map_or(at, |wake| wake.min(at)));
        if state.is_free() {
            let status = state.heads.get(&self.tree.key.1).map(|head| head.status.clone());
            let is_ready = status.is_some_and(|status| status.is_ready(self.shared.now()));
            match state.offer_after.filter(|after| is_ready && *after > now) {
                Some(after) => wait_until(after),
                None if is_ready => {
                    state.is_offered = true;
                    self.shared.offer(&self.tree);
                }
                // Messages to a parked run are delivered first.
                None if state.mail.is_empty() && !awaits_mail => return Next::Commit,
                None => self.mail_until.into_iter().for_each(&mut wait_until),
            }
        }
        if !self.is_listening {
            let at = self.began + LISTEN_AFTER;
            if at <= now {
                return Next::Commit;
            }
            wait_until(at);
        }
        if let Some(since) = self.unpublished {
            let at = since + PUBLISH_AFTER;
            if at <= now {
                return Next::Commit;
            }
            wait_until(at);
        }
        Next::Wait(wake)
    }

    fn awaits_mail(&self, now: Instant) -> bool {
        self.mail_until.is_some_and(|until| until > now)
    }

    /// Takes the next commit. At the end of this process, it hands the tree over to another one. Fails if a later
    /// invocation drives the tree in this process: the cluster has given up this one, and its connection is still open.
    pub(crate) fn take(&mut self) -> Result<Commit, StoreError> {
        let now = Instant::now();
        let tree = self.tree.clone();
        let mut state = tree.lock();
        if state.session != Some(self.number) {
            return Err(StoreError::unavailable("a later invocation drives the run in this process"));
        }
        let entries = state.take_some();
        let units = entries
            .iter()
            .map(|queued| units::stored(&self.shared.blobs, &queued.entry))
            .collect::<Result<Vec<_>, _>>()?;
        entries.iter().for_each(|queued| self.count_calls(&queued.entry));
        // The handler reports the outcomes of these messages, when their units are facts.
        state.mail.retain(|mail| !units.iter().any(|unit| unit.delivered == Some(mail.number)));
        let of_top = units.iter().filter(|unit| unit.run == tree.key.1);
        let changed = of_top.filter_map(|unit| unit.status.as_ref()).next_back();
        let mut status = state.heads.get(&tree.key.1).map(|head| head.status.clone());
        if let Some(changed) = changed {
            status = Some(changed.clone());
        }
        let was_free = entries.is_empty() && state.is_free() && state.mail.is_empty() && !self.awaits_mail(now);
        let rests = status.as_ref().is_none_or(|status| *status != Status::Active)
            && (was_free || changed.is_some() && state.queue.is_empty())
            && !status.as_ref().is_some_and(|status| was_free && status.is_ready(self.shared.now()));
        let mut outcomes = std::mem::take(&mut state.outcomes);
        let mut then = Then::Continue;
        if rests {
            if status.as_ref().is_none_or(Status::has_ended) {
                let ended = messages::outcome(&Err(HubError::RunEnded));
                outcomes.extend(state.mail.drain(..).map(|mail| (mail.number, ended.clone())));
            }
            // The inbox keeps other messages, and begins the next invocation.
            then = Then::Rest;
        }
        self.commits += 1;
        self.bytes += units.iter().map(|unit| unit.unit.get().len()).sum::<usize>();
        let is_long = self.commits >= HAND_OVER_AFTER || self.bytes >= HAND_OVER_BYTES;
        let is_long = self.commits >= HAND_OVER_AT || is_long && self.open_calls <= 0;
        let is_last = self.shared.is_retired() && state.drivers.is_empty();
        if then == Then::Continue && (is_long || is_last) {
            then = Then::HandOver;
        }
        let listen = then == Then::Continue && !self.is_listening && self.began + LISTEN_AFTER <= now;
        let has_unpublished = self.unpublished.is_some() || !units.is_empty();
        let publish = has_unpublished
            && (then != Then::Continue || self.unpublished.is_some_and(|since| since + PUBLISH_AFTER <= now));
        self.is_listening |= listen;
        self.unpublished = match publish {
            true => None,
            false => self.unpublished.or(has_unpublished.then_some(now)),
        };
        self.in_flight = entries;
        drop(state);
        if !units.is_empty() {
            // The facts may name any blob that is stored by now.
            blocking(|| self.shared.blobs.settle())?;
        }
        Ok(Commit { form: Form::PRESENT, units, outcomes, listen, publish, then })
    }

    fn count_calls(&mut self, entry: &Entry) {
        for fact in &entry.unit.facts {
            match fact {
                Fact::CallStarted { .. } | Fact::CallRepeated { .. } => self.open_calls += 1,
                Fact::CallEnded { .. } | Fact::CallHeld { .. } => self.open_calls -= 1,
                _ => {}
            }
        }
    }

    /// Reports that the last commit is durable. `published` has, for each run, the number of the first fact that the
    /// object's state lacked before this commit.
    pub(crate) fn acknowledge(&mut self, recorded: &Recorded, published: &HashMap<RunId, u64>) {
        let entries = std::mem::take(&mut self.in_flight);
        let mut state = self.tree.lock();
        if state.session != Some(self.number) {
            // The later invocation has refused the drivers of these entries.
            return;
        }
        for Queued { entry, .. } in &entries {
            if let Some(head) = recorded.heads.get(&entry.run) {
                state.heads.insert(entry.run.clone(), head.clone());
            }
            state.add_to_tail(&entry.run, entry.unit.clone());
        }
        state.cut_tail(published);
        drop(state);
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        for Queued { entry, .. } in &entries {
            let head = recorded.heads.get(&entry.run).filter(|_| entry.status.is_some() || entry.record.is_some());
            let added = head.map_or(Ok(()), |head| self.shared.index.add(&entry.tenant, &entry.run, head));
            if let Err(error) = added {
                tracing::warn!(run = %entry.run, "lists do not show the present status: {error}");
            }
            entry.durable.advance(entry.unit.next_seq());
        }
    }

    /// Reports that only the first `kept` units of the last commit became facts: the state of a flow has another version
    /// by now, or a unit follows one that is lost. All drivers of the tree stop, and the next invocation goes on from the
    /// facts.
    pub(crate) fn refuse_after(&mut self, kept: usize) {
        for queued in self.in_flight.drain(kept.min(self.in_flight.len())..) {
            queued.entry.durable.refuse();
        }
        self.tree.lock().refuse();
    }

    /// Takes messages from the inbox, and passes them to the driver.
    pub(crate) fn hear(&mut self, mail: Vec<Mail>) {
        (self.is_listening, self.mail_until) = (false, None);
        let mut state = self.tree.lock();
        if state.session != Some(self.number) {
            return;
        }
        let before = state.taken;
        state.taken = mail.iter().map(|mail| mail.number).fold(before, u64::max);
        let new = mail.into_iter().filter(|mail| mail.number > before).collect::<Vec<_>>();
        state.mail.extend(new);
        let is_empty = state.mail.is_empty();
        drop(state);
        if !is_empty {
            self.shared.deliver(&self.tree);
        }
        self.tree.changed.notify_one();
    }

    /// Ends in good order.
    pub(crate) fn finish(mut self, then: Then) {
        self.has_finished = true;
        let mut state = self.tree.lock();
        if state.session != Some(self.number) {
            return;
        }
        state.session = None;
        let goes_on = then == Then::HandOver || !state.queue.is_empty();
        (state.is_asked, state.asked) = (then == Then::HandOver, self.number);
        drop(state);
        if !goes_on {
            self.shared.drop_if_idle(&self.tree);
            return;
        }
        match then {
            Then::HandOver => self.shared.watch_request(&self.tree, self.number),
            _ => self.shared.begin(&self.tree),
        }
    }
}

impl Drop for Invocation {
    /// The invocation was lost: the connection broke, or the cluster has given it to another process.
    fn drop(&mut self) {
        if self.has_finished {
            return;
        }
        let mut state = self.tree.lock();
        self.in_flight.drain(..).for_each(|queued| queued.entry.durable.refuse());
        if state.session == Some(self.number) {
            (state.session, state.is_offered) = (None, false);
            state.refuse();
            state.mail.clear();
        }
        drop(state);
        self.shared.drop_if_idle(&self.tree);
    }
}
