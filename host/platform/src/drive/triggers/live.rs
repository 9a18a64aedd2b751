//! The triggers of a tenant: those that the newest versions of its flows name, and those that were bound to flows beside
//! their files. Where both have an id, the file counts.

use std::collections::BTreeMap;

use flowcell_flow::{
    CheckContext, CheckMode, Diagnostic, Source,
    triggers::{Cause, Trigger, trigger, triggers},
};

use super::{
    LookError,
    record::{Records, Said, digest, key},
};
use crate::{FlowLibrary, Host, LibraryError, schedule};

/// A trigger of a flow.
#[derive(Clone, Debug)]
pub struct Live {
    /// Which flow it starts.
    pub flow: String,
    /// What it waits for.
    pub trigger: Trigger,
    /// The flow's file names it; else it was bound to the flow.
    pub declared: bool,
    /// It starts something.
    pub enabled: bool,
    /// Starts that were asked for, by when that was.
    pub asked: Vec<u64>,
}

impl Live {
    /// What it is found by among the triggers of its tenant.
    pub fn key(&self) -> String {
        key(&self.flow, &self.trigger.id)
    }

    /// The digest of what it waits for.
    pub(super) fn cause(&self) -> String {
        digest(&self.trigger.cause)
    }

    /// The line of cron and the zone, if it waits for times.
    pub(super) fn schedule(&self) -> Option<schedule::Schedule> {
        let Cause::Time { cron, time_zone, .. } = &self.trigger.cause else { return None };
        schedule::Schedule::new(cron, time_zone).ok()
    }
}

/// What is asked about triggers alone, beside calendars.
struct Calendar<'a> {
    rules: CheckMode,
    /// Where a new trigger is bound; for one that is bound already, what it names is not asked for.
    binding: Option<(&'a Host, &'a FlowLibrary)>,
}

impl CheckContext for Calendar<'_> {
    fn mode(&self) -> CheckMode {
        self.rules
    }

    fn read(&self, _: &str) -> Result<String, String> {
        Err("triggers name no files".into())
    }

    fn flow(&self, _: &str) -> Option<Source> {
        None
    }

    fn has_flow(&self, name: &str) -> bool {
        self.binding.is_none_or(|(_, library)| !matches!(library.get(name, None), Err(LibraryError::Unknown(_))))
    }

    fn check_signing_secret(&self, name: &str) -> Result<(), String> {
        self.binding.map_or(Ok(()), |(host, _)| host.check_signing_secret(name))
    }

    fn check_cron(&self, cron: &str) -> Result<(), String> {
        schedule::check_cron(cron)
    }

    fn check_time_zone(&self, name: &str) -> Result<(), String> {
        schedule::check_time_zone(name)
    }
}

const KEPT: Calendar<'static> = Calendar { rules: CheckMode::Stored, binding: None };

/// Reads a trigger that is bound to a flow.
pub(super) fn read_bound(bound: &serde_json::Value) -> Result<Trigger, Vec<Diagnostic>> {
    trigger(&Source { name: "trigger".into(), text: bound.to_string() }, &KEPT)
}

/// Reads a trigger that is to be bound to a flow. What it names must be there.
pub(super) fn read_new(
    new: &serde_json::Value,
    host: &Host,
    library: &FlowLibrary,
) -> Result<Trigger, Vec<Diagnostic>> {
    let asked = Calendar { rules: CheckMode::Adding, binding: Some((host, library)) };
    trigger(&Source { name: "trigger".into(), text: new.to_string() }, &asked)
}

/// The triggers that the newest version of a flow names.
pub(super) fn declared(library: &FlowLibrary, flow: &str) -> Result<Vec<Trigger>, crate::LibraryError> {
    let stored = library.get(flow, None)?;
    Ok(triggers(&Source { name: stored.file.display().to_string(), text: stored.text }, &KEPT))
}

/// The triggers of a tenant, by their keys.
pub(super) fn read(host: &Host, library: &FlowLibrary) -> Result<Vec<Live>, LookError> {
    let mut said: BTreeMap<String, Said> = Records(host).said()?.into_iter().collect();
    let mut all = Vec::new();
    for flow in library.names()? {
        // One that is deleted meanwhile has none.
        for trigger in declared(library, &flow).unwrap_or_default() {
            let Said { disabled, asked, .. } = said.remove(&key(&flow, &trigger.id)).unwrap_or_default();
            all.push(Live { flow: flow.clone(), trigger, declared: true, enabled: !disabled, asked });
        }
    }
    for (key, Said { bound, disabled, asked }) in said {
        let Some((flow, bound)) = key.split_once('/').map(|(flow, _)| flow).zip(bound) else { continue };
        match read_bound(&bound) {
            Ok(trigger) => {
                all.push(Live { flow: flow.to_owned(), trigger, declared: false, enabled: !disabled, asked });
            }
            Err(_) => tracing::warn!("the trigger `{key}` is not one any more, and starts nothing"),
        }
    }
    all.sort_by_key(Live::key);
    Ok(all)
}
