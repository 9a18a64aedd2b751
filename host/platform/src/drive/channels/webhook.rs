//! Posts events to a webhook.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use flowcell_contract::{RunId, shell::shell_word};
use flowcell_runtime::{Channel, Event, Hub, LiveEvent, RunResult};
use flowcell_services::webhook::Webhook;
use tokio::{
    runtime::Handle,
    sync::Mutex,
    task::{AbortHandle, JoinHandle},
};

use super::{
    Notice, Notices,
    outbox::{Line, Outbox},
};

/// Maximum number of events per body.
const MAX_EVENTS: usize = 100;
/// Maximum size in bytes of a body with several events.
const MAX_BODY: usize = 256 * 1024;

/// Posts the events of one run in order, one body after another. If all attempts to post a body fail, the channel posts
/// nothing more. So if an event is missing between two posted events, a `lagged` line reports it.
pub struct WebhookChannel {
    outbox: Arc<Outbox>,
    run: Arc<OnceLock<RunId>>,
    origin: String,
    notices: Notices,
    posting: Mutex<Option<JoinHandle<()>>>,
    done: AbortHandle,
}

impl WebhookChannel {
    /// Creates a channel that posts on this runtime.
    pub fn start(runtime: &Handle, webhook: Webhook, notices: Notices) -> WebhookChannel {
        let (outbox, run) = (Arc::new(Outbox::default()), Arc::new(OnceLock::new()));
        let origin = webhook.origin();
        let posting = post(webhook, outbox.clone(), run.clone(), notices.clone());
        let posting = runtime.spawn(posting);
        let done = posting.abort_handle();
        WebhookChannel { outbox, run, origin, notices, posting: Mutex::new(Some(posting)), done }
    }

    /// Returns whether posting has ended.
    pub fn is_done(&self) -> bool {
        self.done.is_finished()
    }

    /// Waits until all events are posted or posting has stopped, but at most for the time `grace`. Then it stops
    /// posting, and sends a notice about the lost events.
    pub async fn close(&self, grace: Duration) {
        self.outbox.close();
        let Some(mut posting) = self.posting.lock().await.take() else { return };
        if tokio::time::timeout(grace, &mut posting).await.is_err() {
            posting.abort();
            let why = format!("{} did not accept all events within {} s", self.origin, grace.as_secs());
            (self.notices)(Notice::Trouble(stop_message(&why, self.outbox.abandon())));
        }
    }
}

impl Channel for WebhookChannel {
    fn on_start(&self, hub: &Hub) {
        self.run.get_or_init(|| hub.run_id().clone());
    }

    fn on_event(&self, event: &Event) {
        self.outbox.put_event(event);
    }

    fn on_live(&self, event: &LiveEvent) {
        self.outbox.put_live_event(event);
    }

    fn on_complete(&self, _result: &RunResult) {
        self.outbox.close();
    }
}

async fn post(webhook: Webhook, outbox: Arc<Outbox>, run: Arc<OnceLock<RunId>>, notices: Notices) {
    while let Some(lines) = outbox.take(MAX_EVENTS, MAX_BODY).await {
        let first = lines.iter().find_map(|line| line.event.clone());
        // After a crash, the same events get a new post id.
        let id = format!("msg_{:032x}", rand::random::<u128>());
        if let Err(failure) = webhook.post(&id, body(run.get(), &lines)).await {
            let lost = outbox.abandon();
            return notices(Notice::Trouble(stop_message(&failure.message, first.or(lost))));
        }
    }
}

fn body(run: Option<&RunId>, lines: &[Line]) -> Bytes {
    // A run's id is a string, which always serializes.
    let run = serde_json::to_vec(&run).unwrap_or_default();
    let mut body = [br#"{"v":1,"runId":"#.as_slice(), &run, br#","events":["#].concat();
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&line.text);
    }
    body.extend_from_slice(b"]}");
    body.into()
}

fn stop_message(why: &str, lost: Option<(RunId, u64)>) -> String {
    match lost {
        None => format!("the host sends no more events to the webhook: {why}"),
        Some((run, seq)) => {
            format!(
                "the host sends no more events to the webhook: {why}; `flowcell runs events {} --from {seq}` prints the \
                 others",
                shell_word(run.as_str())
            )
        }
    }
}
