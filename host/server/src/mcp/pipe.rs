//! MCP for one client on standard input and output. The client acts for the local user and has all scopes.

use std::{path::PathBuf, sync::Arc};

use flowcell_contract::Tenant;
use flowcell_runtime::{FlowRunner, RunResult, ports::StoreError};
use futures_util::future::BoxFuture;
use rmcp::{serve_server, transport::stdio};
use tokio::task::JoinSet;

use super::{changes::Changes, handler::McpHandler};
use crate::http::{
    app::App,
    broadcast::Broadcasts,
    identity::{Caller, Local, Scopes},
    limits::Limits,
    tenant_directory::TenantDirectory,
};
use flowcell_platform::{
    Host, StartError,
    reload::Reloader,
    supervisor::{AdmissionQueue, AdmissionReceiver, RunObserver, Supervisor},
    triggers::Triggers,
};

/// A pipe has no port, and no browser.
const NO_PORT: u16 = 0;

/// The reason why the service of a client has ended early.
#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    /// The store cannot be read, so no runs can be driven.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server cannot receive the commands of other processes.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The client has not started with the handshake of MCP.
    #[error("the client on standard input does not speak MCP: {0}")]
    Client(String),
}

/// First calls `begun` with the queue for new runs. Then serves the client and drives every run that is ready, until
/// the client disconnects or `stop` is ready.
///
/// At the end, parks the driven runs, so that another process can continue them. Returns an error if the store
/// cannot be read, if the server cannot receive the commands of other processes, or if the client does not speak
/// MCP.
pub async fn serve(
    host: Host,
    flows: PathBuf,
    begun: impl FnOnce(AdmissionQueue),
    stop: impl Future<Output = ()>,
) -> Result<(), PipeError> {
    let broadcasts = Arc::<Broadcasts>::default();
    let host = host.serving(flows.clone());
    let _world = host.serve()?;
    let arrivals = AdmissionReceiver::open();
    let directory = Arc::new(TenantDirectory::new(host.clone(), Arc::new(Local), flows, arrivals.admission()));
    let mut drive = Supervisor::with_arrivals(host, Arc::new(DrivenRuns(broadcasts.clone())), arrivals);
    // This process starts no triggers by itself, but changes of triggers still have to be recorded.
    let triggers = Arc::new(Triggers::new(directory.clone()));
    let reloader = Arc::new(Reloader::new(directory.host.clone()));
    let feeds = (broadcasts, Arc::default());
    let app =
        Arc::new(App::new(directory, triggers, (reloader.clone(), None, None), feeds, &Limits::default(), NO_PORT));
    begun(drive.admission());
    let mut following = JoinSet::new();
    following.spawn(async move { reloader.follow_shared_packs().await });
    let mut client = tokio::spawn(talk(app.clone()));
    let mut stop = std::pin::pin!(stop);
    let served = loop {
        if let Err(error) = drive.refresh() {
            break Err(error.into());
        }
        tokio::select! {
            () = drive.wait() => {}
            left = &mut client => break left.unwrap_or(Ok(())),
            () = &mut stop => break Ok(()),
        }
    };
    app.drain();
    drive.stop().await;
    app.ends.send_replace(true);
    served
}

async fn talk(app: Arc<App>) -> Result<(), PipeError> {
    let changes = Changes::follow(&app, &Tenant::local());
    let caller = Caller { tenant: Tenant::local(), scopes: Scopes::all(), token: None, policy: Arc::default() };
    let handler = McpHandler::new(app, Some(caller), changes);
    let client = serve_server(handler, stdio()).await.map_err(|error| PipeError::Client(error.to_string()))?;
    // An error here only means that the client has disconnected.
    let _ = client.waiting().await;
    Ok(())
}

/// Connects the runs that this process drives to their subscribers.
struct DrivenRuns(Arc<Broadcasts>);

impl RunObserver for DrivenRuns {
    fn attend(&self, tenant: &Tenant, mut runner: FlowRunner) -> Option<BoxFuture<'static, RunResult>> {
        self.0.attach_to(tenant, &mut runner);
        Some(Box::pin(runner.run()))
    }

    fn refused(&self, error: StartError) {
        tracing::warn!("the server cannot drive a run: {error}");
    }
}
