//! The messages about the runs of a tenant, by the last change of their status.
//!
//! A first look goes on after the last run that was looked at. A second look, now and then, reads the runs of the last
//! minute again, since a change may be committed later than its time says, and in the same millisecond as others.
//!
//! A wait of a run counts once, whatever happens to the run afterwards: the reported waits of each run are remembered until
//! it ends. Of waits that are so old that they may have been forgotten, those count with which the run was parked for the
//! first time since the last look. A wait with which a run was parked before the first start with a file is old news.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use flowcell_contract::RunId;
use flowcell_runtime::{
    fact::{RunEnd, WaitReason, WaitsFor},
    ports::{Changed, MaybeStoreError, RunRow, Runs, StoreError, StoreErrorKind},
};
use serde_json::Value;

use super::{
    message::{MAX_TEXT_CHARS, Message, NoticeKind, Question, cut, message_id, name},
    record::{Progress, SecondLook},
};
use crate::{
    Host, StartError,
    runs::inbox::{WaitKind, waits_of},
};

/// The number of runs that are read at a time.
const ROWS: usize = 200;
/// Maximum number of pages of runs that a look reads. The next one goes on.
const MAX_PAGES: usize = 10;
/// Maximum number of runs whose events one look reads. The next one goes on.
pub(super) const MAX_READ_RUNS: usize = 50;

/// The time after which a look reads the events of no further run, so that other tenants need not wait.
pub(super) const MAX_READ_TIME: Duration = Duration::from_millis(500);

/// A look at the runs of a tenant.
pub(super) struct Look<'a> {
    pub(super) host: &'a Host,
    pub(super) progress: &'a mut Progress,
    /// True if a target hears of waits.
    pub(super) waits: bool,
    /// True if a target gets the texts of runs.
    pub(super) contents: bool,
    /// The number of runs whose events may still be read.
    pub(super) reads_left: usize,
    /// The time after which no further events are read.
    pub(super) until: Instant,
    /// True once the events of a run were read.
    pub(super) has_read: bool,
    /// Receives the messages.
    pub(super) found: Vec<Message>,
}

impl Look<'_> {
    /// Looks at the runs that have changed, or, `again`, at those of the last minute. Returns false if runs are left for the
    /// next look.
    pub(super) fn look(&mut self, again: bool) -> Result<bool, StoreError> {
        let host = self.host;
        let Some(runs) = host.runs() else { return Ok(true) };
        let began = self.progress.second.as_ref().map_or_else(|| host.now(), |second| second.began);
        let (mut since, mut after) = match (again, &self.progress.second) {
            (true, Some(second)) => (second.since, second.after.clone()),
            (true, None) => (self.progress.overlap().max(self.progress.forgotten), None),
            (false, _) => (self.progress.time, self.progress.run.clone()),
        };
        let mut pages = 0;
        loop {
            if again {
                self.progress.second = Some(SecondLook { began, since, after: after.clone() });
            }
            if pages == MAX_PAGES {
                return Ok(false);
            }
            pages += 1;
            let wanted = Changed { since, after: after.clone(), live: false, limit: ROWS };
            let page = runs.changed(host.tenant(), &wanted)?;
            let is_last = page.len() < ROWS;
            for row in page {
                if row.updated >= self.progress.floor && !self.look_at(runs, &row)? {
                    return Ok(false);
                }
                (since, after) = (row.updated, Some(row.run_id));
                match &mut self.progress.second {
                    Some(second) if again => (second.since, second.after) = (since, after.clone()),
                    _ => (self.progress.time, self.progress.run) = (since, after.clone()),
                }
            }
            if is_last {
                if again {
                    self.progress.second = None;
                    self.progress.complete = self.progress.complete.max(began);
                }
                return Ok(true);
            }
        }
    }

    /// Looks at a run. Returns false if its events have to be read, and no further events may be.
    fn look_at(&mut self, runs: &dyn Runs, row: &RunRow) -> Result<bool, StoreError> {
        if row.has_ended() && !self.progress.reported.is_empty() {
            self.progress.reported.remove(&short(&message_id(&["run", row.run_id.as_str()])));
        }
        let is_parked = matches!(row.status.as_str(), "parked" | "needs_attention");
        let for_person = match &row.waits_for {
            Some(WaitsFor { reason, others, .. }) => *reason != WaitReason::Event || *others > 0,
            None => row.status == "needs_attention",
        };
        let has_failed = row.status == "failed";
        if !(has_failed || is_parked && for_person && self.waits) {
            return Ok(true);
        }
        let key = short(&message_id(&["row", row.run_id.as_str(), &row.updated.to_string(), &row.status]));
        if self.progress.seen.contains_key(&key) {
            return Ok(true);
        }
        if !has_failed || self.contents {
            // One run is read in any case, so that each look goes on.
            if self.reads_left == 0 || (self.has_read && Instant::now() >= self.until) {
                return Ok(false);
            }
            self.has_read = true;
            self.reads_left -= 1;
        }
        let read = if has_failed { self.add_failure(runs, row) } else { self.add_waits(row) };
        if let Err(error) = read {
            // Any other error, such as that of a run of a newer version, would come again, and must not hold up the runs after
            // it.
            use StoreErrorKind::{Conflict, Outage, Unavailable};
            if matches!(error.store_error().map(StoreError::kind), Some(Outage | Unavailable | Conflict)) {
                return Err(error.to_store_error());
            }
            tracing::warn!("cannot read the run `{}` for a notification, which has less text: {error}", row.run_id);
            self.add_unread(row);
        }
        self.progress.see(key, row.updated);
        Ok(true)
    }

    fn new_message(&self, kind: NoticeKind, row: &RunRow, place: &[&str], at: u64) -> Message {
        let tenant = self.host.tenant();
        let mut message = Message::new(kind, tenant.as_str(), Some(row.run_id.as_str()), place, at);
        message.run_id = Some(row.run_id.clone());
        message.flow = Some(name(&row.flow));
        message
    }

    fn add_failure(&mut self, runs: &dyn Runs, row: &RunRow) -> Result<(), StartError> {
        let mut message = self.new_message(NoticeKind::RunFailed, row, &[], row.updated);
        message.code = row.error.as_deref().map(name);
        message.address = row.node.as_deref().map(name);
        if self.contents {
            let known = runs.run(self.host.tenant(), &row.run_id).map_err(flowcell_runtime::OpenError::Store)?;
            let end = known.map(|(_, next)| self.host.end_of(&row.run_id, next)).transpose()?.flatten();
            if let Some(RunEnd::Failed { failure, .. }) = end {
                message.text = Some(cut(&failure.message, MAX_TEXT_CHARS));
            }
        }
        self.found.push(message);
        Ok(())
    }

    /// Adds a message about a run from its row alone.
    fn add_unread(&mut self, row: &RunRow) {
        let reason = row.waits_for.as_ref().map(|waits| waits.reason);
        let kind = match reason {
            _ if row.status == "failed" => NoticeKind::RunFailed,
            Some(WaitReason::Gate) => NoticeKind::GateOpened,
            Some(WaitReason::Message | WaitReason::Event) => return,
            Some(WaitReason::CrashLoop) => NoticeKind::CrashLoop,
            Some(WaitReason::Restored) => NoticeKind::Restored,
            _ => NoticeKind::RunBlocked,
        };
        let mut message = self.new_message(kind, row, &["row", &row.updated.to_string()], row.updated);
        message.code = reason.map(|reason| reason.name().to_owned()).or(row.error.as_deref().map(name));
        message.address = row.waits_for.as_ref().and_then(|waits| waits.task.as_deref()).map(name);
        self.found.push(message);
    }

    fn add_waits(&mut self, row: &RunRow) -> Result<(), StartError> {
        let (mut parks, floor, overlap) = (None, self.progress.floor, self.progress.overlap());
        let run = short(&message_id(&["run", row.run_id.as_str()]));
        let mut reported = self.progress.reported.get(&run).cloned().unwrap_or_default();
        for (_, wait) in waits_of(self.host, row, "")? {
            let Some(message) = self.of_wait(row, &wait) else { continue };
            let key = short(&message.id);
            if reported.contains_key(&key) {
                continue;
            }
            // Each wait before this time was reported, or is old news, if the run was parked with it before.
            let from = if message.at < self.progress.reported_from { overlap } else { floor };
            if message.at < from {
                if parks.is_none() {
                    parks = Some(park_times(self.host, &row.run_id)?);
                }
                let first = parks.iter().flatten().find(|park| **park >= message.at);
                if first.is_some_and(|park| *park < from) {
                    continue;
                }
            }
            reported.insert(key, message.at);
            self.found.push(message);
        }
        if !reported.is_empty() {
            self.progress.reported.insert(run, reported);
        }
        Ok(())
    }

    /// Returns the message about a wait, or `None` if it is not reported.
    fn of_wait(&self, row: &RunRow, wait: &Value) -> Option<Message> {
        let text = |member: &str| wait[member].as_str();
        let kind = match (WaitKind::of(wait), text("reason")) {
            (WaitKind::Message, _) => return None,
            (WaitKind::Gate | WaitKind::Approval, _) => NoticeKind::GateOpened,
            (WaitKind::Blocked, Some("crash_loop")) => NoticeKind::CrashLoop,
            (WaitKind::Blocked, Some("restored")) => NoticeKind::Restored,
            (WaitKind::Blocked, _) => NoticeKind::RunBlocked,
        };
        let at = wait["since"].as_u64().unwrap_or(row.updated);
        let address = text("address").unwrap_or_default();
        let mut message = self.new_message(kind, row, &[address, &at.to_string()], at);
        message.address = Some(address).filter(|address| !address.is_empty()).map(name);
        message.code = text("reason").map(name);
        message.question = match (WaitKind::of(wait), text("digest")) {
            // The approval of a call is left to persons whom a token names.
            (WaitKind::Gate, Some(digest)) => {
                Some(Question { address: address.to_owned(), digest: digest.to_owned(), since: at })
            }
            _ => None,
        };
        let words = if kind == NoticeKind::GateOpened { text("prompt") } else { text("message") };
        message.text = words.filter(|_| self.contents).map(|words| cut(words, MAX_TEXT_CHARS));
        Some(message)
    }
}

/// Returns the times at which a run was parked.
fn park_times(host: &Host, run: &RunId) -> Result<Vec<u64>, StartError> {
    let mut times = Vec::new();
    host.each_event(run, 0, |event| {
        if event.kind == "harness:parked" {
            times.push(event.ts);
        }
        ControlFlow::Continue(())
    })?;
    Ok(times)
}

/// Returns the part of an id by which a run or a wait is remembered.
fn short(id: &str) -> String {
    id.chars().skip(4).take(16).collect()
}
