//! A run's events over the control socket: what was so far, and what comes, also what is live.

use std::{
    io::{self, BufRead, BufReader, Lines, Read, Write},
    ops::ControlFlow,
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

use super::{Ask, Told, socket};
use crate::{Host, channels::Outbox};

/// Time between two looks whether somebody drives the run, or the watcher has gone.
const LOOK: Duration = Duration::from_millis(200);
/// Lines and bytes that are written at once.
const AT_ONCE: (usize, usize) = (100, 64 * 1024);

/// Watches a run of the process that owns the store in a folder: its events from the first, until its end. `watch:now` stands
/// where those end that happened before.
pub fn watch_owner(folder: &Path, run: &RunId) -> io::Result<(Told, Events)> {
    let mut stream = socket::connect(folder)?;
    let line = serde_json::to_string(&Ask::Watch { run: run.clone() }).map_err(io::Error::other)?;
    writeln!(stream, "{line}")?;
    let mut lines = BufReader::new(stream).lines();
    let told = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
    Ok((serde_json::from_str(&told).map_err(io::Error::other)?, Events(lines)))
}

/// The events of a run, as they come.
pub struct Events(Lines<BufReader<UnixStream>>);

impl Iterator for Events {
    type Item = Json;

    fn next(&mut self) -> Option<Json> {
        Json::parse(&self.0.next()?.ok()?).ok()
    }
}

/// Tells a watcher of a run until that has ended or the watcher has gone.
pub(super) fn tell(host: &Host, run: &RunId, stream: &UnixStream, runtime: &Runtime) -> io::Result<()> {
    let _watching = host.watched().begin(run);
    stream.set_read_timeout(Some(LOOK))?;
    let mut watcher = Watcher { stream, from: 0, ended: false };
    watcher.catch_up(host, run)?;
    watcher.write(br#"{"v":1,"type":"watch:now"}"#)?;
    while !watcher.ended && !watcher.has_gone()? {
        match host.hubs().get(host.tenant(), run) {
            Some(hub) => {
                let relay = Arc::new(Relay::new(run, watcher.from));
                // A run that has ended meanwhile tells the rest by its journal.
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

/// One who watches.
struct Watcher<'a> {
    stream: &'a UnixStream,
    /// The number of the run's next event.
    from: u64,
    ended: bool,
}

impl Watcher<'_> {
    /// Tells what the journal has.
    fn catch_up(&mut self, host: &Host, run: &RunId) -> io::Result<()> {
        let (mut told, from) = (Ok(()), self.from);
        let visit = |event: Event| {
            self.from = event.seq + 1;
            self.ended = event.kind == "harness:complete";
            told = serde_json::to_vec(&event).map_err(io::Error::from).and_then(|line| self.write(&line));
            if told.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        host.each_event(run, from, visit).map_err(io::Error::other)?;
        told
    }

    /// Tells what a relay hears, until the run rests or ends.
    fn relay(&mut self, host: &Host, relay: &Relay, runtime: &Runtime) -> io::Result<()> {
        let (most, bytes) = AT_ONCE;
        loop {
            // Whoever stops driving just before a relay is attached tells it nothing.
            let is_driven = host.hubs().get(host.tenant(), &relay.run).is_some();
            let look = async { tokio::time::timeout(LOOK, relay.outbox.take(most, bytes)).await };
            match runtime.block_on(look) {
                Ok(None) => {
                    self.ended = relay.ended.load(Ordering::Acquire);
                    return Ok(());
                }
                Err(_) if !is_driven => return Ok(()),
                Ok(Some(lines)) => {
                    for line in lines {
                        self.write(&line.text)?;
                        let own = line.event.filter(|(own, _)| *own == relay.run);
                        self.from = own.map_or(self.from, |(_, seq)| seq + 1);
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

    /// Whether the watcher has gone. It has nothing to say, so that hearing anything takes a while.
    fn has_gone(&mut self) -> io::Result<bool> {
        let mut stream = self.stream;
        match stream.read(&mut [0; 64]) {
            Ok(read) => Ok(read == 0),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Hears what happens, from an event on.
struct Relay {
    outbox: Outbox,
    run: RunId,
    from: u64,
    ended: AtomicBool,
}

impl Relay {
    fn new(run: &RunId, from: u64) -> Relay {
        Relay { outbox: Outbox::default(), run: run.clone(), from, ended: AtomicBool::new(false) }
    }
}

impl Channel for Relay {
    fn on_event(&self, event: &Event) {
        let own = event.run_id == self.run;
        if own && event.kind == "harness:complete" {
            self.ended.store(true, Ordering::Release);
        }
        if !own || event.seq >= self.from {
            self.outbox.event(event);
        }
    }

    fn on_live(&self, event: &LiveEvent) {
        self.outbox.live(event);
    }

    fn on_complete(&self, _result: &RunResult) {
        self.outbox.close();
    }
}
