//! `flowcell credential connect`: a person authorizes the host in a browser, and the authorization server sends a code to
//! this process on a port of this machine (RFC 8252).

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use crate::{
    cli_error::{CliError, Exit},
    duration,
    options::{PackArgs, TenantArgs},
    output::put_json,
    owner::operate_with,
    terminal::Terminal,
};
use clap::Args;
use flowcell::{
    credentials::{self, Edition, Pkce, Settings},
    tenants::operation::{
        Operation,
        credential::{Consent, CredentialOperation},
    },
    vault::Hidden,
};

/// The path of the redirect address.
const CALLBACK: &str = "/callback";
/// Maximum bytes of the head of a request of the browser.
const MAX_HEAD: u64 = 16 * 1024;
/// Time for which a connection may be silent.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    let failed = |error: std::io::Error| CliError::wrong("cannot listen on this machine").because(&error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let redirect_uri = format!("http://127.0.0.1:{port}{CALLBACK}");
    let pkce = Pkce::new().ok_or_else(|| CliError::internal("the operating system gives no random values"))?;
    let Settings::OAuth2(settings) = settings else {
        return Err(CliError::wrong(format!("the credential `{name}` is not of the kind `oauth2`")));
    };
    let at = settings.authorize_at(&redirect_uri, &pkce).map_err(|why| CliError::wrong(format!("`{name}`: {why}")))?;
    terminal.say(&format!("Open this address in a browser, and allow the access:\n\n{at}\n"));
    let code = wait_for_code(&listener, &pkce.state, timeout)?;
    let verifier = Hidden::from(pkce.verifier.to_string());
    let consent = Consent { code: Hidden::from(code), verifier, redirect_uri, edition };
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

/// Waits until the browser returns with the code of this authorization. Other requests get an error, and do not end the
/// wait.
fn wait_for_code(listener: &TcpListener, state: &str, timeout: Duration) -> Result<String, CliError> {
    let failed = |error: std::io::Error| CliError::wrong("cannot listen on this machine").because(&error);
    listener.set_nonblocking(true).map_err(failed)?;
    let until = Instant::now() + timeout;
    while Instant::now() < until {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
            Err(error) => return Err(failed(error)),
        };
        // A connection that breaks is not the answer.
        if let Some(answer) = answer(stream, state) {
            return answer;
        }
    }
    Err(CliError::wrong("no consent came in time").hint("give the command again, or a longer `--timeout`"))
}

/// Answers one request. Returns the code, or the refusal of the authorization server; `None` for any other request.
fn answer(stream: TcpStream, state: &str) -> Option<Result<String, CliError>> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(READ_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(READ_TIMEOUT)).ok()?;
    // The whole head is read, or the browser would see a broken connection instead of the answer.
    let lines = BufReader::new(stream.try_clone().ok()?.take(MAX_HEAD)).lines().map_while(Result::ok);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let line = head.first()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    let result = credentials::read_redirect(target, CALLBACK, state);
    let refused = |error: String| CliError::wrong(format!("the authorization server refused: {error}"));
    let result = result.map(|answer| answer.map_err(refused));
    let (status, text) = match &result {
        Some(Ok(_)) => ("200 OK", "The credential is being connected. You can close this page."),
        Some(Err(_)) => ("200 OK", "The access was not allowed. The terminal shows the reason."),
        None => ("400 Bad Request", "This address belongs to another authorization."),
    };
    let head = "content-type: text/plain; charset=utf-8\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n\
                connection: close";
    let mut stream = stream;
    // The browser may have gone; the code counts.
    let _ = write!(stream, "HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    result
}
