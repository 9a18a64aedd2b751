//! Tools of other people's servers, which speak the Model Context Protocol.
//!
//! Which servers there are is the operator's: see [`Servers`]. A server is a program that is started, or an address that is
//! reached over streamable HTTP through the egress guard. It is connected when it is first needed; everybody shares the
//! connection, of every tenant, and it is made again after it broke. A call is never repeated here once it may have arrived.
//!
//! The protocol is that of `rmcp`, the official library: version 2026-07-28, and those before it with a handshake. It is
//! used without its transports. Lines and exchanges are read here, so that every byte passes a limit and the guard, and it
//! brings no HTTP stack, only a dozen small crates. Of the protocol only tools are used. Servers are offered nothing: texts
//! of a model, questions to a person, folders and tasks are refused.
//!
//! A program runs in its own process group with the environment that the configuration names, and nothing else of the
//! host's; it is killed with the connection, and so is what it has started. The [watchdog](crate::watchdog) does so if the host is
//! killed. What it writes to its standard error is logged at the level `debug`.
//!
//! The output of a call is
//!
//! * the structured content if there is any,
//! * the text if there is only text, several blocks joined by a line end,
//! * otherwise the list of blocks: `{ "type": "text", "text" }`, `{ "type": "image" or "audio", "file" }`,
//!   `{ "type": "resource", "uri", "mimeType"?, "text" or "file" }`, and links as they came. A `file` is a file reference.
//!
//! While a tool runs, `agent:tool:progress` tells `{ tool, progress, total?, message? }`, 1,000 times a call at most.
//!
//! | what | limit |
//! |---|---|
//! | servers | [`MAX_SERVERS`] |
//! | line of a program, or of a stream of events | [`MAX_LINE`] |
//! | answer over HTTP | [`MAX_ANSWER`] |
//! | input of a call | [`MAX_INPUT`] |
//! | tools of a server, and pages of their list | [`MAX_TOOLS`], 100 |
//! | description, title and name of a tool | [`MAX_DESCRIPTION`], [`MAX_TITLE`], [`MAX_TOOL_NAME`] |
//! | schema | [`MAX_SCHEMA`] |
//! | time until a server is ready | [`DEFAULT_START_MS`] unless the operator says |
//! | time of a call | the caller's, [`DEFAULT_TIMEOUT_MS`] at most unless the operator says |
//! | calls of a server at once, of all tenants | [`DEFAULT_MAX_CALLS`] unless the operator says; others wait |
//!
//! | code | when | retryable |
//! |---|---|---|
//! | `tool_not_found` | no server has this name, or the name of the tool cannot be one | no |
//! | `invalid_input` | the input is no object or too large, or the server says that it is wrong | no |
//! | `denied` | the address is not public | no |
//! | `mcp_connect` | the server cannot be started, reached or understood; `details.code` may say why | if that may pass |
//! | `mcp_auth` | a key is missing or not accepted | no |
//! | `mcp_timeout` | there was no answer in time; the server was told that nobody waits | yes |
//! | `mcp_broken` | the server or the connection ended in the middle | yes |
//! | `mcp_unavailable` | the server answered 408, 429 or from 500 | yes |
//! | `mcp_protocol`, `mcp_too_large` | the answer is not what the protocol says, or beyond a limit | no |
//! | `mcp_error` | the server refused; `details.mcpCode` is its code | no |
//! | `tool_failed` | the tool says that it failed; the message is its own | no |
//!
//! [`certainly_not_called`] tells after which of them the tool certainly did not run. `[key]` replaces
//! the keys of a server in everything that it says, however it encodes them.

mod answer;
mod child;
mod connection;
mod events;
mod host;
mod http;
mod link;
mod profile;
mod servers;
mod setting;
mod stdio;
mod tool;
mod trouble;
mod watch;

use std::{sync::Arc, time::Duration};

use flowcell_contract::{Blobs, Failure, JSON_VALUES, Json, Progress, Tenant, code as codes};
use indexmap::IndexMap;
use rmcp::model::ServerJsonRpcMessage;
use tokio::time::{Instant, timeout_at};

use self::{answer::Reading, connection::Connection, link::Link};
pub use self::{
    profile::{DEFAULT_MAX_CALLS, DEFAULT_START_MS, DEFAULT_TIMEOUT_MS},
    servers::{MAX_SERVER_NAME, MAX_SERVERS, Servers},
    tool::{MAX_DESCRIPTION, MAX_SCHEMA, MAX_TITLE, MAX_TOOL_NAME, MAX_TOOLS, Tool},
};
pub use crate::secret::Environment;
use crate::{client::Client, code, files::Files, secret};

/// Bytes of a line, at most: a message of a program, or a line of a stream of events.
pub const MAX_LINE: usize = 4 * 1024 * 1024;
/// Bytes of an answer over HTTP, at most.
pub const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Bytes of the input of a call as JSON text, at most.
pub const MAX_INPUT: usize = 4 * 1024 * 1024;

/// Reads a message of a server. `wrong` tells of one that is none.
fn read_message(text: &[u8], wrong: &str) -> Result<ServerJsonRpcMessage, Failure> {
    if Json::has_too_many_values(text) {
        return Err(Failure::new(
            code::MCP_TOO_LARGE,
            format!("a message of the server has more than {JSON_VALUES} values"),
        ));
    }
    serde_json::from_slice(text).map_err(|_| Failure::new(code::MCP_PROTOCOL, wrong))
}

/// The tools of the operator's servers. Clones share their connections, which end with the last of them.
#[derive(Clone)]
pub struct McpTools {
    links: Arc<IndexMap<Arc<str>, Link>>,
    files: Files,
    environment: Environment,
}

impl McpTools {
    /// Connections leave behind the guard of this client; files in answers are kept in these blobs. Nothing is connected yet.
    pub fn new(client: &Client, blobs: Arc<dyn Blobs>, servers: &Servers) -> McpTools {
        let links = servers.iter().map(|server| (server.name.clone(), Link::new(server.clone(), client)));
        McpTools { links: Arc::new(links.collect()), files: Files::new(blobs), environment: secret::environment() }
    }

    /// The same tools, which look variables of the environment up here.
    pub fn with_environment(self, environment: Environment) -> McpTools {
        McpTools { environment, ..self }
    }

    /// The names of the servers, in the order of the configuration.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.links.keys().map(AsRef::as_ref)
    }

    /// Calls of a server at once, and how long one may take; none if there is no such server.
    pub fn places(&self, server: &str) -> Option<(usize, Duration)> {
        self.links.get(server).map(|link| (link.server.max_calls, link.server.timeout))
    }

    /// The tools of a server, in its order. They are remembered until it says that they changed, or as long as it says that
    /// they count. It takes the time of a start at most, and again that of a call.
    pub async fn list(&self, server: &str) -> Result<Vec<Tool>, Failure> {
        let link = self.link(server)?;
        let connection = link.connected(&self.environment).await.map_err(|failure| told(server, failure))?;
        let within = link.server.timeout;
        let listed = tokio::time::timeout(within, connection.tools()).await.unwrap_or_else(|_| Err(too_slow(within)));
        listed.map(|tools| tools.to_vec()).map_err(|failure| told(server, failure))
    }

    /// Whether calling a tool twice is as good as once, as far as the server has said so.
    pub fn may_be_repeated(&self, server: &str, tool: &str) -> bool {
        let listed = self.links.get(server).and_then(|link| link.made()?.listed());
        let hint = |tool: &Tool, hint: &str| tool.annotations.get(hint).and_then(Json::as_bool) == Some(true);
        listed.is_some_and(|tools| {
            let tool = tools.iter().find(|known| *known.name == *tool);
            tool.is_some_and(|tool| hint(tool, "readOnlyHint") || hint(tool, "idempotentHint"))
        })
    }

    /// Calls a tool of a server, with an input that is an object, and answers its output. Files belong to the tenant. It ends
    /// within `timeout`, and within the time that the operator allows the server.
    pub async fn call(
        &self,
        tenant: &Tenant,
        server: &str,
        tool: &str,
        input: Json,
        timeout: Duration,
        progress: Progress,
    ) -> Result<Json, Failure> {
        let link = self.link(server)?;
        let input = checked(server, tool, &input)?;
        let within = timeout.min(link.server.timeout);
        let until = Instant::now() + within;
        let ready = async {
            // Calls wait for their turn before the connection: it may break meanwhile.
            let turn = link.calls.acquire().await.ok();
            link.connected(&self.environment).await.map(|connection| (turn, connection))
        };
        let not_ready = |_| Err(Failure::retryable(code::MCP_CONNECT, "the server was not ready for the call in time"));
        let (_turn, connection) =
            timeout_at(until, ready).await.unwrap_or_else(not_ready).map_err(|failure| told(server, failure))?;
        let telling = connection::telling(server, tool, progress);
        let ended = timeout_at(until, self.perform(&connection, tenant, tool, input, telling)).await;
        ended.unwrap_or_else(|_| Err(too_slow(within))).map_err(|failure| told(server, failure))
    }

    async fn perform(
        &self,
        connection: &Connection,
        tenant: &Tenant,
        tool: &str,
        input: serde_json::Map<String, serde_json::Value>,
        telling: watch::Telling,
    ) -> Result<Json, Failure> {
        let result = connection.call(tool, input, telling).await?;
        Reading { files: &self.files, tenant, redaction: connection.redaction() }.output(result).await
    }

    fn link(&self, server: &str) -> Result<&Link, Failure> {
        self.links.get(server).ok_or_else(|| {
            let names: Vec<&str> = self.servers().collect();
            let known = match names.is_empty() {
                true => "the operator has none".to_owned(),
                false => format!("there is `{}`", names.join("`, `")),
            };
            Failure::new(codes::TOOL_NOT_FOUND, format!("there is no MCP server of this name; {known}"))
        })
    }
}

/// Whether a failure of [`McpTools::call`] means that the tool certainly did not run.
pub fn certainly_not_called(failure: &Failure) -> bool {
    matches!(
        failure.code.as_str(),
        codes::DENIED | codes::INVALID_INPUT | codes::TOOL_NOT_FOUND | code::MCP_CONNECT | code::MCP_AUTH
    )
}

fn checked(server: &str, tool: &str, input: &Json) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
    if !tool::is_name(tool) {
        return Err(Failure::new(codes::TOOL_NOT_FOUND, format!("no tool of `{server}` can have this name")));
    }
    if input.to_text().len() > MAX_INPUT {
        return Err(Failure::new(codes::INVALID_INPUT, format!("the input is larger than {MAX_INPUT} bytes")));
    }
    connection::arguments(input)
        .ok_or_else(|| Failure::new(codes::INVALID_INPUT, format!("the input is an object, not {}", input.type_name())))
}

fn too_slow(within: Duration) -> Failure {
    Failure::retryable(code::MCP_TIMEOUT, format!("there was no answer within {} ms", within.as_millis()))
}

/// A failure that tells whose it is. What a tool says for itself stays as it is.
fn told(server: &str, failure: Failure) -> Failure {
    match failure.code == code::TOOL_FAILED {
        true => failure,
        false => Failure { message: format!("{server}: {}", failure.message), ..failure },
    }
}
