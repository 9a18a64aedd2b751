//! Triggers start a flow: at scheduled times, on a signed post, or when a run of another flow ends.
//!
//! This module checks the syntax. Cron expressions and time zones are checked through [`CheckContext`], because the
//! crate has no calendar.

pub mod schemes;
mod webhook;

use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

pub use self::webhook::{Respond, Webhook};
use crate::{
    CheckContext, CheckMode, Source,
    diagnostic::{Diagnostic, Diagnostics, did_you_mean},
    fields::{ID_HELP, check_keys, entries, for_message, is_flow_name, is_id, map, required, text},
    labels::{self, Labels},
    limits::{LABELS, TRIGGERS},
    yaml::{self, Kind, Span, Tree},
};

/// The member of a run's input that describes the trigger which started the run.
pub const MEMBER: &str = "trigger";

/// A trigger of a flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// Id of the trigger, unique in its flow.
    pub id: String,
    /// The event or the schedule that starts the flow.
    #[serde(flatten)]
    pub cause: Cause,
    /// Members of the input that override the flow's defaults.
    #[serde(skip_serializing_if = "is_empty")]
    pub input: Json,
    /// The labels of the runs that the trigger starts. They replace labels of the flow with the same names.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

fn is_empty(input: &Json) -> bool {
    input.as_object().is_none_or(|members| members.is_empty())
}

/// The cause of a run that a trigger starts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Cause {
    /// An HTTP POST to the webhook of the trigger, by a sender that knows a secret.
    Webhook(Webhook),
    /// The end of a run of another flow.
    Event {
        /// Name of the other flow.
        flow: String,
        /// The final statuses of that run with which it starts this flow.
        status: Vec<End>,
    },
    /// A schedule in cron notation.
    #[serde(untagged)]
    Time {
        /// Five fields: minute, hour, day of the month, month, day of the week.
        cron: String,
        /// IANA name of the schedule's time zone.
        time_zone: String,
        /// The rule for scheduled times that passed while no server was running.
        missed: Missed,
    },
}

/// The rule for scheduled times that passed while no server was running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Missed {
    /// The missed times start nothing.
    Skip,
    /// The flow starts once, for the latest missed time.
    Latest,
    /// The flow starts once for each missed time.
    All,
}

/// The final status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// The run ended with outputs.
    Succeeded,
    /// The run ended with an error.
    Failed,
    /// The run was cancelled on request.
    Cancelled,
}

impl End {
    const ALL: [(&'static str, End); 3] =
        [("succeeded", End::Succeeded), ("failed", End::Failed), ("cancelled", End::Cancelled)];

    /// Returns the status's name in lists of runs.
    pub fn name(self) -> &'static str {
        End::ALL.iter().find(|(_, end)| *end == self).map_or("", |(name, _)| name)
    }
}

const KEYS: [&str; 8] = ["id", "cron", "timeZone", "missed", "webhook", "event", "input", "labels"];
const ONE_OF: &str = "write one of `cron: \"0 2 * * *\"`, `webhook: { secret: NAME }`, `event: { flow: NAME }`";

/// Returns the triggers of a flow, even if other parts of the flow have errors. If one of the triggers has an error,
/// returns no triggers.
pub fn triggers(source: &Source, context: &dyn CheckContext) -> Vec<Trigger> {
    // Most flows have no triggers and need not be parsed.
    if !source.text.contains("triggers") {
        return Vec::new();
    }
    let Ok(tree) = yaml::parse(&source.text) else { return Vec::new() };
    let Some(head) = tree.member("flow") else { return Vec::new() };
    let mut diagnostics = Diagnostics::new(&source.name, &source.text, context.mode());
    let read = head.member("triggers").map(|list| read(list, None, context, &mut diagnostics)).unwrap_or_default();
    if diagnostics.has_errors() { Vec::new() } else { read }
}

/// Reads a text that is a single trigger and belongs to no flow. Returns the trigger, or the diagnostics if it has
/// errors.
pub fn trigger(source: &Source, context: &dyn CheckContext) -> Result<(Trigger, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut diagnostics = Diagnostics::new(&source.name, &source.text, context.mode());
    let read = match yaml::parse(&source.text) {
        Ok(tree) => read_one(&tree, None, context, &mut diagnostics),
        Err(error) => {
            diagnostics.error("syntax", error.span, error.message, error.help);
            None
        }
    };
    match read {
        Some(trigger) if !diagnostics.has_errors() => Ok((trigger, diagnostics.finish())),
        _ => Err(diagnostics.finish()),
    }
}

/// Reads `flow.triggers`. `own` is the name of the flow itself; `None` if it is unknown.
pub(crate) fn read(
    tree: &Tree,
    own: Option<&str>,
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> Vec<Trigger> {
    if !matches!(tree.kind, Kind::List(_)) {
        let message = format!("`triggers` must be a list, not {}", tree.type_name());
        diagnostics.error("wrong_type", tree.span, message, Some("write one `- { id: …, cron: … }` per line".into()));
        return Vec::new();
    }
    let items = tree.items();
    if items.len() > TRIGGERS {
        let help = Some(format!("use at most {TRIGGERS} triggers"));
        diagnostics.error("too_large", tree.span, format!("the flow has {} triggers", items.len()), help);
    }
    let mut all: Vec<Trigger> = Vec::new();
    for item in items.iter().take(TRIGGERS) {
        let Some(trigger) = read_one(item, own, context, diagnostics) else { continue };
        if all.iter().any(|known| known.id == trigger.id) {
            let span = item.member("id").map_or(item.span, |id| id.span);
            let message = format!("another trigger has the id `{}`", trigger.id);
            diagnostics.error("id_taken", span, message, Some("give each trigger a distinct id".into()));
        }
        all.push(trigger);
    }
    all
}

/// Reports a trigger whose runs would have too many labels together with those of the flow.
pub(crate) fn check_labels(triggers: &[Trigger], flow: &Labels, tree: &Tree, diagnostics: &mut Diagnostics<'_>) {
    for (trigger, item) in triggers.iter().zip(tree.items()) {
        let own = trigger.labels.keys().filter(|name| !flow.contains_key(*name)).count();
        if flow.len().max(own) <= LABELS && flow.len() + own > LABELS {
            let message = format!("the runs of the trigger `{}` have {} labels", trigger.id, flow.len() + own);
            let help = format!("use at most {LABELS} labels together with those of the flow");
            diagnostics.error("too_large", item.span, message, Some(help));
        }
    }
}

/// Reports an `inputSchema` that does not allow the member `trigger`. Such a schema would reject every run that a
/// trigger starts.
pub(crate) fn check_schema(schema: &Tree, diagnostics: &mut Diagnostics<'_>) {
    let closed = schema.member("additionalProperties").filter(|more| more.json().as_bool() == Some(false));
    let named = schema.member("properties").and_then(|members| members.member(MEMBER));
    if let (Some(closed), None) = (closed, named) {
        let message = "triggers add a member `trigger` to the input, but `inputSchema` does not allow it";
        let help = Some("add `trigger: { type: object }` to its `properties`".into());
        diagnostics.error("trigger_refused", closed.span, message, help);
    }
}

fn read_one(
    tree: &Tree,
    own: Option<&str>,
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Trigger> {
    if !matches!(tree.kind, Kind::Map(_)) {
        let message = format!("a trigger must be a map, not {}", tree.type_name());
        diagnostics.error(
            "wrong_type",
            tree.span,
            message,
            Some("write `{ id: nightly, cron: \"0 2 * * *\" }`".into()),
        );
        return None;
    }
    check_keys(entries(tree, "a trigger", diagnostics), &KEYS, diagnostics);
    let (id, span) = required(tree, "id", "trigger", diagnostics);
    if !id.is_empty() && !is_id(&id) {
        diagnostics.error("bad_id", span, format!("`{}` is not a valid id", for_message(&id)), Some(ID_HELP.into()));
    }
    let input = read_input(tree, diagnostics);
    let labels = labels::read(tree, diagnostics);
    let cause = read_cause(tree, own, context, diagnostics)?;
    Some(Trigger { id, cause, input, labels })
}

fn read_input(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Json {
    let Some(input) = map(tree, "input", diagnostics) else { return Json::object::<&str>([]) };
    if let Some(taken) = input.member(MEMBER) {
        let help = Some("choose another name".into());
        diagnostics.error(
            "reserved_id",
            taken.span,
            "`trigger` in the input is reserved for data about the trigger",
            help,
        );
    }
    input.json()
}

fn read_cause(
    tree: &Tree,
    own: Option<&str>,
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Cause> {
    let ways = ["cron", "webhook", "event"].map(|key| tree.member(key));
    if ways.iter().flatten().count() != 1 {
        let several = ways.iter().flatten().count() > 1;
        let message = if several { "the trigger has more than one condition" } else { "the trigger waits for nothing" };
        diagnostics.error("bad_trigger", tree.span, message, Some(ONE_OF.into()));
        return None;
    }
    for key in ["timeZone", "missed"] {
        if let (Some(odd), None) = (tree.member(key), ways[0]) {
            let help = Some(format!("remove `{key}`, or add `cron:`"));
            diagnostics.error("bad_trigger", odd.span, format!("`{key}` needs `cron`"), help);
        }
    }
    match ways {
        [Some(_), ..] => read_time(tree, context, diagnostics),
        [_, Some(webhook), _] => webhook::read(webhook, context, diagnostics),
        [_, _, Some(event)] => read_event(event, own, context, diagnostics),
        _ => None,
    }
}

fn read_time(tree: &Tree, context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) -> Option<Cause> {
    let (cron, span) = text(tree, "cron", diagnostics)?;
    if let Err(why) = context.check_cron(&cron) {
        let help = Some("write minute, hour, day of the month, month, day of the week: `cron: \"0 2 * * *\"`".into());
        diagnostics.error("bad_cron", span, format!("invalid cron expression `{}`: {why}", for_message(&cron)), help);
    }
    let time_zone = match text(tree, "timeZone", diagnostics) {
        Some((zone, span)) => {
            if let Err(why) = context.check_time_zone(&zone) {
                let help = Some("write an IANA name, such as `timeZone: Europe/Berlin`; the default is UTC".into());
                diagnostics.error("bad_time_zone", span, why, help);
            }
            zone
        }
        None => "UTC".to_owned(),
    };
    let ways = [("skip", Missed::Skip), ("latest", Missed::Latest), ("all", Missed::All)];
    let missed = tree.member("missed").map(|value| choice("missed", value, &ways, diagnostics));
    Some(Cause::Time { cron, time_zone, missed: missed.unwrap_or(Some(Missed::Latest))? })
}

/// Reports an unknown name in a trigger. If the flow is being added to a library, where the trigger becomes active, the
/// name is an error, otherwise a warning.
fn report_unknown_name(
    code: &'static str,
    span: Span,
    (message, help): (String, Option<String>),
    diagnostics: &mut Diagnostics<'_>,
) {
    match diagnostics.mode() {
        CheckMode::New => diagnostics.warning(code, span, message, help),
        CheckMode::Adding | CheckMode::Stored => diagnostics.new_rule(code, span, message, help),
    }
}

fn read_event(
    tree: &Tree,
    own: Option<&str>,
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Cause> {
    check_keys(entries(tree, "`event`", diagnostics), &["flow", "status"], diagnostics);
    let (flow, span) = required(tree, "flow", "event", diagnostics);
    if !flow.is_empty() && !is_flow_name(&flow) {
        let help = Some("use letters, digits, `_` and `-`, at most 64 characters".into());
        diagnostics.error("bad_name", span, format!("`{}` is not a valid flow name", for_message(&flow)), help);
    } else if !flow.is_empty() && own != Some(&flow) && !context.has_flow(&flow) {
        let message = format!("unknown flow `{0}`, so its runs never start this one", for_message(&flow));
        // A stored flow starts with an unknown name, so this help is not shown.
        let meant = match diagnostics.mode() {
            CheckMode::Stored => None,
            CheckMode::New | CheckMode::Adding => diagnostics.flow_names.did_you_mean(&flow, None, context),
        };
        let help = meant.or_else(|| Some(format!("add the flow `{}` first, or fix its name", for_message(&flow))));
        report_unknown_name("unknown_flow", span, (message, help), diagnostics);
    }
    let status = match tree.member("status") {
        None => End::ALL.iter().map(|(_, end)| *end).collect(),
        Some(status) => read_status(status, diagnostics)?,
    };
    Some(Cause::Event { flow, status })
}

fn read_status(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<Vec<End>> {
    let items = if let Kind::List(items) = &tree.kind { items.as_slice() } else { std::slice::from_ref(tree) };
    if items.is_empty() {
        let help = Some("remove `status` to accept every final status".into());
        diagnostics.error("bad_trigger", tree.span, "the list of `status` is empty", help);
    }
    items.iter().map(|item| choice("status", item, &End::ALL, diagnostics)).collect()
}

fn choice<T: Copy>(key: &str, value: &Tree, choices: &[(&str, T)], diagnostics: &mut Diagnostics<'_>) -> Option<T> {
    let written = value.text().unwrap_or_default();
    let found = choices.iter().find(|(name, _)| *name == written).map(|(_, choice)| *choice);
    if found.is_none() {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let help = did_you_mean(written, names.iter().copied());
        diagnostics.error("bad_value", value.span, format!("`{key}` must be one of: {}", names.join(", ")), help);
    }
    found
}

/// Returns the texts in a value that is a text or a list of texts, with their positions; `None` for any other value.
fn texts(tree: &Tree) -> Option<Vec<(String, Span)>> {
    let one = |tree: &Tree| Some((tree.text()?.to_owned(), tree.span)).filter(|(text, _)| !text.is_empty());
    match &tree.kind {
        Kind::List(items) => items.iter().map(one).collect(),
        _ => one(tree).map(|text| vec![text]),
    }
}
