//! `flowcell trigger`: shows and changes the triggers that start flows.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Subcommand, ValueHint};
use flowcell::{Json, tenants::operation::Operation, triggers::operation::TriggerOperation};
use serde_json::{Value, json};

use crate::{
    cli_error::{CliError, Exit},
    options::TenantArgs,
    output::put_json,
    owner::operate,
    terminal::Terminal,
};

/// Commands for triggers.
#[derive(Subcommand)]
pub(crate) enum TriggerCommand {
    /// Bind a trigger to a flow of the library, without changing the flow's file
    Create(Box<NewTrigger>),
    /// List the triggers: those in the files of flows, and bound ones
    List(TriggersArgs),
    /// Show a trigger, with its next start or its address for posts
    Show(OneTrigger),
    /// Enable a trigger: it starts its flow again
    Enable(OneTrigger),
    /// Disable a trigger: it does not start its flow
    Disable(OneTrigger),
    /// Remove a bound trigger
    Delete(OneTrigger),
    /// Start the flow of a trigger once, now, on a server
    Fire(OneTrigger),
}

/// The tenant that owns the triggers, the folder of its flows, and the store.
#[derive(Args)]
pub(crate) struct TriggersArgs {
    /// The folder of the flows of the tenant `local`; the flows of other tenants are in `.tenants` below it
    #[arg(long, value_name = "DIR", default_value = "flows", env = "FLOWCELL_FLOWS", value_hint = ValueHint::DirPath)]
    flows: PathBuf,
    #[command(flatten)]
    of: TenantArgs,
}

/// A trigger of a flow.
#[derive(Args)]
pub(crate) struct OneTrigger {
    /// The name of the flow
    flow: String,
    /// The id of the trigger
    id: String,
    #[command(flatten)]
    triggers: TriggersArgs,
}

/// Arguments of `flowcell trigger create`.
#[derive(Args)]
#[command(group(ArgGroup::new("cause").required(true).args(["cron", "webhook", "after"])))]
pub(crate) struct NewTrigger {
    #[command(flatten)]
    trigger: OneTrigger,
    /// Start at these times: minute, hour, day of the month, month, day of the week
    #[arg(long, value_name = "FIELDS")]
    cron: Option<String>,
    /// The time zone of `--cron`, by its IANA name [default: UTC]
    #[arg(long, value_name = "NAME", requires = "cron")]
    time_zone: Option<String>,
    /// The starts to make up for when no server ran: skip, latest or all [default: latest]
    #[arg(long, value_name = "POLICY", requires = "cron")]
    missed: Option<String>,
    /// Start by a post that is signed with the secret of this name; may be repeated, to accept an old and a new secret
    #[arg(long, value_name = "NAME")]
    webhook: Vec<String>,
    /// The scheme of the sender of `--webhook`, such as github, stripe or slack [default: standard]
    #[arg(long, value_name = "SCHEME", requires = "webhook")]
    scheme: Option<String>,
    /// The header of `--webhook` with the proof of the sender, as the schemes hmac and bearer take it
    #[arg(long, value_name = "NAME", requires = "webhook")]
    header: Option<String>,
    /// The name of the sender of `--webhook`, as the scheme basic needs it
    #[arg(long, value_name = "NAME", requires = "webhook")]
    user: Option<String>,
    /// The place of the id of a post of `--webhook`: the name of a header, or a JSON Pointer into the body such as /order/id
    #[arg(long, value_name = "PLACE", requires = "webhook")]
    post_id: Option<String>,
    /// The answer to a post: run (the id of the run), node (the first `control.respond`) or outputs [default: run]
    #[arg(long, value_name = "ANSWER", requires = "webhook")]
    respond: Option<String>,
    /// Start after each run of this flow
    #[arg(long, value_name = "FLOW")]
    after: Option<String>,
    /// Start only after runs with this status: succeeded, failed or cancelled; may be repeated
    #[arg(long, value_name = "STATUS", requires = "after")]
    status: Vec<String>,
    /// The input of the runs, as a JSON object
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
}

impl NewTrigger {
    /// Returns the trigger as a flow's file would write it.
    fn definition(&self) -> Result<Value, CliError> {
        let mut trigger = json!({ "id": self.trigger.id });
        if let Some(cron) = &self.cron {
            trigger["cron"] = cron.clone().into();
        }
        if let Some(zone) = &self.time_zone {
            trigger["timeZone"] = zone.clone().into();
        }
        if let Some(missed) = &self.missed {
            trigger["missed"] = missed.clone().into();
        }
        if !self.webhook.is_empty() {
            trigger["webhook"] = json!({ "secret": self.webhook });
        }
        if let Some(scheme) = &self.scheme {
            trigger["webhook"]["scheme"] = scheme.clone().into();
        }
        if let Some(header) = &self.header {
            trigger["webhook"]["header"] = header.clone().into();
        }
        if let Some(user) = &self.user {
            trigger["webhook"]["user"] = user.clone().into();
        }
        if let Some(place) = &self.post_id {
            let kind = if place.starts_with('/') { "pointer" } else { "header" };
            trigger["webhook"]["id"] = json!({ kind: place });
        }
        if let Some(respond) = &self.respond {
            trigger["webhook"]["respond"] = respond.clone().into();
        }
        if let Some(flow) = &self.after {
            trigger["event"] = json!({ "flow": flow });
        }
        if !self.status.is_empty() {
            trigger["event"]["status"] = self.status.clone().into();
        }
        if let Some(input) = &self.input {
            let wrong = |error| CliError::wrong(format!("`--input` is not JSON: {error}"));
            trigger["input"] = serde_json::from_str(input).map_err(wrong)?;
            Json::check_numbers(input).map_err(wrong)?;
        }
        Ok(trigger)
    }
}

pub(super) fn execute(command: &TriggerCommand, terminal: Terminal) -> Result<Exit, CliError> {
    let (trigger, act) = match command {
        TriggerCommand::List(triggers) => return done(triggers, None, None),
        TriggerCommand::Create(new) => (&new.trigger, Some(TriggerOperation::Create { trigger: new.definition()? })),
        TriggerCommand::Show(trigger) => (trigger, None),
        TriggerCommand::Enable(trigger) => (trigger, Some(TriggerOperation::Enable)),
        TriggerCommand::Disable(trigger) => (trigger, Some(TriggerOperation::Disable)),
        TriggerCommand::Delete(trigger) => (trigger, Some(TriggerOperation::Delete)),
        TriggerCommand::Fire(trigger) => (trigger, Some(TriggerOperation::Fire)),
    };
    let fires = matches!(act, Some(TriggerOperation::Fire));
    done(&trigger.triggers, Some((trigger.flow.clone(), trigger.id.clone())), act)?;
    if fires {
        terminal
            .say(&terminal.paint().faint("recorded; `flowcell serve` starts the run within 5 s, or when it starts"));
    }
    Ok(Exit::Good)
}

fn done(
    triggers: &TriggersArgs,
    trigger: Option<(String, String)>,
    act: Option<TriggerOperation>,
) -> Result<Exit, CliError> {
    // The process that owns the store may have another current folder, so the path has to be absolute.
    let folder = std::path::absolute(&triggers.flows).unwrap_or_else(|_| Path::new(&triggers.flows).to_owned());
    let operation = Operation::Trigger { tenant: triggers.of.tenant.clone(), folder, trigger, act };
    put_json(&operate(operation, &triggers.of.store)?)?;
    Ok(Exit::Good)
}
