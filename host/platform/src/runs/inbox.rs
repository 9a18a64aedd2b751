//! The inbox of a tenant: what its runs wait for a person to do, over all runs.
//!
//! The store has no table of waits. It lists the runs that have not ended in the order in which their status changed last,
//! so the run that has been parked longest comes first. The row of a parked run tells whether it waits for a person. Only
//! then are the waits derived from the events of the run and of its child runs. A page reads a bounded number of rows and
//! of runs, and its place says where the next page goes on.

use std::collections::HashSet;

use flowcell_contract::RunId;
use flowcell_runtime::{
    OpenError, Waiting,
    fact::{WaitReason, WaitsFor},
    paging::{Filling, PAGE_BYTES, PageLimits},
    ports::{Changed, MaybeStoreError, RunRow, Runs},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::waiting::list_of_people;
use crate::{Host, StartError};

/// The maximum number of rows of runs that one page reads.
pub const MAX_PAGE_ROWS: usize = 2_000;
/// The maximum number of runs whose events one page reads.
pub const MAX_PAGE_RUNS: usize = 50;
/// The number of rows that are read at a time.
const ROWS: usize = 200;

/// The kind of a wait for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// A gate asks a question.
    Gate,
    /// An agent asks whether it may make a call.
    Approval,
    /// An agent waits for a message.
    Message,
    /// A task or a run is blocked until a person decides about it.
    Blocked,
}

impl WaitKind {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            WaitKind::Gate => "gate",
            WaitKind::Approval => "approval",
            WaitKind::Message => "message",
            WaitKind::Blocked => "blocked",
        }
    }

    /// Returns the kind of a wait in the list of a run.
    pub(crate) fn of(wait: &Value) -> WaitKind {
        match wait["kind"].as_str() {
            Some("message") => WaitKind::Message,
            Some("decision") => WaitKind::Blocked,
            // Only questions about calls have the number of the call in their address.
            _ if wait["address"].as_str().is_some_and(|address| address.contains('#')) => WaitKind::Approval,
            _ => WaitKind::Gate,
        }
    }

    /// Returns whether a run that waits for this first item, and for nothing else, may have a wait of this kind.
    fn fits(self, reason: WaitReason) -> bool {
        match reason {
            WaitReason::Gate => matches!(self, WaitKind::Gate | WaitKind::Approval),
            WaitReason::Message => self == WaitKind::Message,
            WaitReason::Event => false,
            _ => self == WaitKind::Blocked,
        }
    }
}

/// A place between two waits of an inbox: after the wait `key` of a run, or after all waits of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxPlace(u64, RunId, Option<String>);

impl InboxPlace {
    /// Writes the place as a text for URLs.
    pub fn to_text(&self) -> String {
        hex::encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Parses [`InboxPlace::to_text`].
    pub fn parse(text: &str) -> Option<InboxPlace> {
        let place: InboxPlace = serde_json::from_slice(&hex::decode(text).ok()?).ok()?;
        // A greater time is no time of a store.
        i64::try_from(place.0).is_ok().then_some(place)
    }
}

/// The selection of waits.
#[derive(Clone, Debug, Default)]
pub struct InboxFilter {
    /// Selects the waits of this kind.
    pub kind: Option<WaitKind>,
    /// Selects the waits of runs of this flow.
    pub flow: Option<String>,
}

/// A page of an inbox while it is filled.
pub struct Inbox {
    filter: InboxFilter,
    filling: Filling,
    waits: Vec<Value>,
    place: Option<InboxPlace>,
    /// The place after the rows that are being looked at.
    end: Option<InboxPlace>,
    rows_left: usize,
    runs_left: usize,
    is_full: bool,
}

/// The result of reading a run.
enum Step {
    /// The page goes on with the next run.
    Next,
    /// The page has no room for more.
    Full,
}

impl Inbox {
    /// Begins a page of at most `limit` waits after a place.
    pub fn new(filter: InboxFilter, after: Option<InboxPlace>, limit: usize) -> Inbox {
        let filling = Filling::new(PageLimits { items: limit, bytes: PAGE_BYTES });
        let (rows_left, runs_left) = (MAX_PAGE_ROWS, MAX_PAGE_RUNS);
        Inbox { filter, filling, waits: Vec::new(), place: after, end: None, rows_left, runs_left, is_full: false }
    }

    /// Returns the next rows to look at: of runs that have not ended, and of the filter's flow. An empty list ends the
    /// page; then [`Inbox::finish`] returns it.
    pub fn next_rows(&mut self, host: &Host, runs: &dyn Runs) -> Result<Vec<RunRow>, StartError> {
        while !self.is_full {
            if self.rows_left == 0 {
                self.is_full = true;
                break;
            }
            let (since, after, begun) = match self.place.clone() {
                None => (0, None, None),
                Some(InboxPlace(updated, run, None)) => (updated, Some(run), None),
                Some(InboxPlace(updated, run, Some(_))) => (updated, Some(run.clone()), Some(run)),
            };
            let limit = ROWS.min(self.rows_left);
            let wanted = Changed { since, after, live: true, limit };
            let mut rows = runs.changed(host.tenant(), &wanted).map_err(OpenError::Store)?;
            self.rows_left -= rows.len().min(limit);
            if let Some(run) = begun {
                // If the status has changed meanwhile, the run follows at its later place.
                let row = runs.run(host.tenant(), &run).map_err(OpenError::Store)?.map(|(row, _)| row);
                rows.splice(0..0, row.filter(|row| row.updated == since));
            }
            let Some(last) = rows.last() else { return Ok(Vec::new()) };
            let end = Some(InboxPlace(last.updated, last.run_id.clone(), None));
            rows.retain(|row| self.may_have_waits(row));
            if !rows.is_empty() {
                self.end = end;
                return Ok(rows);
            }
            self.place = end;
        }
        Ok(Vec::new())
    }

    fn may_have_waits(&self, row: &RunRow) -> bool {
        let WaitsFor { reason, others, .. } = match &row.waits_for {
            // What an active run waits for is not in its row.
            None if row.status == "active" => return self.is_of_flow(row),
            None => return false,
            Some(waits_for) => waits_for,
        };
        let fits = match self.filter.kind {
            Some(kind) => kind.fits(*reason),
            None => *reason != WaitReason::Event,
        };
        self.is_of_flow(row) && (fits || *others > 0)
    }

    fn is_of_flow(&self, row: &RunRow) -> bool {
        self.filter.flow.as_ref().is_none_or(|flow| *flow == row.flow)
    }

    /// Reads the waits of runs: those that [`Inbox::next_rows`] returned, without those that the caller knows to have no
    /// waits. Reads journals, and blocks its thread.
    pub fn read(&mut self, host: &Host, rows: &[RunRow], without: &HashSet<RunId>) -> Result<(), StartError> {
        for row in rows {
            if !without.contains(&row.run_id)
                && let Step::Full = self.read_run(host, row)?
            {
                self.is_full = true;
                return Ok(());
            }
        }
        self.place = self.end.take();
        Ok(())
    }

    fn read_run(&mut self, host: &Host, row: &RunRow) -> Result<Step, StartError> {
        let begun = self.place.take_if(|place| place.1 == row.run_id).and_then(|place| place.2);
        let mut before = InboxPlace(row.updated, row.run_id.clone(), Some(begun.clone().unwrap_or_default()));
        if self.runs_left == 0 {
            self.place = Some(before);
            return Ok(Step::Full);
        }
        self.runs_left -= 1;
        for (key, wait) in waits_of(host, row, begun.as_deref().unwrap_or_default())? {
            let kind = WaitKind::of(&wait);
            if self.filter.kind.is_none_or(|wanted| wanted == kind) {
                let wait = described(row, kind, wait);
                if !self.filling.take(wait.to_string().len() as u64) {
                    self.place = Some(before);
                    return Ok(Step::Full);
                }
                self.waits.push(wait);
            }
            before.2 = Some(key);
        }
        Ok(Step::Next)
    }

    /// Returns the waits, and the place of the next page. `None`: no run follows.
    pub fn finish(self) -> (Vec<Value>, Option<InboxPlace>) {
        (self.waits, self.place.filter(|_| self.is_full))
    }
}

/// Returns whether one of the waits of a driven run is for a person.
pub fn needs_person(waiting: &[Waiting]) -> bool {
    waiting.iter().any(|waiting| !matches!(waiting, Waiting::Event { .. }))
}

/// Lists the waits of a run after a key. A run whose journal is damaged has one that says so.
pub(crate) fn waits_of(host: &Host, row: &RunRow, after: &str) -> Result<Vec<(String, Value)>, StartError> {
    let blocked = |reason: &str, message: String| {
        let wait = json!({ "kind": "decision", "reason": reason, "message": message, "since": row.updated });
        // The key of a wait of the whole run comes before all others.
        (" ".to_owned(), wait)
    };
    let mut waits = Vec::new();
    if let Some(WaitsFor { reason, task: None, .. }) = row.waits_for {
        let message = "only a person resumes the run: `POST …/resume`, or `flowcell runs resume`";
        waits.push(blocked(reason.name(), message.to_owned()));
    }
    match list_of_people(host, &row.run_id, after) {
        Ok(found) => waits.extend(found.into_iter().map(|found| (found.key, found.wait))),
        // It was removed meanwhile.
        Err(StartError::Open(OpenError::Unknown(_))) => return Ok(Vec::new()),
        Err(error) => waits.push(blocked("damaged", error.damage().ok_or(error)?)),
    }
    waits.retain(|(key, _)| key.as_str() > after);
    Ok(waits)
}

/// Adds the run to a wait.
fn described(row: &RunRow, kind: WaitKind, wait: Value) -> Value {
    let mut all = json!({ "kind": kind.name(), "runId": row.run_id, "flow": row.flow });
    if let Some(version) = row.version {
        all["version"] = version.into();
    }
    if !row.labels.is_empty() {
        all["labels"] = json!(row.labels);
    }
    if let Value::Object(members) = wait {
        members.into_iter().filter(|(name, _)| name != "kind").for_each(|(name, value)| all[name] = value);
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_place_is_a_text_and_other_texts_are_none() {
        for key in [None, Some("each[3].\"ok\" gate".to_owned())] {
            let place = InboxPlace(7, "run-1.x/y".into(), key);
            assert_eq!(InboxPlace::parse(&place.to_text()), Some(place));
        }
        let wrong = [r#"[1,"r"]"#, r#"[-1,"r",null]"#, r#"[18446744073709551615,"r",null]"#, r#"{"a":1}"#, "[]", "x"];
        for text in wrong.map(hex::encode).iter().map(String::as_str).chain(["", "zz", "5", "r~1"]) {
            assert_eq!(InboxPlace::parse(text), None, "{text}");
        }
    }
}
