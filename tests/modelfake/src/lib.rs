//! A strict server that speaks as providers of language models do, for tests.
//!
//! It speaks Anthropic Messages (`/v1/messages`), Chat Completions (`/v1/chat/completions`) and Responses (`/v1/responses`) on
//! one port of this machine, plays a [`Scenario`], and refuses what the real ones refuse. What no turn of the scenario expects
//! is answered 500 and noted as a failure. `GET /__fake/requests` shows what came, without secrets, and what was billed.
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

/// The languages that the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Messages,
    Chat,
    Responses,
}

/// A server that runs until it is dropped.
pub struct Fake {
    address: SocketAddr,
    journal: Arc<Mutex<Journal>>,
    accepting: AbortHandle,
}

impl Fake {
    /// Starts a server on a free port of this machine. The scenario is an object as [`Scenario`] describes it; a wrong one is
    /// an error of the kind `InvalidInput`.
    pub async fn start(scenario: Value) -> io::Result<Fake> {
        Fake::start_on("127.0.0.1:0", scenario).await
    }

    /// Starts a server on this address.
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests that came, in their order.
    pub fn requests(&self) -> Vec<Recorded> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }

    /// What a real provider would have billed.
    pub fn billing(&self) -> Billing {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).billing
    }

    /// Requests that no turn expected.
    pub fn failures(&self) -> Vec<String> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).failures.clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
