//! The session of one client. It refuses each violation of the protocol.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::{Plan, Reaction, tools};

/// The protocol version with a handshake.
pub(crate) const LEGACY: &str = "2025-11-25";
/// The protocol version without a handshake.
pub(crate) const MODERN: &str = "2026-07-28";

const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// The progress of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Fresh,
    Greeted,
    Ready,
}

/// The server's state for one client.
pub(crate) struct Session {
    pub(crate) plan: Plan,
    phase: Phase,
    ids: HashSet<String>,
    pub(crate) cancelled: Vec<Value>,
    /// True once the tool `change` has added a tool to the list.
    pub(crate) changed: bool,
    /// The number of requested list pages.
    pub(crate) listed: usize,
    /// The names of the called tools, in the order of the calls.
    pub(crate) called: Vec<String>,
    /// The id of a call of the tool `ask` that waits for the client's answers to the requests of the server, and the
    /// answers so far; `None` if no such call waits.
    pub(crate) asking: Option<(Value, Vec<Value>)>,
    /// True once the tool `questions` has sent more requests than a client may answer.
    pub(crate) flooded: bool,
}

impl Session {
    pub(crate) fn new(plan: Plan) -> Session {
        Session {
            plan,
            phase: Phase::Fresh,
            ids: HashSet::new(),
            cancelled: Vec::new(),
            changed: false,
            listed: 0,
            called: Vec::new(),
            asking: None,
            flooded: false,
        }
    }

    /// Handles a message of the client and returns the reactions.
    pub(crate) fn handle(&mut self, message: &Value) -> Vec<Reaction> {
        if self.plan.mute {
            return vec![Reaction::Hang];
        }
        let id = message.get("id").cloned();
        if message["jsonrpc"] != "2.0" {
            return vec![Reaction::Send(error(&id.unwrap_or_default(), INVALID_REQUEST, "jsonrpc is 2.0"))];
        }
        match (message["method"].as_str(), id) {
            (Some(method), Some(id)) => match self.handle_request(method, &id, message) {
                Ok(reactions) => reactions,
                Err((code, why)) => vec![Reaction::Send(error(&id, code, why))],
            },
            (Some(method), None) => self.handle_notification(method, message),
            (None, Some(_)) => self.handle_answer(message),
            (None, None) => vec![Reaction::Crash],
        }
    }

    fn handle_request(
        &mut self,
        method: &str,
        id: &Value,
        message: &Value,
    ) -> Result<Vec<Reaction>, (i64, &'static str)> {
        if !self.ids.insert(id.to_string()) {
            return Err((INVALID_REQUEST, "an id came twice"));
        }
        let params = &message["params"];
        match method {
            "server/discover" if self.plan.modern => {
                check_request_meta(params)?;
                Ok(send(
                    id,
                    json!({ "resultType": "complete", "supportedVersions": [MODERN], "ttlMs": 0,
                    "cacheScope": "private", "capabilities": { "tools": {} } }),
                ))
            }
            "initialize" if !self.plan.modern && self.phase == Phase::Fresh => {
                check_initialize(params)?;
                self.phase = Phase::Greeted;
                let tools = json!({ "tools": { "listChanged": true } });
                let info = json!({ "name": "fake", "version": "0" });
                Ok(send(id, json!({ "protocolVersion": LEGACY, "capabilities": tools, "serverInfo": info })))
            }
            "tools/list" | "tools/call" | "ping" => {
                if self.plan.modern {
                    check_request_meta(params)?;
                } else if self.phase != Phase::Ready {
                    return Err((INVALID_REQUEST, "the handshake is not over"));
                }
                match method {
                    "tools/list" => Ok(tools::list(self, id, params)),
                    "tools/call" => tools::call(self, id, params),
                    _ => Ok(send(id, json!({}))),
                }
            }
            _ => Err((METHOD_NOT_FOUND, "this is not known here, or not now")),
        }
    }

    fn handle_notification(&mut self, method: &str, message: &Value) -> Vec<Reaction> {
        match (method, self.phase) {
            ("notifications/initialized", Phase::Greeted) => self.phase = Phase::Ready,
            ("notifications/cancelled", _) => self.cancelled.push(message["params"]["requestId"].clone()),
            _ => return vec![Reaction::Crash],
        }
        Vec::new()
    }

    /// Handles an answer to a request of the server.
    fn handle_answer(&mut self, message: &Value) -> Vec<Reaction> {
        let Some((id, answers)) = &mut self.asking else {
            return if self.flooded { Vec::new() } else { vec![Reaction::Crash] };
        };
        answers.push(message.clone());
        if answers.len() < tools::CLIENT_REQUESTS.len() {
            return Vec::new();
        }
        let text = Value::from(answers.clone()).to_string();
        let id = id.clone();
        self.asking = None;
        send(&id, tools::text(&text))
    }
}

/// Checks the parameters of `initialize`: they must contain the protocol version and the client's name, and offer no
/// capabilities.
fn check_initialize(params: &Value) -> Result<(), (i64, &'static str)> {
    if params["protocolVersion"] != LEGACY {
        return Err((INVALID_PARAMS, "the version is not known"));
    }
    check_client(&params["capabilities"], &params["clientInfo"])
}

/// Checks the same data as [`check_initialize`] in the protocol version without a handshake, where each request
/// contains the data.
fn check_request_meta(params: &Value) -> Result<(), (i64, &'static str)> {
    let meta = |name: &str| params["_meta"][format!("io.modelcontextprotocol/{name}")].clone();
    if meta("protocolVersion") != MODERN {
        return Err((INVALID_PARAMS, "the version is not said"));
    }
    check_client(&meta("clientCapabilities"), &meta("clientInfo"))
}

fn check_client(capabilities: &Value, info: &Value) -> Result<(), (i64, &'static str)> {
    let offered = ["sampling", "elicitation", "roots", "tasks"].iter().any(|name| capabilities.get(name).is_some());
    match !offered && capabilities.is_object() && info["name"] == "flowcell" && info["version"].is_string() {
        true => Ok(()),
        false => Err((INVALID_PARAMS, "the client is another than expected")),
    }
}

pub(crate) fn send(id: &Value, result: Value) -> Vec<Reaction> {
    vec![Reaction::Send(json!({ "jsonrpc": "2.0", "id": id, "result": result }))]
}

pub(crate) fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}
