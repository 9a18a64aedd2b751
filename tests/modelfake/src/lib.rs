//! A strict test server that imitates the providers of language models.
//!
//! It speaks Anthropic Messages (`/v1/messages`), Chat Completions (`/v1/chat/completions`) and Responses
//! (`/v1/responses`) on one local port. It plays a [`Scenario`], and refuses the requests that the real servers refuse.
//!
//! If no turn of the scenario expects a request, the server answers 500 and records a failure. `GET /__fake/requests`
//! returns the received requests without secrets, and the bill.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use flowcell_modelfake::Fake;
//! let fake = Fake::start(serde_json::json!({ "turns": [{ "reply": { "text": "hello" } }] })).await.unwrap();
//! assert!(fake.url("/v1").starts_with("http://127.0.0.1:"));
//! # });
//! ```

mod body;
mod check;
mod fault;
mod journal;
mod scenario;
mod server;
mod stream;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use tokio::{net::TcpListener, task::AbortHandle};

use self::{journal::Journal, server::Server};
pub use self::{
    journal::{Billing, Recorded},
    scenario::{Call, Fault, Reply, Scenario, Tokens, Turn},
};

/// A dialect: one of the providers' APIs that the server imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Messages,
    Chat,
    Responses,
}

/// A test server that runs until it is dropped.
pub struct Fake {
    address: SocketAddr,
    journal: Arc<Mutex<Journal>>,
    accepting: AbortHandle,
}

impl Fake {
    /// Starts a server on a free local port. The scenario is an object that [`Scenario`] describes. A wrong scenario is
    /// an error of the kind `InvalidInput`.
    pub async fn start(scenario: Value) -> io::Result<Fake> {
        Fake::start_on("127.0.0.1:0", scenario).await
    }

    /// Starts a server on this IP address and port, such as `127.0.0.1:0`. Port 0 stands for any free port.
    pub async fn start_on(address: &str, scenario: Value) -> io::Result<Fake> {
        let scenario: Scenario =
            serde_json::from_value(scenario).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let journal = Arc::new(Mutex::new(Journal::default()));
        let server = Server::new(scenario, journal.clone());
        let accepting = tokio::spawn(server.accept(listener)).abort_handle();
        Ok(Fake { address, journal, accepting })
    }

    /// Returns the IP address and port on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a path on this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the received requests in order.
    pub fn requests(&self) -> Vec<Recorded> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }

    /// Returns the usage that a real provider would have billed.
    pub fn billing(&self) -> Billing {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).billing
    }

    /// Returns a message for each request that no turn of the scenario expected.
    pub fn failures(&self) -> Vec<String> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).failures.clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
