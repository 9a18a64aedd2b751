//! A connection to a server, and the requests over it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{Failure, Json, Progress};
use hyper::HeaderMap;
use parking_lot::Mutex;
use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientRequest,
        ListToolsRequest, PaginatedRequestParams, ProgressToken, ProtocolVersion, RequestId, ServerResult,
    },
    service::{ClientLifecycleMode, ClientServiceExt as _, Peer, PeerRequestOptions, RunningService},
    transport::{
        StreamableHttpClientTransport, Transport, common::client_side_sse::SseRetryPolicy,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};

use super::{
    child::{self, Child},
    failures,
    host::Host,
    http::HttpTransport,
    servers::{Address, Program, Server, ServerKind},
    stdio::Stdio,
    tool::{self, Tool},
    watch::{ConnectionState, ProgressReport},
};
use crate::{
    client::Client,
    code,
    redaction::{Redaction, SearchBudget},
    secret::Environment,
};

/// Maximum pages of a list of tools.
const MAX_PAGES: usize = 100;
/// Maximum consecutive attempts to reopen a stream.
const MAX_RECONNECTS: usize = 5;
/// First wait before a stream is reopened, unless the server sets one; each later wait is twice the one before.
const FIRST_RECONNECT_WAIT: Duration = Duration::from_secs(1);

/// A connected server. Dropping this closes the connection.
pub(super) struct Connection {
    service: RunningService<RoleClient, Host>,
    state: Arc<ConnectionState>,
    tools: Mutex<Option<CachedTools>>,
    _child: Option<Child>,
}

/// The last list of tools. It is outdated once [`ConnectionState::changes()`] differs from `changes`, the value when
/// the list was requested. It is also outdated after the time `until`, if that is set.
struct CachedTools {
    tools: Arc<[Tool]>,
    changes: u64,
    until: Option<Instant>,
}

impl Connection {
    /// Starts a program or connects to an address, and agrees on a version of the protocol.
    pub(super) async fn open(
        server: &Server,
        client: &Client,
        environment: &Environment,
    ) -> Result<Connection, Failure> {
        match &server.kind {
            ServerKind::Program(program) => Connection::connect_program(server, program, environment).await,
            ServerKind::Address(address) => Connection::connect_address(address, client, environment).await,
        }
    }

    async fn connect_program(
        server: &Server,
        program: &Program,
        environment: &Environment,
    ) -> Result<Connection, Failure> {
        let mut keys = Vec::new();
        let (child, pipes, errors) = child::start(server, program, environment, &mut keys).await?;
        let redaction = Redaction::new(keys, SearchBudget::default());
        tokio::spawn(child::log_errors(server.name.clone(), errors, redaction.clone()));
        let state = Arc::new(ConnectionState::new(redaction));
        Connection::handshake(Stdio::new(pipes, state.clone()), state, Some(child)).await
    }

    async fn connect_address(
        address: &Address,
        client: &Client,
        environment: &Environment,
    ) -> Result<Connection, Failure> {
        let mut keys = Vec::new();
        let mut headers = HeaderMap::new();
        for (name, setting) in &address.headers {
            let value = setting.header(name.as_str(), environment, &mut keys).await?;
            headers.insert(name.clone(), value);
        }
        let state = Arc::new(ConnectionState::new(Redaction::new(keys, SearchBudget::default())));
        let posts = HttpTransport::new(client.clone(), address, headers, state.clone());
        let mut config = StreamableHttpClientTransportConfig::with_uri(&*address.url);
        config.retry_config = Arc::new(ReconnectPolicy);
        Connection::handshake(StreamableHttpClientTransport::with_client(posts, config), state, None).await
    }

    async fn handshake<T>(
        transport: T,
        state: Arc<ConnectionState>,
        child: Option<Child>,
    ) -> Result<Connection, Failure>
    where
        T: Transport<RoleClient> + 'static,
    {
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        let served = Host.serve_with_lifecycle(transport, lifecycle).await;
        match served {
            Ok(service) => Ok(Connection { service, state, tools: Mutex::default(), _child: child }),
            Err(error) => Err(failures::from_start(&error, &state, &state.redaction).await),
        }
    }

    /// Returns true if the connection accepts requests.
    pub(super) fn is_usable(&self) -> bool {
        !self.service.is_closed() && !self.service.peer().is_transport_closed() && self.state.end_reason().is_none()
    }

    /// Returns the redaction of the keys that the server received, with this budget.
    pub(super) fn redaction(&self, budget: SearchBudget) -> Redaction {
        self.state.redaction.with_budget(budget)
    }

    /// Returns the tools. Requests a new list if the server reported a change, or if the cached list has expired.
    pub(super) async fn tools(&self) -> Result<Arc<[Tool]>, Failure> {
        let changes = self.state.changes();
        let known = self.tools.lock().as_ref().and_then(|listed| {
            let fresh = listed.changes == changes && listed.until.is_none_or(|until| Instant::now() < until);
            fresh.then(|| listed.tools.clone())
        });
        match known {
            Some(tools) => Ok(tools),
            None => self.list(changes).await,
        }
    }

    /// Returns the last list of tools, or `None` if none was requested yet.
    pub(super) fn listed(&self) -> Option<Arc<[Tool]>> {
        self.tools.lock().as_ref().map(|listed| listed.tools.clone())
    }

    async fn list(&self, changes: u64) -> Result<Arc<[Tool]>, Failure> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        let redaction = self.redaction(SearchBudget::default());
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ListToolsRequest { params: Some(params), ..ListToolsRequest::default() };
            let ServerResult::ListToolsResult(page) =
                self.send_request(ClientRequest::ListToolsRequest(request), None, &redaction).await?
            else {
                return Err(failures::nonsense());
            };
            let lifetime = page.ttl_ms.map(Duration::from_millis);
            tool::extend(&mut tools, page.tools, &redaction).await?;
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() {
                let tools: Arc<[Tool]> = tools.into();
                self.remember(&tools, changes, lifetime);
                return Ok(tools);
            }
        }
        Err(Failure::new(code::MCP_TOO_LARGE, format!("the list of tools has more than {MAX_PAGES} pages")))
    }

    /// Caches a list of tools; `changes` is the number of reported changes when the list was requested. If the protocol
    /// version of the server has a handshake, the server announces changes, so the list does not expire. A server of a
    /// newer version sends a lifetime; without a lifetime the list expires at once.
    fn remember(&self, tools: &Arc<[Tool]>, changes: u64, lifetime: Option<Duration>) {
        let info = self.service.peer_info();
        let announces_changes = info.is_some_and(|info| info.protocol_version.has_initialize());
        let until = if announces_changes { None } else { Instant::now().checked_add(lifetime.unwrap_or_default()) };
        let listed = CachedTools { tools: tools.clone(), changes, until };
        *self.tools.lock() = Some(listed);
    }

    /// Calls a tool. `redaction` redacts keys in the server's error. Dropping the future sends the server a cancellation.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: serde_json::Map<String, serde_json::Value>,
        report: ProgressReport,
        redaction: &Redaction,
    ) -> Result<CallToolResult, Failure> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        match self.send_request(request, Some(report), redaction).await? {
            ServerResult::CallToolResult(result) => Ok(result),
            ServerResult::InputRequiredResult(_) | ServerResult::CreateTaskResult(_) => {
                let message = "the server requests features that the host does not offer: input from a person or a \
                               model, or a task";
                Err(Failure::new(code::MCP_ERROR, message))
            }
            // A result without any members counts as success without content.
            ServerResult::EmptyResult(_) => Ok(CallToolResult::success(Vec::new())),
            _ => Err(failures::nonsense()),
        }
    }

    async fn send_request(
        &self,
        request: ClientRequest,
        report: Option<ProgressReport>,
        redaction: &Redaction,
    ) -> Result<ServerResult, Failure> {
        let peer = self.service.peer();
        let sent = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
        let handle = match sent {
            Ok(handle) => handle,
            Err(error) => return Err(failures::from_request(error, None, &self.state, redaction).await),
        };
        let (token, id) = (handle.progress_token.clone(), handle.id.clone());
        if let Some(report) = report {
            self.state.start_reports(token.clone(), report);
        }
        let mut open = PendingRequest { peer, state: &self.state, token, id, answered: false };
        let answer = handle.await_response().await;
        open.answered = true;
        match answer {
            Ok(result) => Ok(result),
            Err(error) => Err(failures::from_request(error, Some(&open.id), &self.state, redaction).await),
        }
    }
}

/// A pending request. If it is dropped before the answer, the server gets a cancellation.
struct PendingRequest<'a> {
    peer: &'a Peer<RoleClient>,
    state: &'a ConnectionState,
    token: ProgressToken,
    id: RequestId,
    answered: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.state.forget_request(&self.token, &self.id);
        if !self.answered {
            let params =
                CancelledNotificationParam::new(Some(self.id.clone()), Some("the caller no longer waits".into()));
            let peer = self.peer.clone();
            // No caller waits for the result of the cancellation.
            tokio::spawn(async move { drop(peer.notify_cancelled(params).await) });
        }
    }
}

/// The number and the intervals of attempts to reopen a stream.
#[derive(Debug)]
struct ReconnectPolicy;

impl SseRetryPolicy for ReconnectPolicy {
    fn retry(&self, times: usize) -> Option<Duration> {
        (times < MAX_RECONNECTS).then(|| FIRST_RECONNECT_WAIT * (1 << times))
    }
}

/// Creates the progress reports of a tool call.
pub(super) fn progress_report(server: &str, tool: &str, progress: Progress, redaction: Redaction) -> ProgressReport {
    ProgressReport::new(format!("mcp:{server}/{tool}"), progress, redaction)
}

/// Returns the input of a tool, which must be an object.
pub(super) fn arguments(input: &Json) -> Option<serde_json::Map<String, serde_json::Value>> {
    match input.to_serde() {
        serde_json::Value::Object(members) => Some(members),
        _ => None,
    }
}
