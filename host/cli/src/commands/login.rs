//! `flowcell login`, `logout` and `whoami`: a login at a server elsewhere.
//!
//! `login` opens the page of the server in a browser, where the person signs in and agrees, and gets a one-time code on a port of
//! this machine. Or it sends a token of the operator. The server makes a token of the login from either, and only this is stored.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueHint};
use flowcell::{pkce, shape::time, vault::Hidden};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    output::{put_json, put_line},
    remote::{
        Server, ServerAddress, absolute, browser,
        logins::{Logins, StoredLogin},
        loopback::{Loopback, Pages},
        read_file,
    },
    terminal::Terminal,
};

/// Maximum size of a file with a token.
const MAX_TOKEN_BYTES: u64 = 4 << 10;
/// The time for a login, from the link to the answer.
const MAX_WAIT: Duration = Duration::from_secs(600);
const PAGES: Pages = Pages {
    allowed: ("Logged in", "Go back to the command. You can close this page."),
    refused: ("Not logged in", "The login was refused. You can close this page."),
};

/// Arguments of `flowcell login`.
#[derive(Args)]
pub(crate) struct LoginArgs {
    /// The address of the server, such as https://flows.example.com
    #[arg(value_name = "URL")]
    server: ServerAddress,
    /// Log in with the token in this file instead of a browser; `-` is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// The scopes of the login, separated by commas; by default all of the person
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', conflicts_with = "token_file")]
    scopes: Vec<String>,
    /// Only print the link, and open no browser
    #[arg(long, conflicts_with = "token_file")]
    no_browser: bool,
    /// A file with the PEM certificates of private issuers of certificates, for this server
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    ca_file: Option<PathBuf>,
}

/// Arguments of `flowcell logout`.
#[derive(Args)]
pub(crate) struct LogoutArgs {
    /// The address of the server; by default that of the only login
    #[arg(value_name = "URL", env = "FLOWCELL_SERVER")]
    server: Option<ServerAddress>,
    /// Remove the login from this machine also if the server cannot revoke its token
    #[arg(long)]
    forget: bool,
}

/// A server to talk with.
#[derive(Args, Clone)]
pub(crate) struct ServerArgs {
    /// The address of the server; by default that of the only login
    #[arg(long, value_name = "URL", env = "FLOWCELL_SERVER")]
    server: Option<ServerAddress>,
}

/// Arguments of `flowcell whoami`.
#[derive(Args)]
pub(crate) struct WhoamiArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the whole answer of the server as JSON
    #[arg(long)]
    json: bool,
}

/// Runs requests on this thread.
pub(super) fn in_runtime<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CliError::internal("cannot start the runtime").because(&error))?.block_on(work)
}

impl ServerArgs {
    /// Returns the server with the token of the stored login. A named server without a login is used without a token.
    pub(super) fn connect(&self, terminal: Terminal) -> Result<Server, CliError> {
        connect(self.server.as_ref(), terminal)
    }
}

/// Returns a server with the token of its stored login.
pub(super) fn connect(named: Option<&ServerAddress>, terminal: Terminal) -> Result<Server, CliError> {
    let login = match named {
        Some(address) => match Logins::of_user()?.find(address)? {
            Some(login) => login,
            None => return Server::new(address.clone(), None, None, terminal),
        },
        None => only_login()?,
    };
    Server::new(login.address()?, login.ca_file.as_deref(), Some(login.token), terminal)
}

fn only_login() -> Result<StoredLogin, CliError> {
    let mut all = Logins::of_user()?.all()?;
    match all.len() {
        0 => Err(CliError::wrong("no login at a server is stored").hint("log in: `flowcell login URL`")),
        1 => Ok(all.remove(0)),
        _ => {
            let problem = CliError::wrong("there are logins at several servers, so the command needs `--server URL`");
            Err(all.iter().fold(problem, |problem, login| problem.note(login.server.clone())))
        }
    }
}

pub(super) fn login(args: &LoginArgs, terminal: Terminal) -> Result<Exit, CliError> {
    // The folder is checked before the person signs in.
    let logins = Logins::of_user()?;
    let earlier = logins.find(&args.server)?;
    let server = Server::new(args.server.clone(), args.ca_file.as_deref(), None, terminal)?;
    let me = in_runtime(async {
        require_tokens(&server).await?;
        let proof = match &args.token_file {
            Some(file) => json!({ "proof": read_token(file)?.text() }),
            None => by_browser(&server.address, args, terminal).await?,
        };
        let made = server.ask(Method::POST, "/v1/login-tokens", Some(&proof)).await?;
        let made = made.map_err(|refused| match refused.status {
            StatusCode::UNAUTHORIZED => CliError::wrong(format!("{} did not accept the login", server.address))
                .cause(&refused.message)
                .hint("a token may have ended or be revoked, and a code works once and for two minutes; log in again"),
            _ => refused.error(&server.address),
        })?;
        let token = Hidden::from(made["token"].as_str().ok_or_else(|| server.stranger())?.to_owned());
        let server = server.with_token(token.clone());
        let me = who(&server).await?;
        let stored = StoredLogin {
            server: server.address.to_string(),
            token,
            expires: me["token"]["expires"].as_u64(),
            ca_file: args.ca_file.as_deref().map(absolute),
        };
        if let Err(problem) = logins.put(&server.address, &stored) {
            // The token is not stored, so the command does not leave it valid.
            drop(server.ask(Method::POST, "/v1/logout", None).await);
            return Err(problem);
        }
        if let Some(earlier) = earlier {
            let server = server.with_token(earlier.token);
            drop(server.ask(Method::POST, "/v1/logout", None).await);
        }
        Ok(me)
    })?;
    terminal.say(&format!("logged in at {} as {}", args.server, described(&me)));
    Ok(Exit::Good)
}

/// Fails if a server needs no login, or is none of Flowcell.
async fn require_tokens(server: &Server) -> Result<(), CliError> {
    match server.ask(Method::GET, "/v1/me", None).await? {
        Ok(me) if me["local"] == true => Err(CliError::wrong(format!(
            "{} requires no tokens, so it needs no login",
            server.address
        ))
        .hint(format!("name it with `--server {}`, or set FLOWCELL_SERVER", shell_word(&server.address.to_string())))),
        Ok(_) => Err(server.stranger()),
        Err(refused) if refused.code == "unauthorized" => Ok(()),
        Err(refused) if refused.code.is_empty() => Err(server.stranger()),
        Err(refused) => Err(refused.error(&server.address)),
    }
}

/// Reads a token. Removes the line end.
fn read_token(file: &Path) -> Result<Hidden, CliError> {
    let bytes = match file.as_os_str() == "-" {
        true => {
            let mut bytes = Vec::new();
            let read = io::stdin().take(MAX_TOKEN_BYTES).read_to_end(&mut bytes);
            read.map_err(|error| CliError::wrong("cannot read standard input").because(&error))?;
            bytes
        }
        false => read_file(file, MAX_TOKEN_BYTES)?,
    };
    let text = String::from_utf8(bytes).map(Hidden::from);
    let text = text.map_err(|_| CliError::wrong(format!("{} is not UTF-8 text", file.display())))?;
    match text.text().trim() {
        "" => Err(CliError::wrong(format!("{} has no token", file.display()))),
        token => Ok(Hidden::from(token.to_owned())),
    }
}

/// Lets a person sign in with a browser. Returns the proof.
async fn by_browser(address: &ServerAddress, args: &LoginArgs, terminal: Terminal) -> Result<Value, CliError> {
    let listening = Loopback::open(0).await;
    let loopback = listening.map_err(|error| {
        CliError::internal("cannot listen on a port of this machine for the browser")
            .because(&error)
            .hint("log in with a token: `--token-file`")
    })?;
    let verifier = pkce::random();
    let (port, state, challenge) = (loopback.port(), &loopback.state, pkce::challenge_of(&verifier));
    let scopes = if args.scopes.is_empty() { String::new() } else { format!("&scopes={}", args.scopes.join(",")) };
    let path = format!("/console/login/command?port={port}&state={state}&challenge={challenge}{scopes}");
    let link = address.url(&path).map_err(CliError::wrong)?;
    terminal.say("open this link in a browser on this machine, sign in, and allow the login:");
    terminal.say(link.as_str());
    if !args.no_browser {
        browser::open(link.as_str(), terminal);
    }
    match loopback.wait(MAX_WAIT, &PAGES).await {
        Some(Ok(code)) => Ok(json!({ "proof": code.text(), "verifier": verifier })),
        Some(Err(_)) => Err(CliError::wrong("the login was refused in the browser")),
        None => Err(CliError::wrong("no browser has answered for 10 minutes")
            .hint("on a machine without a browser, log in with a token: `--token-file`")),
    }
}

/// Asks a server who the caller is.
async fn who(server: &Server) -> Result<Value, CliError> {
    server.ask(Method::GET, "/v1/me", None).await?.map_err(|refused| refused.error(&server.address))
}

/// Describes a caller: its account or token, its tenant, and its end.
fn described(me: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let token = text(&me["token"]["name"]).or_else(|| Some(format!("token {}", text(&me["token"]["id"])?)));
    let token = token.unwrap_or_else(|| "a caller of its own machine".to_owned());
    let of = text(&me["tenant"]).map_or("the operators".to_owned(), |tenant| format!("tenant {tenant}"));
    let until = me["token"]["expires"].as_u64().map(|expires| format!(", until {}", time(expires)));
    format!("{token} of {of}{}", until.unwrap_or_default())
}

pub(super) fn logout(args: &LogoutArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let logins = Logins::of_user()?;
    let found = match &args.server {
        Some(address) if args.forget => logins.find(address).unwrap_or(None),
        Some(address) => logins.find(address)?,
        None => Some(only_login()?),
    };
    let address = match (&args.server, &found) {
        (Some(address), _) => address.clone(),
        (None, Some(login)) => login.address()?,
        (None, None) => return Err(CliError::wrong("no login at a server is stored")),
    };
    let revoked = match found {
        Some(login) => revoke(&address, login, terminal),
        None if args.forget => Ok(()),
        None => return Err(CliError::wrong(format!("no login at {address} is stored"))),
    };
    match revoked {
        Err(problem) if !args.forget => {
            return Err(
                problem.hint("with `--forget` the login leaves this machine, and its token stays valid to its end")
            );
        }
        Err(problem) => terminal.warn(&format!("the token stays valid to its end: {}", problem.plain())),
        Ok(()) => {}
    }
    logins.remove(&address)?;
    terminal.say(&format!("logged out at {address}"));
    Ok(Exit::Good)
}

fn revoke(address: &ServerAddress, login: StoredLogin, terminal: Terminal) -> Result<(), CliError> {
    let server = Server::new(address.clone(), login.ca_file.as_deref(), Some(login.token), terminal)?;
    // A token that is not valid any more needs no revocation, and gets the same answer.
    let left = in_runtime(server.ask(Method::POST, "/v1/logout", None))?;
    left.map(drop).map_err(|refused| refused.error(address))
}

pub(super) fn whoami(args: &WhoamiArgs, terminal: Terminal) -> Result<Exit, CliError> {
    let server = args.server.connect(terminal)?;
    let me = in_runtime(who(&server))?;
    if args.json {
        put_json(&me)?;
        return Ok(Exit::Good);
    }
    let scopes = me["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    put_line(&format!("{}: {}", server.address, described(&me)))?;
    put_line(&format!("scopes: {scopes}"))?;
    if let Some(warning) = me["token"]["warning"].as_str() {
        terminal.say(&format!("the login {warning}"));
    }
    Ok(Exit::Good)
}
