//! The state that a connection and its transport share. Messages update the state in the order of their arrival.

use std::{
    collections::HashMap,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use flowcell_contract::{Failure, Json, Progress};
use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ProgressNotificationParam, ProgressToken, RequestId, ServerJsonRpcMessage, ServerNotification,
};

use super::setting::said;
use crate::{code, redaction::Redaction};

/// Maximum progress reports of one call.
const MAX_PROGRESS: u32 = 1_000;
/// Maximum number of requests from a server that the host has not yet answered.
pub(super) const MAX_OWED: u64 = 100;
/// The event type of a tool's progress.
const PROGRESS_EVENT: &str = "agent:tool:progress";

/// State that a connection and its transport share.
#[derive(Default)]
pub(super) struct Watch {
    pub(super) redaction: Redaction,
    /// Number of times that the server reported changed tools.
    changes: AtomicU64,
    /// Number of the server's requests whose answers are not sent yet.
    owed: AtomicU64,
    telling: Mutex<HashMap<ProgressToken, ProgressReport>>,
    failures: Mutex<HashMap<RequestId, Failure>>,
    ending: OnceLock<Failure>,
}

/// A call whose progress is reported.
pub(super) struct ProgressReport {
    tool: String,
    progress: Progress,
    left: u32,
}

impl ProgressReport {
    pub(super) fn new(tool: String, progress: Progress) -> ProgressReport {
        ProgressReport { tool, progress, left: MAX_PROGRESS }
    }
}

impl Watch {
    pub(super) fn new(redaction: Redaction) -> Watch {
        Watch { redaction, ..Watch::default() }
    }

    /// Handles an incoming message before the library does. Fails if more than [`MAX_OWED`] requests of the server have
    /// no answer yet: if a server does not read the answers, they stay in memory.
    pub(super) fn see(&self, message: &ServerJsonRpcMessage) -> Result<(), Failure> {
        let notification = match message {
            ServerJsonRpcMessage::Notification(notification) => &notification.notification,
            ServerJsonRpcMessage::Request(_) if self.owed.fetch_add(1, Ordering::AcqRel) >= MAX_OWED => {
                let message = format!("the server asked more than {MAX_OWED} questions at a time");
                let failure = Failure::new(code::MCP_PROTOCOL, message);
                self.end(failure.clone());
                return Err(failure);
            }
            _ => return Ok(()),
        };
        match notification {
            ServerNotification::ToolListChangedNotification(_) => {
                self.changes.fetch_add(1, Ordering::AcqRel);
            }
            ServerNotification::ProgressNotification(notification) => self.tell(&notification.params),
            _ => {}
        }
        Ok(())
    }

    /// Handles a message of the host after it was sent, or could not be sent.
    pub(super) fn sent(&self, message: &ClientJsonRpcMessage) {
        if matches!(message, ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_)) {
            // An answer to an uncounted request, such as one before the connection was opened, does not reduce the
            // count.
            let less = |owed: u64| owed.checked_sub(1);
            let _ = self.owed.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
    }

    fn tell(&self, params: &ProgressNotificationParam) {
        let mut calls = self.telling.lock();
        let Some(call) = calls.get_mut(&params.progress_token).filter(|call| call.left > 0) else { return };
        call.left -= 1;
        let number = |number: f64| Json::from(serde_json::Value::from(number));
        let mut members = vec![("tool", Json::from(call.tool.as_str())), ("progress", number(params.progress))];
        members.extend(params.total.map(|total| ("total", number(total))));
        let message = params.message.as_deref().map(|message| said(&self.redaction, message));
        members.extend(message.map(|message| ("message", Json::from(message))));
        call.progress.tell(PROGRESS_EVENT, Json::object(members));
    }

    /// Returns the number of times that the server reported changed tools.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn begin(&self, token: ProgressToken, telling: ProgressReport) {
        self.telling.lock().insert(token, telling);
    }

    pub(super) fn finish(&self, token: &ProgressToken, id: &RequestId) {
        self.telling.lock().remove(token);
        self.failures.lock().remove(id);
    }

    /// Stores the reason that a request has no answer.
    pub(super) fn failed(&self, id: RequestId, failure: Failure) {
        self.failures.lock().insert(id, failure);
    }

    /// Returns the reason that a request has no answer.
    pub(super) fn failure(&self, id: &RequestId) -> Option<Failure> {
        self.failures.lock().get(id).cloned()
    }

    /// Marks the connection as unusable. Only the first reason is stored.
    pub(super) fn end(&self, failure: Failure) {
        self.ending.get_or_init(|| failure);
    }

    /// Returns the reason that the connection is unusable, if it is.
    pub(super) fn ending(&self) -> Option<&Failure> {
        self.ending.get()
    }
}
