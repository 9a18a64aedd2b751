//! A server that records POST requests.

use serde_json::Value;

use crate::outside::server::{self, Server};

/// A recorded request.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// A server on a free local port until the test ends.
pub(crate) struct Receiver(Server);

impl Receiver {
    /// Starts the server. `answer` receives the number of earlier requests, and returns the rest of the status line.
    pub(crate) fn start(answer: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> Receiver {
        Receiver(Server::start(move |_, before| server::answer(answer(before), &[], "")))
    }

    pub(crate) fn channel(&self) -> String {
        format!("webhook:{}/hook", self.0.origin())
    }

    pub(crate) fn posts(&self) -> Vec<Post> {
        let post = |seen: server::Seen| Post { body: serde_json::from_str(&seen.body).unwrap(), head: seen.head };
        self.0.seen().into_iter().map(post).collect()
    }
}
