//! One server and its connection. The connection is opened on first use, and opened again after it broke.

use std::sync::Arc;

use flowcell_contract::Failure;
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{
    connection::Connection,
    failures,
    servers::{Server, ServerKind},
};
use crate::{client::Client, code, secret::Environment};

type Opening = Shared<BoxFuture<'static, Result<Arc<Connection>, Failure>>>;

/// A server, connected or not.
pub(super) struct Link {
    pub(super) server: Arc<Server>,
    pub(super) calls: Semaphore,
    client: Client,
    opening: Mutex<Option<Opening>>,
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
        Link { calls: Semaphore::new(server.max_calls), server, client, opening: Mutex::default() }
    }

    /// Returns the connection, and opens it if necessary. If several callers need it at the same time, it is opened
    /// once for all of them. The opening continues even if all callers stop waiting.
    pub(super) fn connect(&self, environment: &Environment) -> Opening {
        let mut slot = self.opening.lock();
        if let Some(opening) = slot.as_ref().filter(|opening| may_be_usable(opening)) {
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
        slot.insert(opening).clone()
    }

    /// Returns the open connection, if any.
    pub(super) fn open_connection(&self) -> Option<Arc<Connection>> {
        let slot = self.opening.lock();
        slot.as_ref()?.peek()?.as_ref().ok().cloned()
    }
}

fn may_be_usable(opening: &Opening) -> bool {
    opening.peek().is_none_or(|opened| opened.as_ref().is_ok_and(|connection| connection.is_usable()))
}
