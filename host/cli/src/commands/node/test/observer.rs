//! Records the events of a case, and sends messages to its agent run.

use std::sync::{Arc, OnceLock};

use flowcell::{Channel, Event, Hub, Json};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The run id of every case.
pub(super) const RUN_ID: &str = "case";

/// Records the events of a case, and sends messages to its first agent run that has an inbox.
pub(super) struct Observer {
    seen: Mutex<Vec<Json>>,
    /// The messages that are not sent yet.
    messages: Mutex<Option<Vec<Json>>>,
    hub: OnceLock<Hub>,
    /// The number of events after which the run is cut.
    cut_after: Option<usize>,
    is_cut: Notify,
}

impl Observer {
    pub(super) fn new(messages: &[Json], cut_after: Option<usize>) -> Arc<Observer> {
        let messages = Some(messages.to_vec()).filter(|messages| !messages.is_empty());
        let (messages, is_cut) = (Mutex::new(messages), Notify::new());
        Arc::new(Observer { seen: Mutex::default(), messages, hub: OnceLock::new(), cut_after, is_cut })
    }

    /// Waits until the run has sent the events after which it is cut.
    pub(super) async fn cut(&self) {
        self.is_cut.notified().await;
    }

    /// Returns all events, each an object with its `type`.
    pub(super) fn events(&self) -> Vec<Json> {
        self.seen.lock().clone()
    }

    fn write(&self, event: &Event) {
        let Some(hub) = self.hub.get().cloned() else { return };
        let Some(messages) = self.messages.lock().take() else { return };
        let agent_run = event.data.get("agentRunId").and_then(Json::as_str).unwrap_or_default().to_owned();
        tokio::spawn(async move {
            for (number, message) in (1..).zip(messages) {
                // A refused message is dropped. The result of the case then differs from the expected one.
                let _ = hub.send_to_run(&agent_run, Some(&format!("m{number}")), message).await;
            }
            let _ = hub.close_run(&agent_run).await;
        });
    }
}

impl Channel for Observer {
    fn on_start(&self, hub: &Hub) {
        let _ = self.hub.set(hub.clone());
    }

    fn on_event(&self, event: &Event) {
        if event.run_id.as_str() != RUN_ID {
            return;
        }
        if event.kind == "agent:start" {
            self.write(event);
        }
        let members = event.data.as_object().into_iter().flatten();
        let members = members.map(|(key, value)| (key.clone(), value.clone()));
        let told = Json::object([("type".into(), Json::from(event.kind))].into_iter().chain(members));
        let mut seen = self.seen.lock();
        seen.push(told);
        if self.cut_after == Some(seen.len()) {
            self.is_cut.notify_one();
        }
    }
}
