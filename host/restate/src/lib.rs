//! Runs of Flowcell as virtual objects of a Restate cluster.
//!
//! A run tree, that is a top run and the runs below it, is one object with the key `TENANT/RUN`. The cluster lets one
//! invocation at a time drive the tree, moves it to another process when the process dies, and keeps its timers. Each
//! force of the journal is one `ctx.run`, whose value has all facts that are ready.
//!
//! | part | place |
//! |---|---|
//! | journal, leases, inbox, state of flows, timers of parked runs | the cluster |
//! | a row of each run for lists, written after each commit that changes it | a PostgreSQL database beside the cluster |
//! | documents, blobs, cache | the database |
//!
//! **The order of a commit.** The driver's entries travel to the handler of the invocation, become the value of one
//! `ctx.run`, and are durable when the cluster answers. The units go from the journal of the invocation to the state of
//! the object when the run rests, and at the latest 250 ms after the first of them, for readers in other processes.
//!
//! **Refused**: sessions of agentic flows, the removal of a tenant, and checks and copies of the whole
//! store. It removes no blobs.
//!
//! All processes of a cluster share one URL, because an invocation stays at the URL of the deployment at which it began.
//! A cluster belongs to one store: its object `FlowcellStore` has the name of the database.
//! The cluster sends an invocation to any process behind the URL. A process that has accepted a run and does not get its
//! invocation stops its driver, and the other process drives the run from its facts.
//!
//! | module | content |
//! |---|---|
//! | `location` | the URL |
//! | `client` | requests to the ingress and the admin interface |
//! | `endpoint`, `identity` | the endpoint of this process, its registration, and the check of signatures |
//! | `objects` | the handlers |
//! | `recorded` | the heads and units that an invocation has recorded |
//! | `invocation` | an invocation that drives in this process |
//! | `tree`, `claims`, `shared` | the trees of this process, claims and offers |
//! | `state` | the state of flows |
//! | `messages` | messages to drivers |
//! | `index` | the rows of runs |
//! | `blobs`, `units` | blobs, and the stored form of units |
//! | `wire` | the JSON texts |
//! | `store` | the ports |

mod blobs;
mod claims;
mod client;
mod endpoint;
mod identity;
mod index;
mod invocation;
mod location;
mod messages;
mod objects;
mod recorded;
mod shared;
mod state;
mod store;
mod tree;
mod units;
mod wire;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use flowcell_contract::Blobs;
use flowcell_runtime::{
    blocking::blocking,
    ports::StoreError,
    shared::SharedRuns,
    sql::{OpenSharedStoreError, SharedStore},
};
pub use location::{Location, LocationError};
use parking_lot::Mutex;
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle};

use crate::{client::Client, shared::Shared};

/// An error of a store on a Restate cluster.
#[derive(Debug, thiserror::Error)]
pub enum OpenRestateError {
    /// The URL is wrong.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The database beside the cluster cannot be used.
    #[error("the database beside the Restate cluster: {0}")]
    Tables(#[from] OpenSharedStoreError),
    /// The endpoint cannot listen at its address.
    #[error(
        "cannot listen for the Restate cluster at {0}: {1}; another process may listen there, and then ask that one, or name \
         another address with `listen=`"
    )]
    Listen(SocketAddr, String),
    /// The endpoint would accept requests of other machines without a signature.
    #[error(
        "the endpoint for the Restate cluster may listen at {0} only with the public key of the cluster; name it with \
         `key=publickeyv1_…`, or listen at an address of this machine such as 127.0.0.1:9080"
    )]
    Unsigned(SocketAddr),
    /// A public key is wrong.
    #[error("a public key of the Restate cluster is wrong: {0}; the log of the cluster shows it at the start")]
    Key(String),
    /// The cluster does not accept the endpoint.
    #[error("cannot register this process with the Restate cluster: {0}")]
    Register(String),
    /// The cluster belongs to another store.
    #[error(
        "the Restate cluster belongs to another store: it knows the database `{owner}`, and this one is `{own}`; use the database \
         of that store, or a cluster of its own; if that store is gone for ever, `restate kv clear FlowcellStore` frees the \
         cluster"
    )]
    OtherStore {
        /// The name of the database to which the cluster belongs.
        owner: String,
        /// The name of this database.
        own: String,
    },
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread cannot start.
    #[error("cannot start the threads for the Restate cluster: {0}")]
    Threads(String),
}

/// The time that the end of a store waits for its threads.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// A store on a Restate cluster, in the view of one process.
pub struct RestateStore {
    shared: Arc<Shared>,
    tables: Arc<SharedStore>,
    location: Location,
    /// The endpoint, once this process drives runs.
    endpoint: Mutex<Option<Served>>,
    runtime: Option<Runtime>,
}

/// A running endpoint.
struct Served {
    /// Ends the endpoint when it is dropped.
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl RestateStore {
    /// Opens the store. `tables` is the database of the location, opened with
    /// [`Journals::Elsewhere`](flowcell_runtime::sql::Journals::Elsewhere). The process gets no invocations before
    /// [`RestateStore::listen`].
    pub fn open(location: Location, tables: Arc<SharedStore>) -> Result<RestateStore, OpenRestateError> {
        endpoint::check(&location)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("flowcell-restate")
            .enable_all()
            .build()
            .map_err(|error| OpenRestateError::Threads(error.to_string()))?;
        let ingress = Client::new(&location.ingress);
        let shared = Arc::new(Shared::new(ingress, &tables, runtime.handle().clone()));
        shared.watch_ingress();
        Ok(RestateStore { shared, tables, location, endpoint: Mutex::default(), runtime: Some(runtime) })
    }

    /// Listens for invocations, and registers this process with the cluster if the URL has the address of the admin
    /// interface. Does nothing if the process listens already.
    pub fn listen(&self) -> Result<(), OpenRestateError> {
        blocking(|| {
            let mut served = self.endpoint.lock();
            if served.is_none() {
                *served = Some(self.serve_endpoint()?);
            }
            Ok(())
        })
    }

    fn serve_endpoint(&self) -> Result<Served, OpenRestateError> {
        let listener = {
            // A listener belongs to a runtime.
            let _entered = self.shared.runtime.enter();
            endpoint::bind(&self.location)?
        };
        let (stop, stopped) = oneshot::channel();
        let serving = endpoint::serve(&self.shared, &self.location, listener, stopped)?;
        if !self.location.admin.is_empty() {
            let url = self.location.url.clone().unwrap_or_else(|| format!("http://{}", self.location.listen));
            let (admin, (answer, answered)) = (Client::new(&self.location.admin), std::sync::mpsc::sync_channel(1));
            let (shared, own) = (self.shared.clone(), self.tables.name()?);
            self.shared.runtime.spawn(async move {
                _ = answer.send(endpoint::join(&admin, &shared.ingress, &url, &own).await);
            });
            let ended = |_| OpenRestateError::Threads("the threads have ended".to_owned());
            answered.recv().map_err(ended)??;
        }
        Ok(Served { stop, serving })
    }

    fn is_listening(&self) -> bool {
        self.endpoint.lock().is_some()
    }

    /// Returns the blobs of the store.
    pub fn blobs(&self) -> Arc<dyn Blobs> {
        self.shared.blobs.clone()
    }

    /// Returns the database beside the cluster.
    pub fn tables(&self) -> &Arc<SharedStore> {
        &self.tables
    }
}

impl Drop for RestateStore {
    fn drop(&mut self) {
        self.retire();
        let served = self.endpoint.lock().take();
        // Handlers that still wait are invoked again in another process. A runtime may not end in a thread of another one.
        if let Some(runtime) = self.runtime.take() {
            let end = move || {
                if let Some(Served { stop, serving }) = served {
                    drop(stop);
                    // Connections that do not end in time are cut.
                    let _ = runtime.block_on(async { tokio::time::timeout(END_PATIENCE, serving).await });
                }
                runtime.shutdown_timeout(END_PATIENCE);
            };
            let _ = std::thread::spawn(end).join();
        }
    }
}
