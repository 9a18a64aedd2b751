//! The parts that all clones of a host share.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use flowcell_contract::{Capability, Digest};
use flowcell_engine::{Engine, FairSemaphore};
use flowcell_runtime::{
    Hubs, LiveRuns,
    ports::{Blobs, CacheStore, DocumentStore, Erase, Inbox, Journal, Leases, Sessions, StateStore, Sweep, Timers},
    shared::SharedRuns,
    sqlite::SqliteStore,
};
use flowcell_services::{egress::Egress, mcp::McpTools, secrets::Secrets};
use parking_lot::Mutex;

use super::{
    checked::{CheckedFlows, pinned_flows::PinnedFlows},
    home::Home,
    job_signals::JobSignals,
    known_pack::KnownPack,
    node_types::NodeTypes,
    watched::Watched,
};
use crate::{
    observe::{metrics::Metrics, observed::Observers, relay::LiveRelay, telemetry::Telemetry},
    operate::{usage::Usage, vault::Vault},
    posted::cache::PostedCache,
    world::services::Settings,
};

/// The parts that all clones of a host share.
pub(super) struct Shared {
    pub(super) engine: Engine,
    pub(super) node_types: NodeTypes,
    pub(super) journal: Arc<dyn Journal>,
    pub(super) timers: Arc<dyn Timers>,
    pub(super) leases: Arc<dyn Leases>,
    pub(super) state: Arc<dyn StateStore>,
    pub(super) cache: Arc<dyn CacheStore>,
    pub(super) blobs: Arc<dyn Blobs>,
    pub(super) sessions: Arc<dyn Sessions>,
    pub(super) documents: Arc<dyn DocumentStore>,
    pub(super) inbox: Arc<dyn Inbox>,
    pub(super) sweep: Arc<dyn Sweep>,
    pub(super) erase: Arc<dyn Erase>,
    /// The operator's folder with the files of nodes.
    pub(super) files: Option<PathBuf>,
    pub(super) metrics: Metrics,
    pub(super) telemetry: Option<Telemetry>,
    pub(super) observers: Observers,
    pub(super) usage: Usage,
    pub(super) capabilities: Arc<HashMap<Arc<str>, Arc<dyn Capability>>>,
    /// The tools of the operator's MCP servers.
    pub(super) mcp: McpTools,
    /// The stand-in that answers simulated calls of models.
    pub(super) simulated_model: Arc<dyn Capability>,
    pub(super) services: Settings,
    /// The home of the flows that implement services.
    pub(super) services_home: Arc<Home>,
    pub(super) hubs: Arc<Hubs>,
    /// The runs that this host drives, with their live permits.
    pub(super) live: Arc<LiveRuns>,
    /// The runs that other processes watch.
    pub(super) watched: Watched,
    pub(super) egress: Egress,
    /// The secrets of all tenants, from the vault and from the operator's file.
    pub(super) secrets: Secrets,
    pub(super) vault: Arc<Vault>,
    /// The store, if this process owns one.
    pub(super) store: Option<Arc<SqliteStore>>,
    /// The shared store. `None` if the store is not shared.
    pub(super) shared: Option<Arc<dyn SharedRuns>>,
    /// The relay of live events, from its first use on. `None` if the store has no notifications.
    pub(super) relay: OnceLock<Option<Arc<LiveRelay>>>,
    pub(super) checked: CheckedFlows,
    pub(super) pinned: PinnedFlows,
    /// Limits concurrent checks of inputs against schemas.
    pub(super) inputs: FairSemaphore,
    /// Limits concurrent evaluations of costly expressions, and the runs that evaluate one or wait to do so.
    pub(super) expressions: FairSemaphore,
    pub(super) waiting_expressions: FairSemaphore,
    pub(super) jobs: JobSignals,
    /// The packs that runs can pin.
    pub(super) packs: Mutex<HashMap<Digest, KnownPack>>,
    /// The posted flows of all tenants. `None` if the store is not shared.
    pub(super) posted: Option<Arc<PostedCache>>,
}
