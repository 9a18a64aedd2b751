//! Tools of external servers that speak the Model Context Protocol (MCP).
//!
//! The operator configures the servers: see [`Servers`]. A server is a program that the host starts, or an address that
//! it reaches over streamable HTTP through the egress guard. The host connects on first use. All callers of all tenants on
//! a tokio runtime share the connection, and a broken one is replaced. The host never repeats a call that may have arrived.
//!
//! The protocol is that of `rmcp`, the official library: version 2026-07-28, and earlier ones with a handshake. The
//! host does not use the library's transports. The host itself reads the lines and the HTTP answers, so that every byte
//! counts against a limit and every connection passes the egress guard. Without its transports the library brings only
//! a dozen small crates, and no HTTP stack. The host uses only the tools of the protocol. It offers nothing to servers:
//! it refuses sampling, elicitation, roots and tasks.
//!
//! A program runs in its own process group. Its environment has only the variables that the configuration names.
//! The host kills the program and all processes that it started when the connection is dropped: a broken
//! connection once a new one replaces it, an intact one with the last clone of [`McpTools`]. If the host itself
//! is killed, the [watchdog](crate::watchdog) kills them. The standard error of a program is logged at the level
//! `debug`.
//!
//! The output of a call is
//!
//! * the structured content if the result has any,
//! * the text if the result has only text, several blocks joined by a line end,
//! * otherwise the list of blocks: `{ "type": "text", "text" }`, `{ "type": "image" or "audio", "file" }`,
//!   `{ "type": "resource", "uri", "mimeType"?, "text" or "file" }`, and unchanged links. A `file` is a file reference.
//!
//! While a tool runs, `agent:tool:progress` reports `{ tool, progress, total?, message? }`, at most 1,000 times per
//! call.
//!
//! | subject | limit |
//! |---|---|
//! | servers | [`MAX_SERVERS`] |
//! | line of a program, or of a stream of events | [`MAX_LINE`] |
//! | answer over HTTP | [`MAX_ANSWER`] |
//! | input of a call | [`MAX_INPUT`] |
//! | tools of a server, and pages of their list | [`MAX_TOOLS`], 100 |
//! | description, title and name of a tool | [`MAX_DESCRIPTION`], [`MAX_TITLE`], [`MAX_TOOL_NAME`] |
//! | schema | [`MAX_SCHEMA`] |
//! | time until a server is ready | [`DEFAULT_START_MS`] unless configured |
//! | time of a call | the caller's limit, at most the server's: `timeoutMs`, by default [`DEFAULT_TIMEOUT_MS`] |
//! | concurrent calls of a server, of all tenants | [`DEFAULT_MAX_CALLS`] unless configured; further calls wait |
//!
//! | code | when | retryable |
//! |---|---|---|
//! | `tool_not_found` | no server has this name, or the tool's name is invalid | no |
//! | `invalid_input` | the input is not an object, is too large, or the server rejects it | no |
//! | `denied` | the address is not public | no |
//! | `mcp_connect` | the server cannot be started, reached or understood; `details.code` may give the reason | if the reason is transient |
//! | `mcp_auth` | a key is missing or rejected | no |
//! | `mcp_timeout` | no answer arrived in time; the host sent the server a cancellation | yes |
//! | `mcp_broken` | the server or the connection ended during the call | yes |
//! | `mcp_unavailable` | the server answered 408, 429 or from 500 | yes |
//! | `mcp_protocol`, `mcp_too_large` | the answer violates the protocol or exceeds a limit | no |
//! | `mcp_error` | the server refused; `details.mcpCode` is its code | no |
//! | `tool_failed` | the tool reports a failure; the message is its own | no |
//!
//! [`certainly_not_called`] returns true for the failures after which the tool certainly did not run. `[key]` replaces
//! the keys of a server in all its output, in all encodings that the host knows.

mod answer;
mod child;
mod connection;
mod events;
mod failures;
mod host;
mod http;
mod link;
mod profile;
mod servers;
mod setting;
mod stdio;
mod tool;
mod watch;

use std::{sync::Arc, time::Duration};

use flowcell_contract::{Blobs, Failure, JSON_VALUES, Json, Progress, Tenant, code as codes};
use indexmap::IndexMap;
use rmcp::model::ServerJsonRpcMessage;
use tokio::time::{Instant, timeout_at};

use self::{answer::ResultReader, connection::Connection, link::Link};
pub use self::{
    profile::{DEFAULT_MAX_CALLS, DEFAULT_START_MS, DEFAULT_TIMEOUT_MS},
    servers::{MAX_SERVER_NAME, MAX_SERVERS, Servers},
    tool::{MAX_DESCRIPTION, MAX_SCHEMA, MAX_TITLE, MAX_TOOL_NAME, MAX_TOOLS, Tool},
};
pub use crate::secret::Environment;
use crate::{client::Client, code, files::AsyncBlobs, redaction::SearchBudget, secret};

/// Maximum bytes of a line: a message of a program, or a line of a stream of events.
pub const MAX_LINE: usize = 4 * 1024 * 1024;
/// Maximum bytes of an answer over HTTP.
pub const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Maximum bytes of a call's input as JSON.
pub const MAX_INPUT: usize = 4 * 1024 * 1024;

/// Parses a message of a server. `wrong` is the error for text that is not a message.
fn read_message(text: &[u8], wrong: &str) -> Result<ServerJsonRpcMessage, Failure> {
    if Json::has_too_many_values(text) {
        return Err(Failure::new(
            code::MCP_TOO_LARGE,
            format!("a message of the server has more than {JSON_VALUES} values"),
        ));
    }
    serde_json::from_slice(text).map_err(|_| Failure::new(code::MCP_PROTOCOL, wrong))
}

/// The tools of the operator's servers. Clones share the connections to the servers, which close with the last clone.
#[derive(Clone)]
pub struct McpTools {
    links: Arc<IndexMap<Arc<str>, Link>>,
    files: AsyncBlobs,
    environment: Environment,
}

impl McpTools {
    /// Creates the tools, without connecting. Connections pass the egress guard of `client`; `blobs` stores the files
    /// in answers.
    pub fn new(client: &Client, blobs: Arc<dyn Blobs>, servers: &Servers) -> McpTools {
        let links = servers.iter().map(|server| (server.name.clone(), Link::new(server.clone(), client)));
        McpTools { links: Arc::new(links.collect()), files: AsyncBlobs::new(blobs), environment: secret::environment() }
    }

    /// Returns the same tools, for which `environment` replaces the environment of this process.
    pub fn with_environment(self, environment: Environment) -> McpTools {
        McpTools { environment, ..self }
    }

    /// Returns the names of the servers, in the order of the configuration.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.links.keys().map(AsRef::as_ref)
    }

    /// Returns a server's limits: concurrent calls, and the time of one call. `None` if the server does not exist.
    pub fn limits(&self, server: &str) -> Option<(usize, Duration)> {
        self.links.get(server).map(|link| (link.server.max_calls, link.server.timeout))
    }

    /// Returns the tools of a server, in the server's order. The list is cached until the server reports a change or
    /// the list expires. The server has one time limit to become ready and another one to send the list; if it exceeds
    /// one of them, the request fails.
    pub async fn list(&self, server: &str) -> Result<Vec<Tool>, Failure> {
        let link = self.link(server)?;
        let connection = link.connect(&self.environment).await.map_err(|failure| with_server_name(server, failure))?;
        let within = link.server.timeout;
        let listed =
            tokio::time::timeout(within, connection.tools()).await.unwrap_or_else(|_| Err(timeout_failure(within)));
        listed.map(|tools| tools.to_vec()).map_err(|failure| with_server_name(server, failure))
    }

    /// Returns true if the server's last list of tools declares that repeated calls of a tool are harmless. Returns
    /// false if the list does not, or if the host has no list yet.
    pub fn may_be_repeated(&self, server: &str, tool: &str) -> bool {
        let listed = self.links.get(server).and_then(Link::listed);
        let hint = |tool: &Tool, hint: &str| tool.annotations.get(hint).and_then(Json::as_bool) == Some(true);
        listed.is_some_and(|tools| {
            let tool = tools.iter().find(|known| *known.name == *tool);
            tool.is_some_and(|tool| hint(tool, "readOnlyHint") || hint(tool, "idempotentHint"))
        })
    }

    /// Calls a tool with an object as its input, and returns the tool's output. Files in the output belong to `tenant`.
    /// The call takes at most `timeout`, and at most the server's configured limit.
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
        let input = check_call(server, tool, &input)?;
        let within = timeout.min(link.server.timeout);
        let until = Instant::now() + within;
        let ready = async {
            // The call waits for a permit before it connects, because the connection may break during the wait.
            let turn = link.calls.acquire().await.ok();
            link.connect(&self.environment).await.map(|connection| (turn, connection))
        };
        let not_ready = |_| Err(Failure::retryable(code::MCP_CONNECT, "the server was not ready for the call in time"));
        let (_turn, connection) = timeout_at(until, ready)
            .await
            .unwrap_or_else(not_ready)
            .map_err(|failure| with_server_name(server, failure))?;
        let reported = connection.redaction(SearchBudget::for_stream(tenant));
        let report = connection::progress_report(server, tool, progress, reported);
        let ended = timeout_at(until, self.perform(&connection, tenant, tool, input, report)).await;
        ended.unwrap_or_else(|_| Err(timeout_failure(within))).map_err(|failure| with_server_name(server, failure))
    }

    async fn perform(
        &self,
        connection: &Connection,
        tenant: &Tenant,
        tool: &str,
        input: serde_json::Map<String, serde_json::Value>,
        report: watch::ProgressReport,
    ) -> Result<Json, Failure> {
        let redaction = connection.redaction(SearchBudget::for_call(tenant));
        let result = connection.call(tool, input, report, &redaction).await?;
        ResultReader { files: &self.files, tenant, redaction: &redaction }.output(result).await
    }

    fn link(&self, server: &str) -> Result<&Link, Failure> {
        self.links.get(server).ok_or_else(|| {
            let names: Vec<&str> = self.servers().collect();
            let known = match names.is_empty() {
                true => "the operator has configured none".to_owned(),
                false => format!("the servers are `{}`", names.join("`, `")),
            };
            Failure::new(codes::TOOL_NOT_FOUND, format!("no MCP server has this name; {known}"))
        })
    }
}

/// Returns true if a failure of [`McpTools::call`] means that the tool certainly did not run.
pub fn certainly_not_called(failure: &Failure) -> bool {
    matches!(
        failure.code.as_str(),
        codes::DENIED
            | codes::INVALID_INPUT
            | codes::TOOL_NOT_FOUND
            | code::MCP_CONNECT
            | code::MCP_AUTH
            | code::CIRCUIT_OPEN
            | code::RATE_LIMITED
    )
}

fn check_call(server: &str, tool: &str, input: &Json) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
    if !tool::is_name(tool) {
        return Err(Failure::new(codes::TOOL_NOT_FOUND, format!("this cannot be the name of a tool of `{server}`")));
    }
    if input.to_text().len() > MAX_INPUT {
        return Err(Failure::new(codes::INVALID_INPUT, format!("the input is larger than {MAX_INPUT} bytes")));
    }
    connection::arguments(input).ok_or_else(|| {
        Failure::new(codes::INVALID_INPUT, format!("the input must be an object, not {}", input.type_name()))
    })
}

fn timeout_failure(within: Duration) -> Failure {
    Failure::retryable(code::MCP_TIMEOUT, format!("the server did not answer within {} ms", within.as_millis()))
}

/// Adds the server's name to a failure. The message of a failed tool stays unchanged.
fn with_server_name(server: &str, failure: Failure) -> Failure {
    match failure.code == code::TOOL_FAILED {
        true => failure,
        false => Failure { message: format!("{server}: {}", failure.message), ..failure },
    }
}
