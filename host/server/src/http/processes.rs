//! The route that shows the operators this process, its store, and the processes that share it.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
};
use flowcell_platform::{SharedRuns, StoreProcess};

/// Maximum number of processes in an answer.
pub(crate) const MAX_PROCESSES: usize = 100;

/// This process, its store, and the processes that share it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerState {
    /// The version of Flowcell of this process.
    version: &'static str,
    /// The time at which this process started, in milliseconds since 1970.
    started: u64,
    /// The time of this process, in milliseconds since 1970.
    now: u64,
    /// True if this process stops, and takes no new runs.
    stopping: bool,
    store: StoreState,
    /// The processes of a shared store, the latest started first, at most 100. Absent for another store, and while the
    /// server of the store does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<Vec<ProcessView>>,
}

/// The store of this process.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StoreState {
    /// `folder`, or `shared` by several processes.
    kind: &'static str,
    /// False while the server of a shared store does not answer or accepts no writes.
    available: bool,
    /// The error of the present outage of a shared store.
    #[serde(skip_serializing_if = "Option::is_none")]
    outage: Option<String>,
    /// The number of commits of this process.
    commits: u64,
    /// The free room of the disk of a store in a folder, in bytes. Absent for another store.
    #[serde(skip_serializing_if = "Option::is_none")]
    free_bytes: Option<u64>,
    /// The free room that new runs need there, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    least_free_bytes: Option<u64>,
}

/// A process of a shared store.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ProcessView {
    /// The name of the process.
    name: String,
    /// The time that its lease still lasts, in milliseconds. 0: it has ended, or does not answer, and other processes may
    /// take its runs.
    lease_ms: u64,
    /// The number of runs that it holds, without those that they have called.
    runs: u64,
}

impl From<StoreProcess> for ProcessView {
    fn from(process: StoreProcess) -> ProcessView {
        let StoreProcess { name, lease_ms, runs } = process;
        ProcessView { name, lease_ms, runs }
    }
}

/// Show this process, its store, and the processes that share the store
#[utoipa::path(get, path = "/v1/admin/server", tag = "admin", operation_id = "show_server",
    responses((status = 200, body = ServerState), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(request: Request) -> Result<Json<ServerState>, ApiError> {
    let shown = request.blocking(|request| {
        let (app, host) = (&request.app, &request.app.host);
        let shared = host.shared();
        let outage = shared.and_then(SharedRuns::outage);
        let room = host.store().and_then(|store| store.room());
        let store = StoreState {
            kind: if shared.is_some() { "shared" } else { "folder" },
            available: outage.is_none(),
            outage: outage.as_ref().map(ToString::to_string),
            commits: shared.map(SharedRuns::commits).or(host.store().map(|store| store.commits())).unwrap_or(0),
            free_bytes: room.map(|room| room.free),
            least_free_bytes: room.map(|room| room.least),
        };
        // During an outage the rest of the answer is the more important.
        let processes = shared.filter(|_| outage.is_none()).and_then(|shared| match shared.processes(MAX_PROCESSES) {
            Ok(processes) => Some(processes.into_iter().map(ProcessView::from).collect()),
            Err(error) => {
                tracing::warn!("cannot list the processes of the store: {error}");
                None
            }
        });
        let (version, started, now) = (env!("CARGO_PKG_VERSION"), app.fleet.began(), host.now());
        Ok(ServerState { version, started, now, stopping: app.is_draining(), store, processes })
    });
    shown.await.map(Json)
}
