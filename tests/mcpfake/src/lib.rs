//! A test server of MCP tools. It refuses every message that violates the protocol. On request it violates the protocol
//! itself.
//!
//! Use [`stdio::serve`] for standard input and output, and [`http::Fake`] for streamable HTTP. The name of the called
//! tool and the [`Plan`] decide its behaviour.
//!
//! | tool | behaviour |
//! |---|---|
//! | `echo` | answers its `text` |
//! | `structured` | answers structured content and a text |
//! | `mixed` | answers a text, an image, an audio, a resource of each kind, and a link |
//! | `progress` | reports progress three times, then answers |
//! | `fail` | answers that it failed, with the reason |
//! | `refuse` | answers a protocol error with the `code` of its input |
//! | `change` | adds a tool to the list, sends a notification, and answers |
//! | `cancelled` | answers the ids of the cancelled calls |
//! | `ask` | asks the client for folders, a model and a person, and answers the replies (stdio only) |
//! | `questions` | sends 100,000 requests to the client, then answers |
//! | `environment` | answers its environment variables |
//! | `slow` | never answers |
//! | `crash` | ends the process, or breaks the connection |
//! | `huge` | answers with `size` bytes |
//! | `values` | answers with `count` empty lists |
//! | `wrong-id` | sends an answer with the id of another call |
//! | `garbage` | sends bytes that are not a message |
//! | `bad-file` | answers an image that is not base64 |
//! | `input`, `task` | asks for more input, or answers a task |

pub mod http;
mod session;
pub mod stdio;
mod tools;

use serde::{Deserialize, Serialize};

/// The server's behaviour, apart from the called tool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Plan {
    /// True if the server speaks the newer protocol version, which has no handshake.
    pub modern: bool,
    /// The number of tools on one page of the list. 0: all tools.
    pub page: usize,
    /// The fault of the tool list.
    pub list: List,
    /// True if the server's process ends before it sends anything.
    pub stillborn: bool,
    /// True if the server never sends anything.
    pub mute: bool,
    /// HTTP only: true if answers are JSON instead of event streams.
    pub json: bool,
    /// HTTP only: the value of the header `authorization` that each request must have. `None`: any value, or none.
    pub authorization: Option<String>,
    /// HTTP only: the status with which the server answers each tool call, instead of a result.
    pub status: Option<u16>,
}

/// The fault of a tool list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum List {
    /// The list has no fault.
    #[default]
    Fine,
    /// The list has 1,001 tools.
    Many,
    /// The schemas are small as text and large in memory.
    Costly,
    /// Every page says that another one follows.
    Endless,
    /// The list has tools with forbidden and repeated names, and with texts and schemas that are too large.
    Hostile,
    /// The answer is not a list.
    Nonsense,
    /// The list never arrives.
    Silent,
}

/// The server's reaction to a message.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    /// Sends this message.
    Send(serde_json::Value),
    /// Sends bytes that are not a message.
    Raw(Vec<u8>),
    /// Ends the process, or breaks the connection.
    Crash,
    /// Never answers.
    Hang,
}
