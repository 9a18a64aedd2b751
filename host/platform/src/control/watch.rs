//! Sends a run's events over the control socket: first the events in the journal, then new and live events as they
//! occur.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, BufRead, BufReader, Lines, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flowcell_contract::{Json, RunId};
use flowcell_runtime::{Channel, Event, LiveEvent, RunResult};
use tokio::runtime::Runtime;

use super::{AskOwnerError, OwnerReply, OwnerRequest, connect, request::OWNER_STOPPING};
use crate::{
    Host,
    drive::channels::Outbox,
    host::{events::EventReader, task_inputs::calling_task},
};

/// Interval between checks whether the run is driven and the watcher is still connected.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of lines, and of bytes, in one write.
const MAX_WRITE: (usize, usize) = (100, 64 * 1024);

/// Watches a run through the process that owns the store in a folder. Returns the owner's reply, and the events of the
/// run and its child runs, from the first to the run's end. A `watch:now` line separates the past events from the new
/// ones.
pub fn watch_owner(folder: &Path, run: &RunId) -> Result<(OwnerReply, Events), AskOwnerError> {
    let (told, events) = request_events(connect(folder)?, run).map_err(AskOwnerError::Gone)?;
    match told {
        OwnerReply::Refused { code, message } if code == OWNER_STOPPING => {
            Err(AskOwnerError::Gone(io::Error::other(message)))
        }
        told => Ok((told, events)),
    }
}

fn request_events(mut stream: UnixStream, run: &RunId) -> io::Result<(OwnerReply, Events)> {
    let line = serde_json::to_string(&OwnerRequest::Watch { run: run.clone() }).map_err(io::Error::other)?;
    writeln!(stream, "{line}")?;
    let mut lines = BufReader::new(stream).lines();
    let told = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
    Ok((serde_json::from_str(&told).map_err(io::Error::other)?, Events(lines)))
}

/// The events of a watched run and its child runs as JSON, in the order of arrival. Ends when the owner of the store
/// closes the connection.
pub struct Events(Lines<BufReader<UnixStream>>);

impl Iterator for Events {
    type Item = Json;

    fn next(&mut self) -> Option<Json> {
        Json::restore(&self.0.next()?.ok()?).ok()
    }
}

/// Sends a run's events to a watcher until the run ends or the watcher disconnects.
pub(super) fn send_events(host: &Host, run: &RunId, stream: &UnixStream, runtime: &Runtime) -> io::Result<()> {
    let _watching = host.watched().register(run);
    stream.set_read_timeout(Some(CHECK_INTERVAL))?;
    let mut watcher = Watcher { stream, root: run, events: None, next: HashMap::new(), ended: false };
    watcher.catch_up(host, run)?;
    watcher.write(br#"{"v":1,"type":"watch:now"}"#)?;
    while !watcher.ended && !watcher.has_gone()? {
        match host.hubs().get(host.tenant(), run) {
            Some(hub) => {
                let relay = Arc::new(EventReceiver::new(run, watcher.next_seq(run)));
                // If the run has ended meanwhile, its remaining events come from its journal.
                if runtime.block_on(hub.attach(relay.clone())).is_ok() {
                    let told = watcher.relay(host, &relay, runtime);
                    relay.outbox.abandon();
                    told?;
                }
            }
            None => watcher.catch_up(host, run)?,
        }
    }
    Ok(())
}

/// A connected watcher.
struct Watcher<'a> {
    stream: &'a UnixStream,
    root: &'a RunId,
    /// The reader of the run's journal. It stays open, so that a look at a parked run does not read the journal again.
    events: Option<EventReader>,
    /// The number of the next event to send, for the run itself and for each of its child runs.
    next: HashMap<RunId, u64>,
    ended: bool,
}

impl Watcher<'_> {
    fn next_seq(&self, run: &RunId) -> u64 {
        self.next.get(run).copied().unwrap_or(0)
    }

    /// Sends those events of a run and its child runs from the journal that were not sent yet. The events of a child
    /// run come before the event with which the calling task continues.
    fn catch_up(&mut self, host: &Host, run: &RunId) -> io::Result<()> {
        let (from, mut below, is_root) = (self.next_seq(run), None, run == self.root);
        let open = if is_root { self.events.take() } else { None };
        let mut events = open.map_or_else(|| host.events(run), Ok).map_err(io::Error::other)?;
        while let Some(event) = events.next(from).map_err(io::Error::other)? {
            self.ended |= is_root && event.kind == "harness:complete";
            self.send_in_order(host, run, &event, &mut below)?;
        }
        if is_root {
            self.events = Some(events);
        }
        // The children whose callers still wait for them.
        let mut left = below.into_iter().flatten().flat_map(|(_, runs)| runs);
        left.try_for_each(|child| self.catch_up(host, &child))
    }

    fn send_in_order(
        &mut self,
        host: &Host,
        run: &RunId,
        event: &Event,
        below: &mut Option<BTreeMap<String, Vec<RunId>>>,
    ) -> io::Result<()> {
        let below = match below {
            Some(below) => below,
            None => below.insert(child_runs_by_task(host, run)?),
        };
        take_continued(event, below).iter().try_for_each(|child| self.catch_up(host, child))?;
        self.next.insert(run.clone(), event.seq + 1);
        self.write(&serde_json::to_vec(event)?)
    }

    /// Sends the events that `relay` receives until the run parks or ends.
    fn relay(&mut self, host: &Host, relay: &EventReceiver, runtime: &Runtime) -> io::Result<()> {
        let (most, bytes) = MAX_WRITE;
        let mut is_first = true;
        loop {
            // A driver that stops just before the relay is attached sends it nothing.
            let is_driven = host.hubs().get(host.tenant(), &relay.run).is_some();
            let look = async { tokio::time::timeout(CHECK_INTERVAL, relay.outbox.take(most, bytes)).await };
            match runtime.block_on(look) {
                Ok(None) => {
                    self.ended = relay.ended.load(Ordering::Acquire);
                    return Ok(());
                }
                Err(_) if !is_driven => return Ok(()),
                Ok(Some(lines)) => {
                    // Child runs that ended before the relay was attached have sent it nothing.
                    if std::mem::take(&mut is_first) {
                        for child in child_runs_by_task(host, &relay.run)?.into_values().flatten() {
                            self.catch_up(host, &child)?;
                        }
                    }
                    for line in lines {
                        if let Some((run, seq)) = &line.event {
                            if *seq < self.next_seq(run) {
                                continue;
                            }
                            self.next.insert(run.clone(), seq + 1);
                        }
                        self.write(&line.text)?;
                    }
                }
                Err(_) if self.has_gone()? => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(_) => {}
            }
        }
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.stream.write_all(&[line, b"\n"].concat())
    }

    /// Returns whether the watcher has disconnected. A watcher sends nothing, so this usually blocks for
    /// [`CHECK_INTERVAL`].
    fn has_gone(&mut self) -> io::Result<bool> {
        let mut stream = self.stream;
        match stream.read(&mut [0; 64]) {
            Ok(read) => Ok(read == 0),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns the child runs of a run. The key is the address of the task that called them.
fn child_runs_by_task(host: &Host, run: &RunId) -> io::Result<BTreeMap<String, Vec<RunId>>> {
    let mut below: BTreeMap<String, Vec<RunId>> = BTreeMap::new();
    for child in host.called_by(run).map_err(io::Error::other)? {
        if let Some(task) = calling_task(run, &child) {
            below.entry(task.to_owned()).or_default().push(child.clone());
        }
    }
    Ok(below)
}

/// Removes from `below` the child runs whose calling task continues with this event, and returns them. The keys of
/// `below` are the addresses of the calling tasks. If the event parks or ends the run, all child runs are removed.
fn take_continued(event: &Event, below: &mut BTreeMap<String, Vec<RunId>>) -> Vec<RunId> {
    let text = |key: &str| event.data.get(key).and_then(Json::as_str);
    match event.kind {
        "harness:parked" | "harness:complete" => std::mem::take(below).into_values().flatten().collect(),
        "task:woken" | "task:complete" | "task:failed" | "task:cancelled" | "task:retry" => {
            let task = text("taskId").unwrap_or_default();
            let address = text("scope").map_or_else(|| task.to_owned(), |scope| format!("{scope}.{task}"));
            below.remove(&address).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Receives a run's events from a given event number on.
struct EventReceiver {
    outbox: Outbox,
    run: RunId,
    from: u64,
    ended: AtomicBool,
}

impl EventReceiver {
    fn new(run: &RunId, from: u64) -> EventReceiver {
        EventReceiver { outbox: Outbox::default(), run: run.clone(), from, ended: AtomicBool::new(false) }
    }
}

impl Channel for EventReceiver {
    fn on_event(&self, event: &Event) {
        let own = event.run_id == self.run;
        if own && event.kind == "harness:complete" {
            self.ended.store(true, Ordering::Release);
        }
        if !own || event.seq >= self.from {
            self.outbox.put_event(event);
        }
    }

    fn on_live(&self, event: &LiveEvent) {
        self.outbox.put_live_event(event);
    }

    fn on_complete(&self, _result: &RunResult) {
        self.outbox.close();
    }
}
