//! The MCP servers that an operator configures, checked.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flowcell_contract::{Failure, Json, code, yaml_error};
use hyper::header::HeaderName;
use indexmap::IndexMap;

use super::{profile::Profile, setting::Setting};
use crate::egress::{AddressRange, OriginGrants};

/// Maximum servers of a configuration.
pub const MAX_SERVERS: usize = 64;
/// Maximum characters of a server's name.
pub const MAX_SERVER_NAME: usize = 64;
/// Maximum of a configured time limit of a call or a start: one hour.
const MAX_TIMEOUT_MS: u64 = 3_600_000;
/// Maximum of `maxCalls` in a configuration.
const MAX_CALLS: usize = 256;
/// Headers that a configuration must not set, because the transfer or the protocol sets them.
const RESERVED_HEADERS: [&str; 12] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// MCP servers by name, as the operator configures them.
///
/// ```yaml
/// files:
///   command: npx
///   args: [-y, "@modelcontextprotocol/server-filesystem", ./papers]
///   env: [PATH, HOME]
/// tickets:
///   url: https://tickets.example.com/mcp
///   headers: { Authorization: { keyEnv: TICKETS_TOKEN } }
/// ```
///
/// | member | meaning | default |
/// |---|---|---|
/// | `command` | a program that speaks the protocol on its standard input and output; found in the host's `PATH` | this or `url` |
/// | `args` | the program's arguments | none |
/// | `env` | the program's whole environment: a list of the host's variables to pass on, or `{ NAME: setting }` | empty |
/// | `cwd` | the program's working folder, relative to the configuration's folder | the configuration's |
/// | `url` | the URL of a server that speaks streamable HTTP, `https://` or `http://` | this or `command` |
/// | `headers` | `{ NAME: setting }`, sent with every message | none |
/// | `allowPrivate` | private addresses that the server may connect to, such as `127.0.0.1:3001` | none |
/// | `timeoutMs` | maximum milliseconds for a call, 1 to 3,600,000 | 300,000 |
/// | `startMs` | milliseconds until the server is ready for the first call, 1 to 3,600,000 | 30,000 |
/// | `maxCalls` | concurrent calls of all tenants, 1 to 256; further calls wait. On a Flowcell server with tenants, a tenant with calls in progress gets another one only if it then has no more calls than permits are still free | 16 |
///
/// A setting is a string, or `{ keyEnv }` or `{ keyFile }` with an optional `prefix`. A setting with `keyEnv` or
/// `keyFile` is a secret: the host reads it whenever it connects, and redacts it in the server's output. The prefix of
/// `Authorization` defaults to `Bearer `. Names have at most 64 letters, digits, `_`, `-` and `.`. A configuration has
/// at most 64 servers.
#[derive(Clone, Debug, Default)]
pub struct Servers(Arc<IndexMap<Arc<str>, Arc<Server>>>);

/// A checked server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: Arc<str>,
    pub(super) kind: ServerKind,
    pub(super) timeout: Duration,
    pub(super) start: Duration,
    pub(super) max_calls: usize,
}

/// The kind of a server: a program to start, or an address to send to.
#[derive(Debug)]
pub(super) enum ServerKind {
    Program(Program),
    Address(Address),
}

/// A program to start.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) environment: Vec<(String, Setting)>,
    pub(super) folder: PathBuf,
}

/// An address to send to.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) url: String,
    pub(super) origin: OriginGrants,
    pub(super) private: Vec<AddressRange>,
    pub(super) headers: Vec<(HeaderName, Setting)>,
}

impl Servers {
    /// Reads a configuration in YAML or JSON. Relative paths start at `folder`. Starts no program and reads no secret.
    /// An error is `invalid_input` and names the wrong member.
    pub fn parse(text: &str, folder: &Path) -> Result<Servers, Failure> {
        let wrong = |why: String| Failure::new(code::INVALID_INPUT, format!("mcp: {why}"));
        let json: Json = serde_yaml::from_str(text).map_err(|error| wrong(yaml_error(&error)))?;
        Servers::read(&json, folder)
    }

    /// Reads a configuration that is parsed already, with the same rules. `null` means no servers.
    pub fn read(json: &Json, folder: &Path) -> Result<Servers, Failure> {
        let wrong = |why: String| Failure::new(code::INVALID_INPUT, format!("mcp{why}"));
        if json.is_null() {
            return Ok(Servers::default());
        }
        let members =
            json.as_object().ok_or_else(|| wrong(format!(": must be an object, not {}", json.type_name())))?;
        if members.len() > MAX_SERVERS {
            return Err(wrong(format!(": more than {MAX_SERVERS} servers")));
        }
        let servers = members.iter().map(|(name, json)| {
            let server = Server::read(name, json, folder).map_err(|why| wrong(format!(".{name}: {why}")))?;
            Ok((name.clone(), Arc::new(server)))
        });
        Ok(Servers(Arc::new(servers.collect::<Result<_, Failure>>()?)))
    }

    /// Returns the names of the servers, in the order of the configuration.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(AsRef::as_ref)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.0.values()
    }
}

impl Server {
    fn read(name: &Arc<str>, json: &Json, folder: &Path) -> Result<Server, String> {
        check_name(name)?;
        let profile: Profile = serde_path_to_error::deserialize(json.to_serde())
            .map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
        for (member, value) in [("timeoutMs", profile.timeout_ms), ("startMs", profile.start_ms)] {
            if !(1..=MAX_TIMEOUT_MS).contains(&value) {
                return Err(format!("{member} must be 1 to {MAX_TIMEOUT_MS}"));
            }
        }
        if !(1..=MAX_CALLS).contains(&profile.max_calls) {
            return Err(format!("maxCalls must be 1 to {MAX_CALLS}"));
        }
        Ok(Server {
            name: name.clone(),
            timeout: Duration::from_millis(profile.timeout_ms),
            start: Duration::from_millis(profile.start_ms),
            max_calls: profile.max_calls,
            kind: kind(profile, folder)?,
        })
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    match (1..=MAX_SERVER_NAME).contains(&name.len()) && name.bytes().all(plain) {
        true => Ok(()),
        false => {
            Err(format!("a name may have only letters, digits, `_`, `-` and `.`, at most {MAX_SERVER_NAME} characters"))
        }
    }
}

fn kind(profile: Profile, folder: &Path) -> Result<ServerKind, String> {
    match (&profile.command, &profile.url) {
        (Some(_), None) => program(profile, folder).map(ServerKind::Program),
        (None, Some(_)) => address(profile, folder).map(ServerKind::Address),
        (None, None) => Err("`command` or `url` is missing".into()),
        (Some(_), Some(_)) => Err("use either `command` or `url`, not both".into()),
    }
}

fn program(profile: Profile, folder: &Path) -> Result<Program, String> {
    if !profile.headers.is_empty() || !profile.allow_private.is_empty() {
        return Err("`headers` and `allowPrivate` are not allowed with `command`".into());
    }
    let command = profile.command.filter(|command| !command.is_empty()).ok_or("`command` is empty")?;
    if command.contains('\0') || profile.args.iter().any(|argument| argument.contains('\0')) {
        return Err("`command` and `args` must not contain NUL".into());
    }
    let environment = Setting::environment(&profile.env, folder)?;
    let folder = profile.cwd.map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
    Ok(Program { command, args: profile.args, environment, folder })
}

fn address(profile: Profile, folder: &Path) -> Result<Address, String> {
    if !profile.args.is_empty() || !profile.env.is_null() || profile.cwd.is_some() {
        return Err("`args`, `env` and `cwd` are not allowed with `url`".into());
    }
    let url = profile.url.unwrap_or_default();
    let grant = url.split(['?', '#']).next().unwrap_or_default().parse().map_err(|why| format!("url: {why}"))?;
    let private = profile.allow_private.iter().map(|range| range.parse().map_err(|why| format!("allowPrivate: {why}")));
    let headers = profile.headers.iter().map(|(name, json)| header(name, json, folder));
    Ok(Address {
        url,
        origin: OriginGrants::from_iter([grant]),
        private: private.collect::<Result<_, String>>()?,
        headers: headers.collect::<Result<_, String>>()?,
    })
}

fn header(name: &str, json: &Json, folder: &Path) -> Result<(HeaderName, Setting), String> {
    let parsed =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("headers: `{name}` is not a valid header"))?;
    if RESERVED_HEADERS.contains(&parsed.as_str()) {
        return Err(format!("headers: the host sets `{name}`"));
    }
    let prefix = if parsed == hyper::header::AUTHORIZATION { "Bearer " } else { "" };
    Ok((parsed, Setting::read(json, &format!("headers.{name}"), prefix, folder)?))
}
