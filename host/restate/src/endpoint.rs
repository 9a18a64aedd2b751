//! The endpoint at which the cluster invokes the handlers of this process.

use std::{sync::Arc, time::Duration};

use restate_sdk::{
    endpoint::{Builder, Endpoint, HandlerOptions, ServiceOptions},
    http_server::HttpServer,
    service::IntoServiceDefinition,
};
use serde::Serialize;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::oneshot,
    task::JoinHandle,
};

use crate::{
    Location, OpenRestateError,
    client::{Client, RequestError},
    identity,
    objects::{InboxObject, RunObject, StateObject},
    shared::Shared,
};

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;
/// The time that an invocation may do nothing, such as during a call of a model.
const INACTIVITY: Duration = Duration::from_secs(24 * 3_600);
/// The time for which the cluster remembers the start of a run by its id. The object remembers it later.
const IDEMPOTENCY: Duration = Duration::from_secs(600);
/// The number of tries of an invocation: the cluster tries until a process drives the run.
const TRIES: u64 = u32::MAX as u64;
/// The time to wait at the start for the admin interface.
const REGISTER_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Serialize)]
struct Deployment<'a> {
    uri: &'a str,
    force: bool,
}

/// Fails if the endpoint would accept requests from other machines without a signature, or if a key is wrong.
pub(crate) fn check(location: &Location) -> Result<(), OpenRestateError> {
    if !location.listen.ip().is_loopback() && location.keys.is_empty() {
        return Err(OpenRestateError::Unsigned(location.listen));
    }
    with_keys(Endpoint::builder(), location).map(drop)
}

fn with_keys(endpoint: Builder, location: &Location) -> Result<Builder, OpenRestateError> {
    identity::install();
    let wrong = |error: &dyn std::fmt::Display| OpenRestateError::Key(error.to_string());
    location.keys.iter().try_fold(endpoint, |endpoint, key| endpoint.identity_key(key).map_err(|error| wrong(&error)))
}

/// Binds the endpoint.
pub(crate) fn bind(location: &Location) -> Result<TcpListener, OpenRestateError> {
    let failed = |error: std::io::Error| OpenRestateError::Listen(location.listen, error.to_string());
    let socket = if location.listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(failed)?;
    socket.set_reuseaddr(true).map_err(failed)?;
    // Connections inherit this. Without it, a commit waits for the confirmation of the message before it.
    socket.set_nodelay(true).map_err(failed)?;
    socket.bind(location.listen).map_err(failed)?;
    socket.listen(BACKLOG).map_err(failed)
}

/// Serves the handlers until `stop` is resolved or dropped. Then the returned task ends after the present handlers.
pub(crate) fn serve(
    shared: &Arc<Shared>,
    location: &Location,
    listener: TcpListener,
    stop: oneshot::Receiver<()>,
) -> Result<JoinHandle<()>, OpenRestateError> {
    let kept = Duration::ZERO;
    let service = ServiceOptions::new()
        .inactivity_timeout(INACTIVITY)
        .abort_timeout(INACTIVITY)
        .journal_retention(kept)
        .retry_policy_initial_interval(Duration::from_millis(50))
        .retry_policy_exponentiation_factor(2.0)
        .retry_policy_max_interval(Duration::from_secs(2))
        .retry_policy_max_attempts(TRIES)
        .retry_policy_pause_on_max_attempts();
    let drive = HandlerOptions::new().idempotency_retention(IDEMPOTENCY);
    let run = RunObject(shared.clone()).into_service_definition().options(service.clone().handler("drive", drive));
    let inbox = InboxObject.into_service_definition().options(service.clone());
    let state = StateObject.into_service_definition().options(service);
    let endpoint = with_keys(Endpoint::builder().bind(run).bind(inbox).bind(state), location)?;
    let server = HttpServer::new(endpoint.build());
    Ok(shared.runtime.spawn(async move { server.serve_with_cancel(listener, stop).await }))
}

/// Registers the endpoint with the cluster. The cluster knows an endpoint by its URL, so this changes nothing if it is
/// registered already.
pub(crate) async fn register(admin: &Client, url: &str) -> Result<(), OpenRestateError> {
    let register = async |force: bool| {
        let deployment = Deployment { uri: url, force };
        admin.post::<_, serde_json::Value>("/deployments", None, &deployment, REGISTER_PATIENCE).await
    };
    match register(false).await {
        // The services of this version differ from those that the cluster knows at this URL.
        Err(RequestError::Refused { status, .. }) if status == http::StatusCode::CONFLICT => register(true).await,
        registered => registered,
    }
    .map(drop)
    .map_err(|error| OpenRestateError::Register(error.to_string()))
}
