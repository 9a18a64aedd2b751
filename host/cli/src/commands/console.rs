//! `flowcell console`: prints a link that opens the console of a running server, and logs its browser in. The server has the
//! store of this machine, or is one elsewhere with a stored login.

use clap::Args;
use flowcell::{
    Host, RunId,
    control::{ConsoleAccess, OwnerRequest},
    tenants::{Tenants, login},
};
use http::Method;
use serde_json::json;
use url::Url;

use super::login::{connect, in_runtime};
use crate::{
    cli_error::{CliError, Exit},
    options::{PackArgs, StoreArgs, StoreLocation},
    output::put_line,
    owner::{ask_for_result, refused, require_durable},
    remote::{ServerAddress, browser},
    terminal::Terminal,
};

/// Arguments of `flowcell console`.
#[derive(Args)]
pub(crate) struct ConsoleArgs {
    /// The tenant to log in as; a server without tenants needs none
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The scopes of the login, separated by commas; by default all that a tenant may have
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', requires = "tenant")]
    scopes: Vec<String>,
    /// Open the link in a browser, too
    #[arg(long)]
    open: bool,
    /// The address of the server as browsers reach it, such as https://flows.example.com; needed with a shared store
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// The address of a server elsewhere, with the login of `flowcell login`
    #[arg(long, value_name = "URL", conflicts_with_all = ["tenant", "url"])]
    server: Option<ServerAddress>,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn execute(args: &ConsoleArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let link = match &args.server {
        Some(server) => link_elsewhere(server, terminal)?,
        None => link_here(args)?,
    };
    put_line(&link)?;
    if args.open {
        browser::open(&link, terminal);
    }
    Ok(Exit::Good)
}

/// Returns the link to the console of a server elsewhere, with a one-time code that the login makes.
fn link_elsewhere(address: &ServerAddress, terminal: Terminal) -> Result<String, CliError> {
    let server = connect(Some(address), terminal)?;
    let made = in_runtime(server.ask(Method::POST, "/v1/login-codes", Some(&json!({}))))?;
    match made {
        Ok(made) => {
            let code = made["code"].as_str().ok_or_else(|| server.stranger())?;
            Ok(link(&address.to_string(), Some(code)))
        }
        // The server asks for no tokens.
        Err(refused) if refused.code == "tenant_local" => Ok(link(&address.to_string(), None)),
        Err(refused) => Err(refused.error(address)),
    }
}

/// Returns the link to the console of the server that has a store.
fn link_here(args: &ConsoleArgs) -> Result<String, CliError> {
    Ok(match require_durable(&args.store)? {
        StoreLocation::Folder(folder) => {
            let ask = OwnerRequest::Console { tenant: args.tenant.clone(), scopes: args.scopes.clone() };
            let access = ask_for_result(folder, &ask, &RunId::from("")).map_err(|error| {
                error.hint("`flowcell console` needs a server that runs with this store: `flowcell serve`")
            })?;
            let access: ConsoleAccess = serde_json::from_str(&access.to_text()).map_err(|error| {
                CliError::internal("the process that owns the store sent an unexpected reply").because(&error)
            })?;
            let url = args.url.as_ref().map_or(access.origin, shown);
            link(&url, access.code.as_deref())
        }
        place => {
            let (Some(url), Some(tenant)) = (&args.url, &args.tenant) else {
                return Err(CliError::wrong("with a shared store, the command needs `--url` and `--tenant`")
                    .hint("such as `--url https://flows.example.com --tenant acme`"));
            };
            link(&shown(url), Some(&create_code(&PackArgs::default().host_at(place)?, tenant, &args.scopes)?))
        }
    })
}

fn create_code(host: &Host, tenant: &str, scopes: &[String]) -> Result<String, CliError> {
    let code = login::create_code(&Tenants::of(host), tenant, scopes);
    code.map_err(|error| refused(error.code(), &error.to_string(), &RunId::from("")))
}

fn shown(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

/// Returns the link to the console. The code is behind `#`, where no server, proxy or log receives it.
fn link(url: &str, code: Option<&str>) -> String {
    match code {
        Some(code) => format!("{url}/console/login#{code}"),
        None => format!("{url}/console"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn the_link_has_the_code_behind_the_hash() {
        assert_eq!(link("http://h:1", Some("fcc_a_b")), "http://h:1/console/login#fcc_a_b");
        assert_eq!(link(&shown(&"https://h/".parse().unwrap()), None), "https://h/console");
    }
}
