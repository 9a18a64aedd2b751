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

use super::setting::one_line;
use crate::{code, redaction::Redaction};

/// Maximum progress reports of one call.
const MAX_PROGRESS: u32 = 1_000;
/// Maximum number of requests from a server that the host has not yet answered.
pub(super) const MAX_UNANSWERED: u64 = 100;
/// The event type of a tool's progress.
const PROGRESS_EVENT: &str = "agent:tool:progress";

/// State that a connection and its transport share.
#[derive(Default)]
pub(super) struct ConnectionState {
    pub(super) redaction: Redaction,
    /// Number of times that the server reported changed tools.
    changes: AtomicU64,
    /// Number of the server's requests whose answers are not sent yet.
    unanswered_requests: AtomicU64,
    reports: Mutex<HashMap<ProgressToken, ProgressReport>>,
    failures: Mutex<HashMap<RequestId, Failure>>,
    end_reason: OnceLock<Failure>,
}

/// Reports the progress of one call, at most [`MAX_PROGRESS`] times.
pub(super) struct ProgressReport {
    tool: String,
    progress: Progress,
    /// The redaction of the server's keys, with the budget of all reports of the call.
    redaction: Redaction,
    left: u32,
}

impl ProgressReport {
    pub(super) fn new(tool: String, progress: Progress, redaction: Redaction) -> ProgressReport {
        ProgressReport { tool, progress, redaction, left: MAX_PROGRESS }
    }
}

impl ConnectionState {
    pub(super) fn new(redaction: Redaction) -> ConnectionState {
        ConnectionState { redaction, ..ConnectionState::default() }
    }

    /// Handles an incoming message before the library `rmcp` does. Fails if more than [`MAX_UNANSWERED`] requests of
    /// the server have no answer yet. Without this limit, a server that does not read the answers could fill the host's
    /// memory with them.
    pub(super) fn handle_incoming(&self, message: &ServerJsonRpcMessage) -> Result<(), Failure> {
        let notification = match message {
            ServerJsonRpcMessage::Notification(notification) => &notification.notification,
            ServerJsonRpcMessage::Request(_)
                if self.unanswered_requests.fetch_add(1, Ordering::AcqRel) >= MAX_UNANSWERED =>
            {
                let message = format!("the server asked more than {MAX_UNANSWERED} questions at a time");
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
            ServerNotification::ProgressNotification(notification) => self.report_progress(&notification.params),
            _ => {}
        }
        Ok(())
    }

    /// Handles a message of the host after the host has sent it or has failed to send it.
    pub(super) fn handle_sent(&self, message: &ClientJsonRpcMessage) {
        if matches!(message, ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_)) {
            // An answer to an uncounted request, such as one before the connection was opened, does not reduce the
            // count.
            let less = |count: u64| count.checked_sub(1);
            let _ = self.unanswered_requests.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
    }

    fn report_progress(&self, params: &ProgressNotificationParam) {
        let mut calls = self.reports.lock();
        let Some(call) = calls.get_mut(&params.progress_token).filter(|call| call.left > 0) else { return };
        call.left -= 1;
        let number = |number: f64| Json::from(serde_json::Value::from(number));
        let mut members = vec![("tool", Json::from(call.tool.as_str())), ("progress", number(params.progress))];
        members.extend(params.total.map(|total| ("total", number(total))));
        let message = params.message.as_deref().map(|message| one_line(&call.redaction.text_now(message)));
        members.extend(message.map(|message| ("message", Json::from(message))));
        call.progress.send(PROGRESS_EVENT, Json::object(members));
    }

    /// Returns the number of times that the server reported changed tools.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn start_reports(&self, token: ProgressToken, report: ProgressReport) {
        self.reports.lock().insert(token, report);
    }

    pub(super) fn forget_request(&self, token: &ProgressToken, id: &RequestId) {
        self.reports.lock().remove(token);
        self.failures.lock().remove(id);
    }

    /// Stores the reason that a request has no answer.
    pub(super) fn store_failure(&self, id: RequestId, failure: Failure) {
        self.failures.lock().insert(id, failure);
    }

    /// Returns the reason that a request has no answer.
    pub(super) fn failure(&self, id: &RequestId) -> Option<Failure> {
        self.failures.lock().get(id).cloned()
    }

    /// Marks the connection as unusable. Only the first reason is stored.
    pub(super) fn end(&self, failure: Failure) {
        self.end_reason.get_or_init(|| failure);
    }

    /// Returns the reason that the connection is unusable, if it is.
    pub(super) fn end_reason(&self) -> Option<&Failure> {
        self.end_reason.get()
    }
}
