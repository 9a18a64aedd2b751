//! A server that takes posts.

use serde_json::Value;

use crate::server::{self, Server};

/// One post, as it came.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// Listens on a free port of this machine until the test ends.
pub(crate) struct Receiver(Server);

impl Receiver {
    /// `answer` gets how many posts came before, and gives the rest of a status line.
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
