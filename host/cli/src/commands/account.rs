//! `flowcell account`: shows and ends the accounts of people who have signed in by OpenID Connect.

use clap::{Args, Subcommand};
use flowcell::tenants::operation::Operation;

use crate::{
    cli_error::{CliError, Exit},
    options::StoreArgs,
    output::put_json,
    owner::operate,
};

/// Commands for accounts.
#[derive(Subcommand)]
pub(crate) enum AccountCommand {
    /// List the accounts of people who have signed in
    List(ListAccounts),
    /// End the sessions of an account, and refuse its next sign-ins
    Disable(OneAccount),
    /// Let an account sign in again
    Enable(OneAccount),
    /// End the sessions of an account, and forget it; its next sign-in makes it again
    Delete(OneAccount),
}

/// Arguments of `flowcell account list`.
#[derive(Args)]
pub(crate) struct ListAccounts {
    /// List only the accounts of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
}

/// An account, and its store.
#[derive(Args)]
pub(crate) struct OneAccount {
    /// The id of the account, as `flowcell account list` prints it
    id: String,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn execute(command: &AccountCommand) -> Result<Exit, CliError> {
    let (operation, store) = match command {
        AccountCommand::List(args) => (Operation::ListAccounts { tenant: args.tenant.clone() }, &args.store),
        AccountCommand::Disable(args) => {
            (Operation::EnableAccount { id: args.id.clone(), enabled: false }, &args.store)
        }
        AccountCommand::Enable(args) => (Operation::EnableAccount { id: args.id.clone(), enabled: true }, &args.store),
        AccountCommand::Delete(args) => (Operation::DeleteAccount { id: args.id.clone() }, &args.store),
    };
    put_json(&operate(operation, store)?)?;
    Ok(Exit::Good)
}
