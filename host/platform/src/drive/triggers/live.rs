//! The triggers of a tenant. A declared trigger is in the file of its flow, in the newest version. A bound trigger is
//! a document that a user has added to a flow. If both have the same id, the declared trigger wins.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use flowcell_flow::{
    CheckContext, CheckMode, Diagnostic, Source,
    triggers::{Cause, Trigger, Webhook, trigger, triggers},
};

use super::{
    LookError,
    record::{Records, TriggerSettings, digest, key},
};
use crate::{FlowLibrary, Host, LibraryError, schedule};

/// A trigger of a tenant's flow, with its state.
#[derive(Clone, Debug)]
pub struct TenantTrigger {
    /// The name of the flow that the trigger starts.
    pub flow: String,
    /// The trigger's definition: its id, the cause on which it starts the flow, and its input.
    pub trigger: Trigger,
    /// True if the flow's file declares the trigger. False if a user has bound it to the flow.
    pub declared: bool,
    /// True if the trigger may start runs. False if a user has disabled it.
    pub enabled: bool,
    /// The requests of users to start the flow by hand that no server has fulfilled yet, each as its time in
    /// milliseconds since 1970.
    pub asked: Vec<u64>,
}

impl TenantTrigger {
    /// Returns the trigger's key among the triggers of its tenant: `FLOW/ID`.
    pub fn key(&self) -> String {
        key(&self.flow, &self.trigger.id)
    }

    /// Returns the digest of the trigger's cause, the part of the definition that says when the trigger starts its
    /// flow. If the digest changes, the trigger counts as new.
    pub(super) fn cause(&self) -> String {
        digest(&self.trigger.cause)
    }

    /// Returns the webhook of the trigger, if the trigger takes posts to this flow and id.
    pub(super) fn webhook_at(&self, flow: &str, id: &str) -> Option<&Webhook> {
        match &self.trigger.cause {
            Cause::Webhook(webhook) if self.enabled && self.flow == flow && self.trigger.id == id => Some(webhook),
            _ => None,
        }
    }

    /// Returns the trigger's cron expression and time zone, or `None` if its cause is not a time.
    pub(super) fn schedule(&self) -> Option<schedule::Schedule> {
        let Cause::Time { cron, time_zone, .. } = &self.trigger.cause else { return None };
        schedule::Schedule::new(cron, time_zone).ok()
    }
}

/// The context in which a trigger is checked without its flow.
struct TriggerCheck<'a> {
    rules: CheckMode,
    /// The host and library that a new trigger is checked against. `None` for a stored trigger: the flows and secrets
    /// that it names are not checked again.
    binding: Option<(&'a Host, &'a FlowLibrary)>,
}

impl CheckContext for TriggerCheck<'_> {
    fn mode(&self) -> CheckMode {
        self.rules
    }

    fn read(&self, _: &str) -> Result<String, String> {
        Err("a trigger cannot read files".into())
    }

    fn flow(&self, _: &str) -> Option<Source> {
        None
    }

    fn has_flow(&self, name: &str) -> bool {
        self.binding.is_none_or(|(_, library)| !matches!(library.get(name, None), Err(LibraryError::Unknown(_))))
    }

    fn flow_names(&self, most: usize) -> Vec<String> {
        let shown = self.binding.filter(|(host, _)| !host.hides_flows);
        shown.map(|(_, library)| library.some_names(most)).unwrap_or_default()
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

const STORED_CHECK: TriggerCheck<'static> = TriggerCheck { rules: CheckMode::Stored, binding: None };

/// Reads the stored definition of a trigger that is bound to a flow. The secrets and flows that it names are not
/// checked.
pub(super) fn read_bound(bound: &serde_json::Value) -> Result<Trigger, Vec<Diagnostic>> {
    trigger(&Source { name: "trigger".into(), text: bound.to_string() }, &STORED_CHECK).map(|(trigger, _)| trigger)
}

/// Checks the definition of a trigger that a user wants to bind to a flow. The secrets and flows that it names must exist.
/// Returns the warnings, such as one of a secret that is missing beside another one.
pub(super) fn check_new(
    new: &serde_json::Value,
    host: &Host,
    library: &FlowLibrary,
) -> Result<Vec<Diagnostic>, Vec<Diagnostic>> {
    let asked = TriggerCheck { rules: CheckMode::Adding, binding: Some((host, library)) };
    trigger(&Source { name: "trigger".into(), text: new.to_string() }, &asked).map(|(_, warnings)| warnings)
}

/// Returns the triggers that the newest version of a flow declares.
pub(super) fn read_declared(library: &FlowLibrary, flow: &str) -> Result<Vec<Trigger>, crate::LibraryError> {
    let stored = library.get(flow, None)?;
    Ok(triggers(&Source { name: stored.file.display().to_string(), text: stored.text }, &STORED_CHECK))
}

/// The triggers of a tenant at one look.
pub(super) struct Read {
    /// Sorted by their keys.
    pub(super) triggers: Arc<[TenantTrigger]>,
    /// One sentence for each flow that cannot be read and each trigger that is no longer valid.
    pub(super) unusable: BTreeSet<String>,
}

/// Returns the triggers of a tenant.
pub(super) fn read(host: &Host, library: &FlowLibrary) -> Result<Read, LookError> {
    let mut settings: BTreeMap<String, TriggerSettings> = Records(host).settings()?.into_iter().collect();
    let (mut all, mut unusable) = (Vec::new(), BTreeSet::new());
    for flow in library.names()? {
        let declared = match read_declared(library, &flow) {
            Err(LibraryError::Store(error)) => return Err(error.into()),
            // A flow that is deleted meanwhile has no triggers.
            Err(LibraryError::Unknown(_)) => continue,
            Err(error) => {
                unusable.insert(format!("cannot read the flow `{flow}`, so its triggers start nothing: {error}"));
                continue;
            }
            Ok(declared) => declared,
        };
        for trigger in declared {
            let TriggerSettings { disabled, asked, .. } = settings.remove(&key(&flow, &trigger.id)).unwrap_or_default();
            all.push(TenantTrigger { flow: flow.clone(), trigger, declared: true, enabled: !disabled, asked });
        }
    }
    for (key, TriggerSettings { bound, disabled, asked, .. }) in settings {
        let Some((flow, bound)) = key.split_once('/').map(|(flow, _)| flow).zip(bound) else { continue };
        match read_bound(&bound) {
            Ok(trigger) => {
                all.push(TenantTrigger { flow: flow.to_owned(), trigger, declared: false, enabled: !disabled, asked });
            }
            Err(_) => _ = unusable.insert(format!("the trigger `{key}` is no longer valid and starts nothing")),
        }
    }
    all.sort_by_key(TenantTrigger::key);
    Ok(Read { triggers: all.into(), unusable })
}
