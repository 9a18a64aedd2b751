//! One server and its connection. The connection is opened on first use, and opened again after it broke. Each tokio
//! runtime opens its own, because a connection breaks when its runtime ends, and that must not fail a call that waits on
//! another runtime.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::Failure;
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tokio::{runtime, sync::Semaphore};

use super::{
    connection::Connection,
    failures,
    servers::{Server, ServerKind},
    tool::Tool,
};
use crate::{client::Client, code, secret::Environment};

type Opening = Shared<BoxFuture<'static, Result<Arc<Connection>, Failure>>>;

/// A server, connected or not.
pub(super) struct Link {
    pub(super) server: Arc<Server>,
    pub(super) calls: Semaphore,
    client: Client,
    /// The connections by the runtimes that drive them.
    openings: Mutex<HashMap<runtime::Id, Opening>>,
}

impl Link {
    pub(super) fn new(server: Arc<Server>, client: &Client) -> Link {
        // Each server may connect to different private addresses. It serves all tenants, so no circuit breaker of one of
        // them may refuse the calls of the others; its limit is `max_calls`.
        let client = match &server.kind {
            ServerKind::Address(address) => {
                Client::new(client.egress().clone().with_private(&address.private).without_outbound())
            }
            ServerKind::Program(_) => client.clone(),
        };
        Link { calls: Semaphore::new(server.max_calls), server, client, openings: Mutex::default() }
    }

    /// Returns the connection of the present runtime, and opens it if necessary. If several callers need it at the same
    /// time, it is opened once for all of them. The opening continues even if all callers stop waiting.
    pub(super) fn connect(&self, environment: &Environment) -> Opening {
        let runtime = runtime::Handle::current().id();
        let mut openings = self.openings.lock();
        // Those of runtimes that have ended are broken, too.
        openings.retain(|_, opening| may_be_usable(opening));
        if let Some(opening) = openings.get(&runtime) {
            return opening.clone();
        }
        let (server, client, environment) = (self.server.clone(), self.client.clone(), environment.clone());
        let task = tokio::spawn(async move {
            let opened = tokio::time::timeout(server.start, Connection::open(&server, &client, &environment)).await;
            match opened {
                Ok(Ok(connection)) => Ok(Arc::new(connection)),
                Ok(Err(failure)) => Err(failures::not_connected(failure)),
                Err(_) => {
                    let message = format!("the server was not ready within {} ms", server.start.as_millis());
                    Err(Failure::retryable(code::MCP_CONNECT, message))
                }
            }
        });
        let gone = |_| Failure::retryable(code::MCP_CONNECT, "the host is shutting down");
        let opening = async move { task.await.map_err(gone)? }.boxed().shared();
        openings.insert(runtime, opening.clone());
        opening
    }

    /// Returns the last list of tools that the host has got over any open connection. `None`: it has got none.
    pub(super) fn listed(&self) -> Option<Arc<[Tool]>> {
        let openings = self.openings.lock();
        openings.values().find_map(|opening| opening.peek()?.as_ref().ok()?.listed())
    }
}

fn may_be_usable(opening: &Opening) -> bool {
    opening.peek().is_none_or(|opened| opened.as_ref().is_ok_and(|connection| connection.is_usable()))
}
