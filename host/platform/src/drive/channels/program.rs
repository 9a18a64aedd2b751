//! A program that receives events and sends commands to the run, as lines of JSON.

use std::{
    io,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use flowcell_contract::shell::shell_word;
use flowcell_runtime::{Channel, Event, Hub, LiveEvent, RunResult};
use flowcell_services::{
    lines::{Line, Lines},
    program::{Input, Program},
};
use serde_json::{Value, json};
use tokio::{
    io::AsyncRead,
    runtime::Handle,
    sync::{Mutex, Notify, watch},
    task::JoinHandle,
};

use super::{
    GRACE, Notice, Notices,
    command::{self, MAX_COMMAND_BYTES},
    outbox::Outbox,
};

/// Maximum size in bytes of a line on the program's standard error. The rest of the line is skipped.
const MAX_LOG_LINE: usize = 4 * 1024;
/// Maximum number of lines of a program's standard error that are passed on.
const MAX_LOG_LINES: usize = 10_000;
/// Maximum number of lines, and of bytes, in one write.
const MAX_WRITE: (usize, usize) = (100, 64 * 1024);

/// A program of the operator that receives the events of one run.
///
/// It reads a line `{ "type": "channel:start", "runId" }`, the events, and at last `{ "type": "channel:complete",
/// "status" }`. Then its input ends. The program writes [commands](super::command), and gets a line `channel:answer`
/// for each. After the end of the run the program may run for [`GRACE`]. If it has not ended then, it is killed with
/// all processes that it has started.
pub struct ProgramChannel {
    outbox: Arc<Outbox>,
    state: Arc<ChannelState>,
    speaking: Mutex<Option<JoinHandle<()>>>,
    ended: watch::Receiver<bool>,
}

/// The state that the tokio tasks of a channel share.
struct ChannelState {
    name: String,
    hub: OnceLock<Hub>,
    started: Notify,
    notices: Notices,
    ending: parking_lot::Mutex<Ending>,
    answered: Notify,
}

/// Orders the end of the program's input. The last line must follow the answers to all earlier commands, so the last
/// line is held back while a command is executed.
#[derive(Default)]
struct Ending {
    asking: bool,
    last: Option<Value>,
}

impl ProgramChannel {
    /// Starts a program from its name and arguments. The tokio tasks of the channel run on this runtime.
    pub fn start(runtime: &Handle, words: &[String], notices: Notices) -> io::Result<ProgramChannel> {
        let name = words.first().map(String::as_str).unwrap_or_default();
        let name = Path::new(name).file_name().map_or_else(|| name.to_owned(), |name| name.to_string_lossy().into());
        let program = {
            let _entered = runtime.enter();
            Program::start(words, &[], MAX_COMMAND_BYTES, MAX_LOG_LINE)?
        };
        let outbox = Arc::new(Outbox::default());
        let (hub, started, ending) = (OnceLock::new(), Notify::new(), parking_lot::Mutex::default());
        let state = Arc::new(ChannelState { name, hub, started, notices, ending, answered: Notify::new() });
        let (tell_ended, ended) = watch::channel(false);
        let (told, shared) = (outbox.clone(), state.clone());
        let speaking = runtime.spawn(async move {
            serve_program(program, told, shared).await;
            tell_ended.send_replace(true);
        });
        Ok(ProgramChannel { outbox, state, speaking: Mutex::new(Some(speaking)), ended })
    }

    /// Returns whether the program has ended.
    pub fn is_done(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until the program has ended.
    pub async fn ended(&self) {
        // If the runtime is gone, so is the sender.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Waits at most [`GRACE`] until all commands are answered, closes the outbox, and waits until the program has
    /// ended or was killed.
    pub async fn close(&self) {
        // Earlier verbs are answered before the last line.
        let _ = tokio::time::timeout(GRACE, self.state.all_answered()).await;
        self.outbox.close();
        if let Some(speaking) = self.speaking.lock().await.take() {
            // The task ends by itself, at the latest after the grace period.
            let _ = speaking.await;
        }
    }
}

impl Channel for ProgramChannel {
    fn on_start(&self, hub: &Hub) {
        if self.state.hub.set(hub.clone()).is_ok() {
            self.outbox.put_line(&json!({ "v": 1, "type": "channel:start", "runId": hub.run_id() }));
            self.state.started.notify_one();
        }
    }

    fn on_event(&self, event: &Event) {
        self.outbox.put_event(event);
    }

    fn on_live(&self, event: &LiveEvent) {
        self.outbox.put_live_event(event);
    }

    fn on_complete(&self, result: &RunResult) {
        let (run, status) = (&result.run_id, result.status);
        let last = json!({ "v": 1, "type": "channel:complete", "runId": run, "status": status });
        let mut ending = self.state.ending.lock();
        ending.last = Some(last);
        ending.queue_last(&self.outbox);
    }
}

async fn serve_program(program: Program, outbox: Arc<Outbox>, state: Arc<ChannelState>) {
    let Program { input, output, errors, mut life } = program;
    let logging = tokio::spawn(forward_log(errors, state.clone()));
    let listening = tokio::spawn(listen(output, outbox.clone(), state.clone()));
    let (early, grace) = tokio::select! {
        biased;
        told = write_lines(input, &outbox) => (told.is_err(), GRACE),
        _ = life.wait_for_end() => (true, GRACE),
        // The program no longer reads its input.
        () = wait_until_overdue(&outbox) => (false, Duration::ZERO),
    };
    let lost = outbox.abandon();
    match tokio::time::timeout(grace, life.wait_for_end()).await {
        Ok(how) if early => {
            let rest = lost.map(|(run, seq)| {
                format!("; `flowcell runs events {} --from {seq}` prints the others", shell_word(run.as_str()))
            });
            state.report(&format!("ended before the run ({how}){}", rest.unwrap_or_default()));
        }
        Ok(_) => {}
        Err(_) => state.report(&format!("did not end within {} s after the run and was killed", GRACE.as_secs())),
    }
    // Its child processes end with it, and so do their output streams.
    drop(life);
    _ = tokio::join!(logging, listening);
}

/// Waits until the run has ended and [`GRACE`] has passed since then.
async fn wait_until_overdue(outbox: &Outbox) {
    outbox.wait_until_closed().await;
    tokio::time::sleep(GRACE).await;
}

/// Writes the lines of the outbox to the program's input until the outbox is closed and empty.
async fn write_lines(mut input: Input, outbox: &Outbox) -> io::Result<()> {
    let (lines, bytes) = MAX_WRITE;
    while let Some(lines) = outbox.take(lines, bytes).await {
        let mut text = Vec::new();
        for line in lines {
            text.extend_from_slice(&line.text);
            text.push(b'\n');
        }
        input.write(&text).await?;
    }
    Ok(())
}

/// Executes each line of the program's output as a command, and queues the answer.
async fn listen<R: AsyncRead + Unpin>(mut output: Lines<R>, outbox: Arc<Outbox>, state: Arc<ChannelState>) {
    while let Ok(Some(line)) = output.next().await {
        let hub = state.hub().await;
        let answer = match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => continue,
            Line::Whole(line) => {
                state.ending.lock().asking = true;
                command::execute(&line, hub).await
            }
            Line::Cut(_) => command::too_long_answer(),
        };
        outbox.put_line(&answer);
        let mut ending = state.ending.lock();
        ending.asking = false;
        ending.queue_last(&outbox);
        state.answered.notify_waiters();
    }
}

impl Ending {
    /// Queues the last line, unless a command is still being executed.
    fn queue_last(&mut self, outbox: &Outbox) {
        if self.asking {
            return;
        }
        if let Some(last) = self.last.take() {
            outbox.put_line(&last);
            outbox.close();
        }
    }
}

/// Passes on the first [`MAX_LOG_LINES`] lines of the program's standard error as notices.
async fn forward_log<R: AsyncRead + Unpin>(mut errors: Lines<R>, state: Arc<ChannelState>) {
    let mut left = MAX_LOG_LINES;
    while let Ok(Some(Line::Whole(line) | Line::Cut(line))) = errors.next().await {
        if left > 0 {
            left -= 1;
            let line = String::from_utf8_lossy(&line).into_owned();
            (state.notices)(Notice::Said { program: state.name.clone(), line });
        }
    }
}

impl ChannelState {
    /// Waits for the run's hub.
    async fn hub(&self) -> &Hub {
        loop {
            match self.hub.get() {
                Some(hub) => return hub,
                None => self.started.notified().await,
            }
        }
    }

    /// Waits until all commands are answered.
    async fn all_answered(&self) {
        loop {
            let answered = self.answered.notified();
            if !self.ending.lock().asking {
                return;
            }
            answered.await;
        }
    }

    fn report(&self, what: &str) {
        (self.notices)(Notice::Trouble(format!("the channel `{}` {what}", self.name)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::sync::mpsc;

    use super::*;

    fn started(script: &str) -> (ProgramChannel, mpsc::UnboundedReceiver<Notice>) {
        let (sender, notices) = mpsc::unbounded_channel();
        let words = ["sh", "-c", script].map(str::to_owned);
        let tell: Notices = Arc::new(move |notice| _ = sender.send(notice));
        (ProgramChannel::start(&Handle::current(), &words, tell).unwrap(), notices)
    }

    fn said(notice: Option<Notice>) -> String {
        match notice {
            Some(Notice::Said { line, .. }) => line,
            other => panic!("{other:?}"),
        }
    }

    /// Returns whether a process is alive and not a zombie.
    fn lives(process: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"));
        stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
    }

    #[cfg(target_os = "linux")]
    #[tokio::test(start_paused = true)]
    async fn a_program_that_does_not_end_is_killed_with_its_children() {
        let (channel, mut notices) = started("sleep 1000 & echo $! >&2; wait");
        let process = said(notices.recv().await);
        assert!(lives(&process));
        channel.close().await;
        assert!(channel.is_done());
        // The process was killed, but may take a moment to end.
        let begin = std::time::Instant::now();
        while lives(&process) {
            assert!(begin.elapsed().as_secs() < 60, "it lives on");
            std::thread::yield_now();
        }
        let Some(Notice::Trouble(why)) = notices.recv().await else { panic!("nothing is said") };
        assert_eq!(why, "the channel `sh` did not end within 10 s after the run and was killed");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test(start_paused = true)]
    async fn a_program_that_does_not_read_is_killed() {
        let (channel, mut notices) = started("echo ready >&2; exec sleep 1000");
        assert_eq!(said(notices.recv().await), "ready");
        let line = "x".repeat(512 * 1024);
        channel.outbox.put_line(&line);
        channel.close().await;
        assert!(matches!(notices.recv().await, Some(Notice::Trouble(why)) if why.contains("was killed")));
    }

    #[tokio::test]
    async fn a_program_that_ends_by_itself_causes_no_notice() {
        let (channel, mut notices) = started("while read -r line; do :; done; echo bye >&2");
        channel.close().await;
        drop(channel);
        assert_eq!(said(notices.recv().await), "bye");
        assert_eq!(notices.recv().await, None);
    }
}
