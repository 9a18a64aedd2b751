//! A server of tools that refuses what the protocol does not allow, and breaks it when it is told to.
//!
//! Over standard input and output it is [`stdio::serve`], over streamable HTTP [`http::Fake`]. What it does is chosen by the
//! name of the tool that is called, and by [`Plan`].
//!
//! | tool | what happens |
//! |---|---|
//! | `echo` | answers its `text` |
//! | `structured` | answers structured content beside a text |
//! | `mixed` | answers a text, an image, an audio, a resource of each kind, and a link |
//! | `progress` | tells of progress three times, then answers |
//! | `fail` | says that it failed, and why |
//! | `refuse` | an error of the protocol's, with the `code` of its input |
//! | `change` | has one more tool from now on, says so, and answers |
//! | `cancelled` | answers the numbers of the calls that were given up |
//! | `ask` | asks for folders, a model and a person, and answers what came back (standard input and output only) |
//! | `environment` | answers the names of the variables that it has |
//! | `slow` | nothing |
//! | `crash` | ends, or breaks the connection |
//! | `huge` | answers with `size` bytes |
//! | `values` | answers with `count` empty lists |
//! | `wrong-id` | answers another call |
//! | `garbage` | what is no message |
//! | `bad-file` | an image that is not base64 |
//! | `input`, `task` | asks for more input, or answers a task |

pub mod http;
mod session;
pub mod stdio;
mod tools;

use serde::{Deserialize, Serialize};

/// How a server behaves, whatever is called.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Plan {
    /// It speaks the version without a handshake.
    pub modern: bool,
    /// Tools of one page; 0 is all of them.
    pub page: usize,
    /// What is wrong with the list of tools.
    pub list: List,
    /// It ends before it says anything.
    pub stillborn: bool,
    /// It never says anything.
    pub mute: bool,
    /// HTTP: answers are JSON instead of streams.
    pub json: bool,
    /// HTTP: the value of `authorization` that is expected.
    pub authorization: Option<String>,
    /// HTTP: the status of every call of a tool.
    pub status: Option<u16>,
}

/// What is wrong with a list of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum List {
    /// Nothing.
    #[default]
    Fine,
    /// There are 1,001.
    Many,
    /// Schemas that are small as texts and large in memory.
    Costly,
    /// After each page there is another.
    Endless,
    /// Names are not allowed or come twice, texts and schemas are too large.
    Hostile,
    /// It is no list.
    Nonsense,
    /// It never comes.
    Silent,
}

/// What a server does with a message.
#[derive(Clone, Debug)]
pub(crate) enum Doing {
    /// It sends a message.
    Send(serde_json::Value),
    /// It sends bytes that are none.
    Raw(Vec<u8>),
    /// It ends.
    Crash,
    /// It waits for ever.
    Hang,
}
