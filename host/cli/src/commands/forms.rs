//! `flowcell forms`: creates, lists and revokes links by which people without a login start a flow.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand, ValueHint};
use flowcell::{
    Json,
    forms::operation::{FormOperation, NewForm},
    tenants::operation::Operation,
};

use crate::{
    cli_error::{CliError, Exit},
    duration,
    options::TenantArgs,
    output::put_json,
    owner::operate,
};

/// Commands for forms.
#[derive(Subcommand)]
pub(crate) enum FormsCommand {
    /// Create a link to the form of a flow, and print its code, which is not shown again
    Link(LinkArgs),
    /// List the links by page, without their codes
    List(ListArgs),
    /// Revoke a link, so that its code opens nothing any more
    Revoke(RevokeArgs),
}

/// The tenant that owns the links, the folder of its flows, and the store.
#[derive(Args)]
pub(crate) struct FormsArgs {
    /// The folder of the flows of the tenant `local`; the flows of other tenants are in `.tenants` below it
    #[arg(long, value_name = "DIR", default_value = "flows", env = "FLOWCELL_FLOWS", value_hint = ValueHint::DirPath)]
    flows: PathBuf,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell forms link`.
#[derive(Args)]
pub(crate) struct LinkArgs {
    /// The name of the flow
    flow: String,
    /// The time after which the link ends, such as 12h or 7d, at most 90d [default: 7d]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    expires: Option<Duration>,
    /// The number of runs that the link may start, at most 100000 [default: 1]
    #[arg(long, value_name = "N")]
    uses: Option<u32>,
    /// Members of the input, a JSON object; the form shows them, and a person may change them
    #[arg(long, value_name = "JSON", default_value = "{}")]
    prefill: String,
    #[command(flatten)]
    forms: FormsArgs,
}

/// Arguments of `flowcell forms list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    /// The `next` of the page before
    #[arg(long, value_name = "ID", default_value = "")]
    after: String,
    #[command(flatten)]
    forms: FormsArgs,
}

/// Arguments of `flowcell forms revoke`.
#[derive(Args)]
pub(crate) struct RevokeArgs {
    /// The id of the link, as `flowcell forms list` prints it
    id: String,
    #[command(flatten)]
    forms: FormsArgs,
}

pub(super) fn execute(command: FormsCommand) -> Result<Exit, CliError> {
    let (forms, request) = match command {
        FormsCommand::Link(LinkArgs { flow, expires, uses, prefill, forms }) => {
            let wrong = |error| CliError::wrong(format!("`--prefill` is not JSON: {error}"));
            let prefill = serde_json::from_str(&prefill).map_err(wrong)?;
            let lasts = expires.map(|expires| u64::try_from(expires.as_millis()).unwrap_or(u64::MAX));
            (forms, FormOperation::Create(NewForm { flow, lasts, uses, prefill }))
        }
        FormsCommand::List(ListArgs { after, forms }) => (forms, FormOperation::List { after }),
        FormsCommand::Revoke(RevokeArgs { id, forms }) => (forms, FormOperation::Revoke { id }),
    };
    // The process that owns the store may have another current folder, so the path has to be absolute.
    let folder = std::path::absolute(&forms.flows).unwrap_or_else(|_| Path::new(&forms.flows).to_owned());
    let operation = Operation::Form { tenant: forms.of.tenant.clone(), folder, request };
    let done: Json = operate(operation, &forms.of.store)?;
    put_json(&done)?;
    Ok(Exit::Good)
}
