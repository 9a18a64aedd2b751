//! Reads a run from its store, and tells when there may be something new. The process that owns the store tells it over
//! its socket. For a store without an owner, and for other tenants, the reader looks at intervals.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use flowcell::{
    Host, Json, RunId, Runs, StartError,
    contract::Tenant,
    control::{self, OwnerReply},
    host::events::EventReader,
    tree::called_run,
    waiting::FollowedWaits,
};

use super::{
    model::{Head, Model},
    outcome::Outcome,
    rows::Wait,
};
use crate::{
    cli_error::CliError,
    commands::runs::show::known,
    options::{PackArgs, StoreLocation, TenantArgs},
    owner::unreadable,
};

/// Interval between two looks for a process that owns the store, and longest interval between two looks at the run.
const OWNER_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two looks at a run about which no process sends news.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The stored state of a run, for a reader that looks again and again.
pub(super) struct Feed {
    host: Host,
    reader: Box<dyn Runs>,
    run: RunId,
    waits: FollowedWaits,
    /// The called runs that are shown, by the addresses of the tasks that have called them.
    calls: HashMap<String, FollowedCall>,
    /// True if the model lacks the waits of a read that failed in the middle.
    is_behind: bool,
}

/// A called run, whose events are read once.
struct FollowedCall {
    run: RunId,
    events: EventReader,
}

impl Feed {
    /// Opens the store for reading, even if another process owns it.
    pub(super) fn open(of: &TenantArgs, packs: &PackArgs, run: &RunId) -> Result<Feed, CliError> {
        let host = of.reading_host(packs)?;
        let (run, waits) = (run.clone(), FollowedWaits::default());
        Ok(Feed { host, reader: of.store.reader()?, run, waits, calls: HashMap::new(), is_behind: false })
    }

    /// Reads the news into the model. Fails if the store does not have the run or cannot be read. The model keeps its
    /// content.
    fn read(&mut self, model: &mut Model) -> Result<(), CliError> {
        let read = self.waits.refresh(&self.host, &self.run, |event| model.add(event));
        let row = self.reader.run(self.host.tenant(), &self.run).map_err(|error| unreadable(&error))?;
        match row {
            Some((row, next)) => {
                model.head = Head::of(&row);
                if model.head.has_ended() && model.outcome.is_none() {
                    let (end, unknown) = known(self.host.end_of(&self.run, next))?;
                    model.outcome = end.as_ref().map(Outcome::of).or(unknown.map(Outcome::unknown));
                }
            }
            None => {
                read?;
                return Err(CliError::wrong(format!("the run `{}` was removed", self.run)));
            }
        }
        let was_behind = std::mem::replace(&mut self.is_behind, read.is_err());
        if read? || was_behind {
            model.set_waits(self.waits.list().iter().map(Wait::of).collect());
        }
        self.read_calls(model);
        Ok(())
    }

    /// Reads the news of the called runs that are shown. An error stands in the place of the run.
    fn read_calls(&mut self, model: &mut Model) {
        let open = model.open_calls();
        self.calls.retain(|address, _| open.contains(address));
        model.keep_calls(&open);
        for address in open {
            if let Err(error) = self.read_call(model, &address) {
                let why = CliError::from(error).plain();
                // The next look reads it from its start.
                self.calls.remove(&address);
                model.set_call_note(&address, format!("the called run cannot be read: {why}"));
            }
        }
    }

    fn read_call(&mut self, model: &mut Model, address: &str) -> Result<(), StartError> {
        let Some(run) = called_run(&self.host, &self.run, address)? else {
            model.set_call_note(address, "the called run has not begun".to_owned());
            return Ok(());
        };
        // A later attempt of the task has called another run.
        if self.calls.get(address).is_none_or(|known| known.run != run) {
            let events = self.host.events(&run)?;
            model.begin_call(address, &run);
            self.calls.insert(address.to_owned(), FollowedCall { run, events });
        }
        if let Some(followed) = self.calls.get_mut(address) {
            while let Some(event) = followed.events.next(0)? {
                model.add_to_call(address, &event);
            }
        }
        Ok(())
    }

    /// Reads the news. An error becomes a part of the screen, unless the screen would be empty.
    pub(super) fn read_or_tell(&mut self, model: &mut Model) -> Result<(), CliError> {
        match self.read(model) {
            Err(problem) if model.head.flow.is_empty() => return Err(problem),
            read => model.trouble = read.err().map(|problem| format!("the run cannot be read: {}", problem.plain())),
        }
        Ok(())
    }

    /// Returns the host that reads the store.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the lists of runs in the store.
    pub(super) fn reader(&self) -> &dyn Runs {
        &*self.reader
    }
}

/// Tells that a run may have changed.
#[derive(Clone, Default)]
pub(super) struct Wake {
    is_told: Arc<AtomicBool>,
    is_connected: Arc<AtomicBool>,
}

impl Wake {
    /// Takes the news. From now on, later news are announced.
    pub(super) fn take(&self) {
        self.is_told.store(false, Ordering::Release);
    }

    /// Returns the interval at which to look at a run without news.
    pub(super) fn interval(&self, has_ended: bool) -> Duration {
        match has_ended || self.is_connected.load(Ordering::Acquire) {
            true => OWNER_LOOK_INTERVAL,
            false => LOOK_INTERVAL,
        }
    }

    /// Calls `tell` once for all news until they are taken, on a thread of its own, until the run ends. Does nothing for
    /// a store that no process can own, and for a tenant whose runs its owner does not show.
    pub(super) fn listen(
        &self,
        of: &TenantArgs,
        run: &RunId,
        tell: impl Fn() + Send + 'static,
    ) -> Result<(), CliError> {
        let StoreLocation::Folder(folder) = of.store.place()? else { return Ok(()) };
        if of.tenant() != Tenant::local() {
            return Ok(());
        }
        let (folder, run, wake) = (folder.to_owned(), run.clone(), self.clone());
        let follow = move || {
            while !wake.follow_owner(&folder, &run, &tell) {
                thread::sleep(OWNER_LOOK_INTERVAL);
            }
        };
        let started = thread::Builder::new().name("events".into()).spawn(follow);
        started.map(|_| ()).map_err(|error| CliError::internal("cannot read the events").because(&error))
    }

    /// Follows the run at the process that owns the store, if there is one. Returns whether the run has ended.
    fn follow_owner(&self, folder: &Path, run: &RunId, tell: &impl Fn()) -> bool {
        let Ok((OwnerReply::Done { .. } | OwnerReply::Operated { .. }, events)) = control::watch_owner(folder, run)
        else {
            return false;
        };
        let (mut is_new, mut has_ended) = (false, false);
        for event in events {
            let text = |name: &str| event.get(name).and_then(Json::as_str).unwrap_or_default();
            match text("type") {
                "watch:now" => {
                    is_new = true;
                    self.is_connected.store(true, Ordering::Release);
                }
                "harness:complete" if text("runId") == run.as_str() => has_ended = true,
                _ => {}
            }
            // Live pieces of texts are not on the screen. Recorded events have a number.
            if is_new && event.get("seq").is_some() && !self.is_told.swap(true, Ordering::AcqRel) {
                tell();
            }
        }
        self.is_connected.store(false, Ordering::Release);
        has_ended
    }
}
