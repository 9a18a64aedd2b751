//! Users' operations on triggers: list, bind, delete, enable, disable, and start by hand. Every process may perform
//! these operations, since they only change documents in the store. A server reads these documents every few seconds,
//! and then follows the changes.

use flowcell_contract::{RunId, Tenant};
use flowcell_flow::{Diagnostic, Severity, triggers::Cause};
use flowcell_runtime::ports::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    LookError,
    live::{self, TenantTrigger},
    record::{Records, TriggerSettings, key},
    start::short_hash,
    times::manual_run_id,
};
use crate::{FlowLibrary, Host, LibraryError, schedule, shape};

/// Maximum number of bound triggers of a tenant.
pub const MAX_BOUND_TRIGGERS: usize = 1_000;
/// Maximum number of requests to start a trigger's flow by hand that no server has fulfilled yet.
pub const MAX_PENDING_STARTS: usize = 16;
/// Maximum number of keys of such requests that a trigger remembers, the latest ones.
const MAX_KEPT_KEYS: usize = 64;
/// The codes of warnings about a secret that a trigger cannot use beside others.
const SECRET_WARNINGS: [&str; 2] = ["missing_secret", "locked_secret"];

/// An error of an operation on triggers.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// The trigger does not exist.
    #[error("the trigger `{0}` does not exist")]
    Unknown(String),
    /// The flow already has a trigger with this id.
    #[error("the trigger `{0}` already exists")]
    Taken(String),
    /// The flow's file declares the trigger.
    #[error("the trigger `{0}` is in the file of its flow; remove it there, or disable it")]
    Declared(String),
    /// The definition has errors.
    #[error("the trigger is invalid: {}", first_error(.0))]
    Invalid(Vec<Diagnostic>),
    /// A limit is reached.
    #[error("{0}")]
    TooMany(String),
    /// The flow does not exist.
    #[error(transparent)]
    Flow(#[from] LibraryError),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TriggerError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            TriggerError::Unknown(_) => "trigger_not_found",
            TriggerError::Taken(_) => "trigger_exists",
            TriggerError::Declared(_) => "trigger_declared",
            TriggerError::Invalid(_) => "invalid_trigger",
            TriggerError::TooMany(_) => "too_many_triggers",
            TriggerError::Flow(_) => "flow_not_found",
            TriggerError::Store(_) => "store_unavailable",
        }
    }
}

impl From<LookError> for TriggerError {
    fn from(error: LookError) -> TriggerError {
        match error {
            LookError::Store(error) => error.into(),
            LookError::Flows(error) => error.into(),
        }
    }
}

/// An operation on a trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase")]
pub enum TriggerOperation {
    /// Binds a new trigger to the flow: `{ id, cron | webhook | event, … }`.
    Create {
        /// The definition, as a flow's file would have it.
        trigger: Value,
    },
    /// Lets the trigger start runs from now on.
    Enable,
    /// Stops the trigger from starting runs.
    Disable,
    /// Deletes a bound trigger.
    Delete,
    /// Requests one start of the trigger's flow by hand. A server starts the flow when it next reads the trigger.
    Fire,
}

impl TriggerOperation {
    /// Returns the operation's name in audit logs.
    pub fn name(&self) -> &'static str {
        match self {
            TriggerOperation::Create { .. } => "trigger.create",
            TriggerOperation::Enable => "trigger.enable",
            TriggerOperation::Disable => "trigger.disable",
            TriggerOperation::Delete => "trigger.delete",
            TriggerOperation::Fire => "trigger.fire",
        }
    }
}

/// Performs operations on the triggers of a tenant's flows.
pub struct TriggerAdmin<'a> {
    host: &'a Host,
    library: FlowLibrary,
}

impl<'a> TriggerAdmin<'a> {
    /// Creates the operations on the triggers of the host's tenant. `library` has the tenant's flows.
    pub fn new(host: &'a Host, library: FlowLibrary) -> TriggerAdmin<'a> {
        TriggerAdmin { host, library }
    }

    /// Returns all triggers as JSON.
    pub fn list(&self) -> Result<Vec<Value>, TriggerError> {
        live::read(self.host, &self.library)?.triggers.iter().map(|live| self.to_json(live)).collect()
    }

    /// Returns one trigger as JSON.
    pub fn show(&self, flow: &str, id: &str) -> Result<Value, TriggerError> {
        self.to_json(&self.find(flow, id)?)
    }

    /// Performs an operation on a flow's trigger, and returns the trigger's new state as JSON. After a deletion,
    /// returns the trigger's key. After a request to start the flow by hand, returns the id of the run. A new trigger
    /// has the id in its definition, and `id` is ignored.
    pub fn act(&self, flow: &str, id: &str, act: &TriggerOperation) -> Result<Value, TriggerError> {
        match act {
            TriggerOperation::Create { trigger } => return self.create(flow, trigger),
            TriggerOperation::Enable => self.enable(flow, id, true)?,
            TriggerOperation::Disable => self.enable(flow, id, false)?,
            TriggerOperation::Delete => return self.delete(flow, id),
            TriggerOperation::Fire => return self.fire(flow, id, None),
        }
        self.show(flow, id)
    }

    fn create(&self, flow: &str, trigger: &Value) -> Result<Value, TriggerError> {
        let read = live::read_bound(trigger).map_err(TriggerError::Invalid)?;
        let key = key(flow, &read.id);
        if live::read_declared(&self.library, flow)?.iter().any(|known| known.id == read.id) {
            return Err(TriggerError::Taken(key));
        }
        live::check_new(trigger, self.host, &self.library).map_err(TriggerError::Invalid)?;
        let records = Records(self.host);
        if records.settings()?.iter().filter(|(_, settings)| settings.bound.is_some()).count() >= MAX_BOUND_TRIGGERS {
            return Err(TriggerError::TooMany(format!(
                "a tenant may bind at most {MAX_BOUND_TRIGGERS} triggers; delete some"
            )));
        }
        // A new trigger does not inherit the progress of an earlier one with its id.
        records.remove_mark(&key)?;
        let bound = serde_json::to_value(&read).unwrap_or_default();
        let made = records.change_settings(&key, |settings| match settings {
            Some(TriggerSettings { bound: Some(_), .. }) => None,
            _ => Some(Some(TriggerSettings { bound: Some(bound.clone()), ..TriggerSettings::default() })),
        })?;
        if !made {
            return Err(TriggerError::Taken(key));
        }
        if matches!(read.cause, Cause::Time { .. } | Cause::Event { .. }) {
            let live = self.find(flow, &read.id)?;
            records.read_or_create_mark(&key, &live.cause(), self.host.now())?;
        }
        self.show(flow, &read.id)
    }

    fn enable(&self, flow: &str, id: &str, enabled: bool) -> Result<(), TriggerError> {
        let live = self.find(flow, id)?;
        let records = Records(self.host);
        if enabled && !live.enabled {
            // Causes from the time when the trigger was disabled start nothing.
            records.remove_mark(&live.key())?;
            records.read_or_create_mark(&live.key(), &live.cause(), self.host.now())?;
        }
        records.change_settings(&live.key(), |settings| {
            Some(Some(TriggerSettings { disabled: !enabled, ..settings.unwrap_or_default() }))
        })?;
        Ok(())
    }

    fn delete(&self, flow: &str, id: &str) -> Result<Value, TriggerError> {
        let live = self.find(flow, id)?;
        if live.declared {
            return Err(TriggerError::Declared(live.key()));
        }
        let records = Records(self.host);
        records.change_settings(&live.key(), |settings| settings.map(|_| None))?;
        records.remove_mark(&live.key())?;
        Ok(json!({ "deleted": live.key() }))
    }

    /// Requests one start of a trigger's flow by hand, and returns the id of the run. A request with the key of an
    /// earlier one requests nothing, and returns the same id. A trigger remembers its latest [`MAX_KEPT_KEYS`] keys.
    pub fn fire(&self, flow: &str, id: &str, key: Option<&[u8]>) -> Result<Value, TriggerError> {
        let live = self.find(flow, id)?;
        let key = key.map(short_hash);
        let mut run: Option<RunId> = None;
        Records(self.host).change_settings(&live.key(), |settings| {
            let mut settings = settings.unwrap_or_default();
            if let Some((_, asked)) = settings.keys.iter().find(|(known, _)| Some(known) == key.as_ref()) {
                run = Some(manual_run_id(&live, *asked));
                return None;
            }
            // Two starts in one millisecond stay separate.
            let next = settings.asked.last().map_or(0, |last| last + 1);
            let asked = self.host.now().max(next);
            run = Some(manual_run_id(&live, asked)).filter(|_| settings.asked.len() < MAX_PENDING_STARTS);
            settings.asked.push(asked);
            settings.keys.extend(key.clone().map(|key| (key, asked)));
            let surplus = settings.keys.len().saturating_sub(MAX_KEPT_KEYS);
            settings.keys.drain(..surplus);
            run.is_some().then_some(Some(settings))
        })?;
        match run {
            Some(run) => Ok(json!({ "runId": run.to_string() })),
            None => Err(TriggerError::TooMany(format!(
                "{MAX_PENDING_STARTS} starts are already recorded; run a server to start them"
            ))),
        }
    }

    fn find(&self, flow: &str, id: &str) -> Result<TenantTrigger, TriggerError> {
        let all = live::read(self.host, &self.library)?.triggers;
        let found = all.iter().find(|live| live.flow == flow && live.trigger.id == id);
        found.cloned().ok_or_else(|| TriggerError::Unknown(key(flow, id)))
    }

    fn to_json(&self, live: &TenantTrigger) -> Result<Value, TriggerError> {
        let mark = Records(self.host).find_mark(&live.key())?.filter(|mark| mark.cause == live.cause());
        let mut view = serde_json::to_value(&live.trigger).unwrap_or_default();
        // If a secret or a flow that the trigger names is gone, the trigger starts nothing. If one of several secrets is gone
        // or locked, posts with the others still start the flow.
        let (Ok(found) | Err(found)) = live::check_new(&view, self.host, &self.library);
        let is_problem =
            |found: &&Diagnostic| found.severity == Severity::Error || SECRET_WARNINGS.contains(&found.code);
        let problems: Vec<_> = found.iter().filter(is_problem).map(|found| found.message.clone()).collect();
        if !problems.is_empty() {
            view["problems"] = problems.into();
        }
        view["flow"] = live.flow.clone().into();
        view["declared"] = live.declared.into();
        view["enabled"] = live.enabled.into();
        if let Some(schedule) = live.schedule().filter(|_| live.enabled) {
            let next = schedule.next(self.host.now());
            view["next"] = next.map(schedule::format_for_text).into();
        }
        if let Some(last) = mark.filter(|mark| mark.up_to > mark.since && live.schedule().is_some()) {
            view["last"] = schedule::format_for_text(last.up_to).into();
        }
        if matches!(live.trigger.cause, Cause::Webhook { .. }) {
            view["path"] = webhook_path(self.host.tenant(), live).into();
        }
        Ok(view)
    }
}

/// Returns the URL path for posts to a trigger.
fn webhook_path(tenant: &Tenant, live: &TenantTrigger) -> String {
    format!("/v1/hooks/{tenant}/{}/{}", live.flow, live.trigger.id)
}

/// Returns the message of the first error among the diagnostics of a trigger. A warning may stand before it.
fn first_error(found: &[Diagnostic]) -> &str {
    let error = found.iter().find(|finding| finding.severity == Severity::Error).or(found.first());
    error.map_or("", |finding| &finding.message)
}

/// Returns the diagnostics of a trigger as JSON.
pub fn findings(found: &[Diagnostic]) -> Value {
    json!({ "diagnostics": found.iter().map(shape::finding).collect::<Vec<_>>() })
}
