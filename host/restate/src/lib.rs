//! Runs of Flowcell as virtual objects of a Restate cluster.
//!
//! A run tree, that is a top run and the runs below it, is one object with the key `TENANT/RUN`. The cluster lets one
//! invocation at a time drive the tree, moves it to another process when the process dies, and keeps its timers. Each
//! force of the journal is one `ctx.run`, whose value has all facts that are ready.
//!
//! | port | place |
//! |---|---|
//! | journal, leases, inbox, state of flows, timers of parked runs | the cluster |
//! | lists of runs | an index in the store beside the cluster, written after each commit |
//! | documents, blobs, cache, sessions | the store beside the cluster |
//!
//! **The order of a commit.** The driver's entries travel to the handler of the invocation, become the value of one
//! `ctx.run`, and are durable when the cluster answers. The units go from the journal of the invocation to the state of
//! the object when the run rests, and at the latest 50 ms after the first of them, for readers in other processes.
//!
//! **What the store does not do yet**, so callers must refuse it:
//!
//! | part | what happens |
//! |---|---|
//! | sessions of agentic flows | the driver is refused, with an error in the log |
//! | the sweep of blobs | nothing is removed |
//! | the removal of a tenant, checks and copies of the whole store | an error |
//! | an index on a server, shared by processes | [`Beside`] has only the embedded store |
//! | a unit of more than 32 MiB as JSON text | the cluster refuses it |
//!
//! An invocation stays at the URL of the deployment at which it began. Processes of one cluster therefore share one URL,
//! behind a load balancer.
//!
//! | module | content |
//! |---|---|
//! | `location` | the URL |
//! | [`Beside`] | the store beside the cluster |
//! | `client` | requests to the ingress and the admin interface |
//! | `endpoint` | the endpoint of this process, and its registration |
//! | `objects` | the handlers |
//! | `fold` | the heads and units that an invocation has recorded |
//! | `live` | an invocation that drives in this process |
//! | `tree`, `shared` | the trees of this process, claims and offers |
//! | `state` | the state of flows |
//! | `mail` | messages to drivers |
//! | `index` | the index of runs |
//! | `wire` | the JSON texts |
//! | `store` | the ports |

mod beside;
mod client;
mod endpoint;
mod fold;
mod index;
mod live;
mod location;
mod mail;
mod objects;
mod shared;
mod state;
mod store;
mod tree;
mod wire;

use std::{net::SocketAddr, sync::Arc, time::Duration};

pub use beside::Beside;
use flowcell_runtime::shared::SharedRuns;
pub use location::{Location, LocationError};
use tokio::{
    runtime::Runtime,
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use crate::{client::Client, index::Index, shared::Shared};

/// An error of opening a store on a Restate cluster.
#[derive(Debug, thiserror::Error)]
pub enum OpenRestateError {
    /// The URL is wrong.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The endpoint cannot listen at its address.
    #[error("cannot listen for the Restate cluster at {0}: {1}")]
    Listen(SocketAddr, String),
    /// The endpoint would accept requests of other machines without a signature.
    #[error(
        "the endpoint for the Restate cluster may listen at {0} only with the identity key of the cluster; name the key, or \
         use an address of this machine such as 127.0.0.1:9080"
    )]
    Unsigned(SocketAddr),
    /// An identity key is wrong.
    #[error("an identity key of the Restate cluster is wrong: {0}; a key begins with `publickeyv1_`")]
    Key(String),
    /// The cluster does not accept the endpoint.
    #[error("cannot register this process with the Restate cluster: {0}")]
    Register(String),
    /// A thread cannot start.
    #[error("cannot start the threads for the Restate cluster: {0}")]
    Threads(String),
}

/// How this process uses a Restate cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address at which the cluster invokes this process.
    pub listen: SocketAddr,
    /// The URL by which the cluster reaches that address. `None`: `http://` and the address.
    pub advertise: Option<String>,
    /// The public keys of the cluster, which sign its requests. Without a key, only loopback is allowed.
    pub identity_keys: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options { listen: SocketAddr::from(([127, 0, 0, 1], 9_080)), advertise: None, identity_keys: Vec::new() }
    }
}

/// The time that the end of a store waits for its threads.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// A store on a Restate cluster, in the view of one process.
pub struct RestateStore {
    shared: Arc<Shared>,
    beside: Arc<dyn Beside>,
    address: SocketAddr,
    /// Ends the endpoint when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    /// The threads, and the task that serves the endpoint.
    running: Option<(Runtime, JoinHandle<()>)>,
}

impl RestateStore {
    /// Opens the store at a URL: listens for invocations, and registers this process with the cluster if the URL has
    /// the address of the admin interface.
    pub fn open(url: &str, options: &Options, beside: Arc<dyn Beside>) -> Result<RestateStore, OpenRestateError> {
        let location = Location::parse(url)?;
        let threads = |error: std::io::Error| OpenRestateError::Threads(error.to_string());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("flowcell-restate")
            .enable_all()
            .build()
            .map_err(threads)?;
        let (listener, address) = {
            // A listener belongs to a runtime.
            let _entered = runtime.enter();
            endpoint::bind(options)?
        };
        let index = Index::new(beside.clone());
        let shared = Arc::new(Shared::new(Client::new(&location.ingress), index, runtime.handle().clone()));
        let (stop, stopped) = oneshot::channel();
        let serving = endpoint::serve(&shared, options, listener, stopped)?;
        if let Some(admin) = &location.admin {
            let url = options.advertise.clone().unwrap_or_else(|| format!("http://{address}"));
            runtime.block_on(endpoint::register(&Client::new(admin), &url))?;
        }
        Ok(RestateStore { shared, beside, address, stop: Some(stop), running: Some((runtime, serving)) })
    }

    /// Returns the address at which this process listens for invocations.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the signal that a run waits for a supervisor, which gets it from [`SharedRuns::work`].
    pub fn offered(&self) -> Arc<Notify> {
        self.shared.offered.clone()
    }
}

impl Drop for RestateStore {
    fn drop(&mut self) {
        self.retire();
        drop(self.stop.take());
        // Handlers that still wait are invoked again in another process. A runtime may not end in a thread of another one.
        if let Some((runtime, serving)) = self.running.take() {
            let end = move || {
                // Connections that do not end in time are cut.
                let _ = runtime.block_on(async { tokio::time::timeout(END_PATIENCE, serving).await });
                runtime.shutdown_timeout(END_PATIENCE);
            };
            let _ = std::thread::spawn(end).join();
        }
    }
}
