//! The endpoint at which the cluster invokes the handlers of this process.

use std::{collections::HashMap, sync::Arc, time::Duration};

use hyper::server::conn::http2;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use restate_sdk::{
    endpoint::{Builder, Endpoint, HandlerOptions, ServiceOptions},
    hyper::HyperEndpoint,
    service::IntoServiceDefinition,
};
use serde::{Deserialize, Serialize};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::{Semaphore, oneshot},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    Location, OpenRestateError,
    client::{Client, RequestError},
    identity,
    objects::{InboxObject, RunObject, StateObject, StoreObject},
    shared::Shared,
    wire::{RUN, STORE, THE_STORE, parse},
};

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;
/// The maximum number of connections. Others wait, because each takes a file descriptor of the process.
const MAX_CONNECTIONS: usize = 256;
/// The maximum number of invocations of one connection at a time. Each run that is driven is one.
const MAX_INVOCATIONS: u32 = 100_000;
/// The pause after an error of accepting a connection, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// The interval at which the endpoint asks a node whether it is there, and the time for the answer. The invocations of a
/// node that is away end here.
const ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));
/// The time that an invocation may do nothing, such as during a call of a model.
const INACTIVITY: Duration = Duration::from_secs(24 * 3_600);
/// The time for which the cluster remembers the start of a run by its id. The object remembers it later.
const IDEMPOTENCY: Duration = Duration::from_secs(600);
/// The number of tries of an invocation: the cluster tries until a process drives the run.
const TRIES: u64 = u32::MAX as u64;
/// The time to wait at the start for the admin interface.
const REGISTER_PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two queries of a cluster that has just started.
const QUERY_PAUSE: Duration = Duration::from_millis(100);

/// A service, as the admin interface shows it.
#[derive(Deserialize)]
struct Service {
    deployment_id: String,
}

/// A deployment, as the admin interface shows it. Those that are not reached over HTTP have no URL.
#[derive(Deserialize)]
struct Registered {
    uri: Option<String>,
}

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
    let state = StateObject.into_service_definition().options(service.clone());
    let store = StoreObject.into_service_definition().options(service);
    let endpoint = with_keys(Endpoint::builder().bind(run).bind(inbox).bind(state).bind(store), location)?;
    Ok(shared.runtime.spawn(accept(listener, HyperEndpoint::new(endpoint.build()), stop)))
}

/// Accepts connections until `stop` is resolved or dropped. Then waits for the present handlers.
async fn accept(listener: TcpListener, endpoint: HyperEndpoint, mut stop: oneshot::Receiver<()>) {
    let (places, open) = (Arc::new(Semaphore::new(MAX_CONNECTIONS)), GracefulShutdown::new());
    let mut server = http2::Builder::new(TokioExecutor::new());
    server.timer(TokioTimer::new()).max_concurrent_streams(MAX_INVOCATIONS);
    server.keep_alive_interval(ALIVE.0).keep_alive_timeout(ALIVE.1);
    let next = async || {
        // The semaphore is never closed.
        let place = places.clone().acquire_owned().await.ok();
        (place, listener.accept().await)
    };
    loop {
        let (place, accepted) = tokio::select! {
            next = next() => next,
            _ = &mut stop => break,
        };
        match accepted {
            Ok((stream, from)) => {
                let serving = open.watch(server.serve_connection(TokioIo::new(stream), endpoint.clone()));
                tokio::spawn(async move {
                    if let Err(error) = serving.await {
                        tracing::debug!("a connection of the Restate cluster from {from} ends: {error}");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection of the Restate cluster, tries again: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    open.shutdown().await;
}

/// The answer to a query of the cluster's state.
#[derive(Deserialize)]
struct Answer {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    value_utf8: String,
}

/// Registers the endpoint with the cluster, unless the cluster belongs to another store. From then on it belongs to this
/// one.
pub(crate) async fn join(admin: &Client, ingress: &Client, url: &str, own: &str) -> Result<(), OpenRestateError> {
    let failed = |error: RequestError| OpenRestateError::Register(error.to_string());
    let check = |owner: String| match owner == own {
        true => Ok(()),
        false => Err(OpenRestateError::OtherStore { owner, own: own.to_owned() }),
    };
    let owner = owner(admin).await.map_err(failed)?;
    let is_free = owner.is_none();
    owner.map_or(Ok(()), check)?;
    register(admin, url).await?;
    if is_free {
        // Of two stores that find the cluster free, one gets it.
        let path = format!("/{STORE}/{THE_STORE}/claim");
        check(ingress.post(&path, None, &own, REGISTER_PATIENCE).await.map_err(failed)?)?;
    }
    Ok(())
}

/// Returns the name of the store to which the cluster belongs. No process needs to be there for that.
async fn owner(admin: &Client) -> Result<Option<String>, RequestError> {
    let query = format!(
        "SELECT value_utf8 FROM state WHERE service_name = '{STORE}' AND service_key = '{THE_STORE}' AND key = 'name'"
    );
    let (body, began) = (HashMap::from([("query", query)]), Instant::now());
    let found: Answer = loop {
        match admin.post("/query", None, &body, REGISTER_PATIENCE).await {
            // A cluster that has just started does not know the places of its state yet.
            Err(RequestError::Refused { status, .. })
                if status.is_server_error() && began.elapsed() < REGISTER_PATIENCE =>
            {
                tokio::time::sleep(QUERY_PAUSE).await;
            }
            found => break found?,
        }
    };
    // A text that is no name belongs to no store.
    Ok(found.rows.into_iter().next().map(|row| parse(&row.value_utf8).unwrap_or(row.value_utf8)))
}

/// Registers the endpoint with the cluster, so that it gets the new invocations. The cluster knows an endpoint by its URL,
/// so this changes nothing if that URL gets them already. If another one got them until now, the log says so.
async fn register(admin: &Client, url: &str) -> Result<(), OpenRestateError> {
    let register = async |force: bool| {
        let deployment = Deployment { uri: url, force };
        admin.post::<_, serde_json::Value>("/deployments", None, &deployment, REGISTER_PATIENCE).await
    };
    let failed = |error: RequestError| OpenRestateError::Register(error.to_string());
    let (before, own) = (present_url(admin).await.map_err(failed)?, url.trim_end_matches('/'));
    match register(false).await {
        // The services of this version differ from those that the cluster knows at this URL.
        Err(RequestError::Refused { status, .. }) if status == http::StatusCode::CONFLICT => {
            tracing::info!("the cluster knows the services of another version at {own}, and takes those of this one");
            register(true).await
        }
        // The cluster knows this URL already, and sends new invocations to one that it has learnt of later.
        Ok(_) if present_url(admin).await.map_err(failed)?.as_deref() != Some(own) => register(true).await,
        registered => registered,
    }
    .map_err(failed)?;
    if let Some(before) = before.filter(|before| before != own) {
        tracing::warn!(
            "the Restate cluster sends new runs to {own} from now on, and no longer to {before}; all processes of a cluster \
             need the same `url`"
        );
    }
    Ok(())
}

/// Returns the URL to which the cluster sends new invocations. `None`: no process was ever registered.
async fn present_url(admin: &Client) -> Result<Option<String>, RequestError> {
    let service: Service = match admin.get(&format!("/services/{RUN}"), REGISTER_PATIENCE).await {
        Err(RequestError::Refused { status, .. }) if status == http::StatusCode::NOT_FOUND => return Ok(None),
        found => found?,
    };
    let found: Registered = admin.get(&format!("/deployments/{}", service.deployment_id), REGISTER_PATIENCE).await?;
    Ok(found.uri.map(|uri| uri.trim_end_matches('/').to_owned()))
}
