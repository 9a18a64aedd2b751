//! Waits for the answer of a run to the post that has started it. The answer is read from the journal, so that a repeated
//! post gets the same one, and a process that does not drive the run answers, too. A wait holds no thread.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use flowcell_contract::{
    Json, RunId, Tenant,
    http_answer::{HttpAnswer, MAX_ANSWER_BYTES, RESPOND},
};
use flowcell_engine::FairSemaphore;
use flowcell_flow::triggers::{Respond, Webhook};
use flowcell_runtime::{
    Channel, Event, OpenError, RunResult,
    fact::RunEnd,
    ports::{MaybeStoreError, StoreError},
};
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::Triggers;
use crate::{
    Host, StartError,
    host::answers::{AnswerReader, FoundAnswer},
};

/// Maximum number of posts that wait for answers. A fair semaphore divides them among tenants.
pub const MAX_WAITING_POSTS: u64 = 256;
/// The delay before the second look at a run that this process does not drive. Each further delay is twice as long, up
/// to [`MAX_LOOK_DELAY`].
const FIRST_LOOK_DELAY: Duration = Duration::from_millis(20);
/// The longest delay between two looks at a run.
const MAX_LOOK_DELAY: Duration = Duration::from_secs(1);
/// The time for a look that has begun before the time of the post was over.
const LAST_LOOK_TIME: Duration = Duration::from_secs(1);

/// A post whose answer comes from its run.
pub struct AwaitedReply {
    host: Host,
    run: RunId,
    respond: Respond,
    is_new: bool,
    until: Instant,
}

impl fmt::Debug for AwaitedReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AwaitedReply").field("run", &self.run).field("is_new", &self.is_new).finish()
    }
}

/// The answer to a post.
#[derive(Debug, PartialEq)]
pub enum Reply {
    /// The answer of a `control.respond`, or the outputs of the run.
    Answer(HttpAnswer),
    /// The run has succeeded and no `control.respond` has, or the run was removed.
    Nothing,
    /// The run has failed or was cancelled, before it has answered.
    Failed {
        /// `failed` or `cancelled`.
        status: &'static str,
        /// The code of the failure.
        code: Option<Box<str>>,
    },
    /// The run has an answer that cannot be sent. The value says why.
    Invalid(String),
    /// The run has not answered in time, or too many posts wait.
    Late,
}

impl AwaitedReply {
    /// Returns the wait of a post that came now. `None`: the webhook answers with the id of the run.
    pub(super) fn new(host: &Host, webhook: &Webhook, run: &RunId, is_new: bool) -> Option<AwaitedReply> {
        let until = Instant::now() + Duration::from_millis(webhook.respond_timeout_ms());
        let (host, run, respond) = (host.clone(), run.clone(), webhook.respond);
        (respond != Respond::Run).then_some(AwaitedReply { host, run, respond, is_new, until })
    }

    /// Returns the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns whether this post has started the run.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Waits for the answer, at most for the time of the webhook. `reads` has the permits for reading journals.
    async fn wait(&self, reads: &FairSemaphore, listeners: &AnswerListeners) -> Reply {
        let found = tokio::time::timeout_at(self.until + LAST_LOOK_TIME, self.find(reads, listeners)).await;
        match found.unwrap_or(Ok(None)) {
            Ok(Some(FoundAnswer::Node(output))) => {
                HttpAnswer::from_output(&output).map_or_else(Reply::Invalid, Reply::Answer)
            }
            Ok(Some(FoundAnswer::End(end))) => self.reply_at(*end),
            Ok(Some(FoundAnswer::Removed)) => Reply::Nothing,
            Ok(None) => Reply::Late,
            Err(error) => {
                error.warn(format_args!("cannot read the answer of the run `{}` to a post", self.run));
                Reply::Late
            }
        }
    }

    /// Returns the answer at the end of the run.
    fn reply_at(&self, end: RunEnd) -> Reply {
        match end {
            RunEnd::Succeeded { outputs } if self.respond == Respond::Outputs => answer_with_outputs(&outputs),
            RunEnd::Succeeded { .. } => Reply::Nothing,
            RunEnd::Failed { failure, .. } => Reply::Failed { status: "failed", code: Some(failure.code.into()) },
            RunEnd::Cancelled { .. } => Reply::Failed { status: "cancelled", code: None },
        }
    }

    /// Looks until the run has an answer or the time is over, at least once. Fails if the run cannot be read. In an outage
    /// of the store, it waits.
    async fn find(
        &self,
        reads: &FairSemaphore,
        listeners: &AnswerListeners,
    ) -> Result<Option<FoundAnswer>, StartError> {
        let reader = Arc::new(Mutex::new(AnswerReader::new(&self.host, &self.run, self.respond)));
        let (mut heard, mut delay) = (None, FIRST_LOOK_DELAY);
        loop {
            if let Some(found) = self.look(&reader, reads).await? {
                return Ok(Some(found));
            }
            if Instant::now() >= self.until {
                return Ok(None);
            }
            if heard.is_none() {
                heard = self.listen(listeners).await;
            }
            let Some(listening) = &mut heard else {
                self.sleep(delay).await;
                delay = (delay * 2).min(MAX_LOOK_DELAY);
                continue;
            };
            // Without a word of the driver, too, it looks now and then.
            let look = (Instant::now() + MAX_LOOK_DELAY).min(self.until);
            // If the driver is gone, it has nothing more to say.
            let told = async { drop(listening.wait_for(|told| *told).await) };
            if tokio::time::timeout_at(look, told).await.is_ok() {
                heard = None;
                if let Some(found) = self.look(&reader, reads).await? {
                    return Ok(Some(found));
                }
                // The run has parked, or its driver is about to stop.
                self.sleep(FIRST_LOOK_DELAY).await;
            }
        }
    }

    /// Sleeps for this time, but not longer than the post waits.
    async fn sleep(&self, delay: Duration) {
        tokio::time::sleep_until((Instant::now() + delay).min(self.until)).await;
    }

    /// Reads the news of the run.
    async fn look(
        &self,
        reader: &Arc<Mutex<AnswerReader>>,
        reads: &FairSemaphore,
    ) -> Result<Option<FoundAnswer>, StartError> {
        let looking = reader.clone();
        match run_blocking(move || looking.lock().has_news()).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => return wait_in_outage(error),
        }
        let turn = reads.take(self.host.tenant(), 1).await;
        let (looking, host) = (reader.clone(), self.host.clone());
        let looked = run_blocking(move || {
            // The work goes on if the client leaves.
            let _turn = turn;
            host.charged(|| looking.lock().look())
        });
        looked.await.or_else(wait_in_outage)
    }

    /// Listens to the run if this process drives it. The result is ready when the run has answered, parked or ended.
    async fn listen(&self, listeners: &AnswerListeners) -> Option<watch::Receiver<bool>> {
        let hub = self.host.hubs().get(self.host.tenant(), &self.run)?;
        let (told, new) = listeners.join(self.host.tenant(), &self.run, self.respond);
        if let Some(listener) = new {
            hub.attach(listener).await.ok()?;
        }
        Some(told)
    }
}

/// Returns the outputs of a run as an answer.
fn answer_with_outputs(outputs: &Json) -> Reply {
    let body = outputs.to_text();
    if body.len() > MAX_ANSWER_BYTES {
        let most = MAX_ANSWER_BYTES >> 20;
        return Reply::Invalid(format!("the outputs have {} bytes; an answer may have {most} MiB", body.len()));
    }
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Reply::Answer(HttpAnswer { status: 200, headers, body: Some(body) })
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StartError> + Send + 'static,
) -> Result<T, StartError> {
    let lost = |error: tokio::task::JoinError| OpenError::Store(StoreError(error.to_string().into()));
    tokio::task::spawn_blocking(work).await.map_err(lost)?
}

/// Returns an error, or `None` if the store is in an outage, after which the run may answer.
fn wait_in_outage(error: StartError) -> Result<Option<FoundAnswer>, StartError> {
    if error.is_from_outage() { Ok(None) } else { Err(error) }
}

/// The listeners of the runs that this process drives, for the posts that wait for them.
///
/// A driver keeps each listener until it stops, and reads the whole journal for it. So all posts of a run share one, however
/// often a post is repeated.
#[derive(Default)]
pub(super) struct AnswerListeners(Mutex<Listening>);

#[derive(Default)]
struct Listening {
    by_run: HashMap<(Tenant, RunId), Weak<AnswerListener>>,
    /// The number of entries at which those of drivers that have stopped are removed.
    sweep_at: usize,
}

impl AnswerListeners {
    /// Returns the receiver of a post of a run, which becomes true once the run has answered, parked or ended. If no driver
    /// has a listener for it, the second value is one to attach.
    fn join(
        &self,
        tenant: &Tenant,
        run: &RunId,
        respond: Respond,
    ) -> (watch::Receiver<bool>, Option<Arc<AnswerListener>>) {
        let (mut listening, key) = (self.0.lock(), (tenant.clone(), run.clone()));
        let known = listening.by_run.get(&key).and_then(Weak::upgrade);
        // One that has told is that of a driver which has stopped, because no post waits for an answer that is there.
        if let Some(known) = known.filter(|known| known.respond == respond && !*known.told.borrow()) {
            return (known.told.subscribe(), None);
        }
        if listening.by_run.len() >= listening.sweep_at {
            listening.by_run.retain(|_, listener| listener.strong_count() > 0);
            listening.sweep_at = (2 * listening.by_run.len()).max(MAX_WAITING_POSTS as usize);
        }
        let (tell, told) = watch::channel(false);
        let listener = AnswerListener { run: run.clone(), respond, begun: Mutex::default(), told: tell };
        let listener = Arc::new(listener);
        listening.by_run.insert(key, Arc::downgrade(&listener));
        (told, Some(listener))
    }
}

/// Hears from the driver of a run when the run has answered, parked or ended.
struct AnswerListener {
    run: RunId,
    respond: Respond,
    /// The ids of the nodes that answer, as far as they have begun.
    begun: Mutex<HashSet<String>>,
    told: watch::Sender<bool>,
}

impl AnswerListener {
    fn tell(&self) {
        self.told.send_replace(true);
    }
}

impl Channel for AnswerListener {
    fn on_event(&self, event: &Event) {
        let text = |key: &str| event.data.get(key).and_then(Json::as_str).unwrap_or_default();
        match event.kind {
            _ if event.run_id != self.run => {}
            "task:start" if self.respond == Respond::Node && text("nodeType") == RESPOND => {
                self.begun.lock().insert(text("taskId").to_owned());
            }
            "task:complete" if self.begun.lock().contains(text("taskId")) => self.tell(),
            "harness:complete" => self.tell(),
            _ => {}
        }
    }

    fn on_complete(&self, _result: &RunResult) {
        self.tell();
    }
}

/// Waits for the answer to a post. If too many posts of the tenant wait, returns [`Reply::Late`] at once. `reads` has the
/// permits for reading journals.
pub async fn wait_for_reply(triggers: &Triggers, post: &AwaitedReply, reads: &FairSemaphore) -> Reply {
    let host = &post.host;
    if let Some(_permit) = triggers.waiting.try_take(host.tenant(), 1) {
        return post.wait(reads, &triggers.listeners).await;
    }
    let line =
        format!("too many posts of `{}` wait for answers, so further ones get the ids of their runs", host.tenant());
    if let Some(count) = triggers.refused_posts.count(&line, host.now()) {
        tracing::warn!("{line} ({count} since the last such line)");
    }
    Reply::Late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_posts_of_a_run_share_one_listener_of_its_driver() {
        let (listeners, tenant, run) = (AnswerListeners::default(), Tenant::from("a"), RunId::from("r"));
        let join = |tenant: &Tenant, respond| listeners.join(tenant, &run, respond);
        let (first, driver) = join(&tenant, Respond::Node);
        let repeated: Vec<_> = (0..100).map(|_| join(&tenant, Respond::Node)).collect();
        assert!(driver.is_some() && repeated.iter().all(|(_, listener)| listener.is_none()));
        assert!(join(&Tenant::from("b"), Respond::Node).1.is_some(), "another tenant has its own run");
        let told = || repeated.iter().filter(|(told, _)| *told.borrow()).count();
        assert_eq!((told(), *first.borrow()), (0, false));
        driver.iter().for_each(|driver| driver.tell());
        assert_eq!((told(), *first.borrow()), (100, true));
        // The next driver of the run needs another one, whether the one before has told or was lost.
        let (next, driver) = join(&tenant, Respond::Node);
        assert!(driver.is_some() && !*next.borrow());
        drop(driver);
        assert!(next.has_changed().is_err(), "the posts hear that the driver is gone");
        assert!(join(&tenant, Respond::Node).1.is_some());
    }

    #[test]
    fn no_listener_is_remembered_longer_than_its_driver() {
        let (listeners, tenant) = (AnswerListeners::default(), Tenant::from("a"));
        for run in 0..10 * MAX_WAITING_POSTS {
            drop(listeners.join(&tenant, &RunId::from(run.to_string()), Respond::Outputs));
        }
        let remembered = listeners.0.lock().by_run.len();
        assert!(remembered <= MAX_WAITING_POSTS as usize, "{remembered}");
    }
}
