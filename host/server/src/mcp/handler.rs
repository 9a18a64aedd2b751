//! The handler of one client.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CancelledNotificationParam, Extensions, Implementation,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SubscriptionFilter,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};

use super::{
    calls::{Calls, cancel},
    changes::Changes,
    outcome::protocol_error,
    resources, tools,
};
use crate::http::{
    app::{App, Request},
    identity::Caller,
    permit::RequestPermit,
};

/// The instructions that a client gets when it connects.
const INSTRUCTIONS: &str = "Each flow is a tool; a call starts a durable run and returns its outputs. A result with \
                            the status `parked` names the gates that wait: answer them with `flowcell_answer_gate`. \
                            To write a flow, read `flowcell://language`, look up node types with \
                            `flowcell_list_node_types` and `flowcell_describe_node_type`, check the flow with \
                            `flowcell_validate_flow` until no diagnostics are left, and store it with \
                            `flowcell_create_flow`.";

/// Answers the requests of one client.
pub(super) struct McpHandler {
    app: Arc<App>,
    /// The caller of all requests of a local client. Over HTTP it is `None`: each request carries its own caller.
    caller: Option<Caller>,
    changes: Changes,
    calls: Calls,
}

impl McpHandler {
    pub(super) fn new(app: Arc<App>, caller: Option<Caller>, changes: Changes) -> McpHandler {
        McpHandler { app, caller, changes, calls: Calls::default() }
    }

    /// Creates the [`Request`] for one request of the client: the caller, and the host of the caller's tenant with its
    /// current policy. The caller of a local client is fixed; over HTTP the caller is in `extensions`.
    fn request(&self, extensions: &Extensions) -> Result<Request, ErrorData> {
        let shown = || extensions.get::<Parts>()?.extensions.get::<Caller>().cloned();
        let caller = self.caller.clone().or_else(shown);
        let caller = caller.ok_or_else(|| ErrorData::internal_error("the request has no caller", None))?;
        let host = self.app.host_of(&caller);
        let place = extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Arc<RequestPermit>>());
        let place = place.map(Arc::downgrade).unwrap_or_default();
        Ok(Request { app: self.app.clone(), caller, host, place })
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_resources().build();
        let this = Implementation::new("flowcell", env!("CARGO_PKG_VERSION")).with_title("Flowcell");
        ServerConfig::new(capabilities).with_server_info(this).with_instructions(INSTRUCTIONS)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        tokio::spawn(self.changes.clone().notify(context.peer));
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let request = self.request(&context.extensions)?;
        tools::list(request, page.and_then(|page| page.cursor)).await.map_err(|error| protocol_error(&error))
    }

    async fn call_tool(
        &self,
        asked: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let request = self.request(&context.extensions)?;
        let id = context.id.clone();
        self.calls.0.lock().insert(id.clone(), None);
        let answer = tools::call(request, asked, &context, &self.calls).await;
        // A cancelled call ends before `on_cancelled` runs. Its entry stays, since `on_cancelled` looks it up.
        if !context.ct.is_cancelled() {
            self.calls.0.lock().remove(&id);
        }
        answer.map(CallToolResponse::from)
    }

    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, context: NotificationContext<RoleServer>) {
        let Some(id) = cancelled.request_id else { return };
        let Some(Some(run)) = self.calls.0.lock().remove(&id) else { return };
        if let Ok(request) = self.request(&context.extensions) {
            cancel(&request, &run).await;
        }
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(resources::list(&self.request(&context.extensions)?.host))
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        asked: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let request = self.request(&context.extensions)?;
        resources::read(&request.host, &asked.uri).map(ReadResourceResponse::Complete)
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.clone();
        loop {
            let changed = tokio::select! {
                changed = changes.next() => changed,
                () = context.cancelled() => false,
            };
            if !changed || context.sink().notify_tool_list_changed().await.is_err() {
                return Ok(());
            }
        }
    }
}
