//! `flowcell credential connect`: a person authorizes the host in a browser, and the authorization server sends a code to
//! this process on a port of this machine (RFC 8252).

use std::time::Duration;

use clap::Args;
use flowcell::{
    credentials::{Edition, OAuth2Settings, Settings},
    pkce,
    tenants::operation::{
        Operation,
        credential::{Consent, CredentialOperation},
    },
    vault::Hidden,
};

use crate::{
    cli_error::{CliError, Exit},
    commands::login::in_runtime,
    duration,
    options::{PackArgs, TenantArgs},
    output::put_json,
    owner::operate_with,
    remote::loopback::{Loopback, Pages},
    terminal::Terminal,
};

const PAGES: Pages = Pages {
    allowed: ("Allowed", "The credential is being connected. You can close this page."),
    refused: ("Not allowed", "The access was not allowed. The terminal shows the reason."),
};

/// Arguments of `flowcell credential connect`.
#[derive(Args)]
pub(crate) struct ConnectArgs {
    /// The name of the credential
    name: String,
    /// The port of this machine to which the browser returns; the redirect address of the client is
    /// `http://127.0.0.1:PORT/callback` [default: a free port]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// The time for which the command waits for the consent, such as `5m`
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "5m")]
    timeout: Duration,
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    of: TenantArgs,
}

pub(super) fn execute(args: ConnectArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let ConnectArgs { name, port, timeout, packs, of } = args;
    let operate = |request: CredentialOperation| {
        operate_with(&packs, Operation::Credential { tenant: of.tenant.clone(), request }, &of.store)
    };
    let shown = operate(CredentialOperation::Show { name: name.clone() })?;
    let settings = oauth2_settings(&shown, &name)?;
    let number = |member: &str| shown.get(member).and_then(flowcell::Json::as_u64);
    let edition = number("created").zip(number("version")).map(|(created, version)| Edition { created, version });
    let Settings::OAuth2(settings) = settings else {
        return Err(CliError::wrong(format!("the credential `{name}` is not of the kind `oauth2`")));
    };
    let consent = in_runtime(by_browser(&name, &settings, port, timeout, terminal))?;
    let consent = Consent { edition, ..consent };
    put_json(&operate(CredentialOperation::Connect { name, consent })?)?;
    Ok(Exit::Good)
}

/// Reads the settings of a shown credential.
fn oauth2_settings(shown: &flowcell::Json, name: &str) -> Result<Settings, CliError> {
    let mut members = shown.to_serde().as_object().cloned().unwrap_or_default();
    let kind = members.remove("kind").and_then(|kind| Some(kind.as_str()?.to_owned())).unwrap_or_default();
    for other in ["name", "for", "version", "created", "updated", "token"] {
        members.remove(other);
    }
    Settings::parse(&kind, members).map_err(|why| CliError::wrong(format!("the credential `{name}`: {why}")))
}

/// Lets a person authorize the client with a browser.
async fn by_browser(
    name: &str,
    settings: &OAuth2Settings,
    port: u16,
    time: Duration,
    terminal: Terminal,
) -> Result<Consent, CliError> {
    let listening = Loopback::open(port).await;
    let loopback = listening.map_err(|error| CliError::wrong("cannot listen on this machine").because(&error))?;
    let (redirect_uri, verifier) = (loopback.address(), pkce::random());
    let at = settings.authorize_at(&redirect_uri, &loopback.state, &pkce::challenge_of(&verifier));
    let at = at.map_err(|why| CliError::wrong(format!("`{name}`: {why}")))?;
    terminal.say(&format!("Open this address in a browser, and allow the access:\n\n{at}\n"));
    match loopback.wait(time, &PAGES).await {
        Some(Ok(code)) => Ok(Consent { code, verifier: Hidden::from(verifier), redirect_uri, edition: None }),
        Some(Err(error)) => Err(CliError::wrong(format!("the authorization server refused: {error}"))),
        None => Err(CliError::wrong("no consent came in time").hint("give the command again, or a longer `--timeout`")),
    }
}
