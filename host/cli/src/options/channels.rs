//! `--channel`: sends the events of a run to files, webhooks and programs, and forwards the commands of programs to
//! the run.

use std::{io, path::PathBuf, pin::pin, str::FromStr, sync::Arc};

use clap::Args;
use flowcell::{
    Channel, FlowRunner, Host, RunResult, SecretSource, SigningKey,
    channels::{GRACE, JsonLines, Notices, ProgramChannel, WebhookChannel},
    similar,
};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use crate::cli_error::CliError;

/// The channels of the runs that a command drives.
#[derive(Args, Clone, Default)]
pub(crate) struct ChannelArgs {
    /// Send the events of the run to a channel: `webhook:URL` posts them; `exec:PROGRAM ARGUMENT…` starts a program
    /// that reads them and may send messages, answer and abort; `jsonl:FILE` writes them with live deltas; `terminal`
    /// shows progress here even with other output options; may be repeated
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<ChannelSpec>,
    /// Sign the posts to webhooks with this secret: `env:NAME` or `file:PATH`
    #[arg(long, value_name = "SECRET", env = "FLOWCELL_WEBHOOK_SECRET_FROM", hide_env_values = true)]
    webhook_secret: Option<SecretSource>,
}

/// One parsed `--channel` argument.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ChannelSpec {
    Terminal,
    JsonLines(PathBuf),
    Webhook(String),
    Program(Vec<String>),
}

impl FromStr for ChannelSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<ChannelSpec, String> {
        const KINDS: [&str; 4] = ["terminal", "jsonl", "webhook", "exec"];
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let needs = |example: &str| Err(format!("`{kind}` needs an argument, such as `{example}`"));
        match (kind, rest.trim()) {
            // `console` is the earlier name.
            ("terminal" | "console", "") => Ok(ChannelSpec::Terminal),
            ("terminal" | "console", _) => Err(format!("`{kind}` takes no argument")),
            ("jsonl", "") => needs("jsonl:events.jsonl"),
            ("jsonl", file) => Ok(ChannelSpec::JsonLines(file.into())),
            ("webhook", "") => needs("webhook:https://example.com/hook"),
            ("webhook", url) => Ok(ChannelSpec::Webhook(url.to_owned())),
            ("exec", "") => needs("exec:./voice.sh --out say.wav"),
            ("exec", line) => split_words(line).map(ChannelSpec::Program),
            _ => Err(match similar(kind, KINDS) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "write `terminal`, `jsonl:FILE`, `webhook:URL` or `exec:PROGRAM ARGUMENT…`".into(),
            }),
        }
    }
}

/// Splits a command line at spaces. Quotes and backslashes work as in a shell; all other characters are literal.
fn split_words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let next = letters.next().ok_or("the last backslash escapes nothing")?;
                word.get_or_insert_default().push(next);
            }
            (None, space) if space.is_whitespace() => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    match (quote, words.is_empty()) {
        (Some(open), _) => Err(format!("the quote {open} is not closed")),
        (None, true) => Err("the name of the program is missing".into()),
        (None, false) => Ok(words),
    }
}

impl ChannelArgs {
    /// Returns true if `--channel terminal` is given, which shows the progress even with other output options.
    pub(crate) fn shows_progress(&self) -> bool {
        self.channels.contains(&ChannelSpec::Terminal)
    }

    /// Returns true if a channel writes events to standard output: `jsonl:-`.
    pub(crate) fn writes_to_stdout(&self) -> bool {
        let is_stdout = |spec: &ChannelSpec| matches!(spec, ChannelSpec::JsonLines(file) if file.as_os_str() == "-");
        self.channels.iter().any(is_stdout)
    }

    /// Prepares the channels before any run starts. Opens files, and reports errors in URLs and secrets.
    pub(crate) fn open(&self, host: &Host, notices: Notices) -> Result<Channels, CliError> {
        let mut channels =
            Channels { runtime: None, files: Vec::new(), makers: Vec::new(), opened: Mutex::default(), notices };
        for spec in &self.channels {
            match spec {
                ChannelSpec::Terminal => {}
                ChannelSpec::JsonLines(file) => {
                    let opened = JsonLines::open(file, channels.notices.clone());
                    let cannot =
                        |error: io::Error| CliError::wrong(format!("cannot write {}", file.display())).because(&error);
                    channels.files.push(Arc::new(opened.map_err(cannot)?));
                }
                ChannelSpec::Webhook(url) => {
                    let key = self.key(channels.runtime()?)?;
                    let webhook = host.webhook(url, key);
                    let wrong = |why: &str| CliError::wrong("cannot use the webhook").cause(why);
                    channels
                        .makers
                        .push(PerRunChannel::Webhook(Box::new(webhook.map_err(|failure| wrong(&failure.message))?)));
                }
                ChannelSpec::Program(words) => {
                    channels.runtime()?;
                    channels.makers.push(PerRunChannel::Program(words.clone()));
                }
            }
        }
        Ok(channels)
    }

    fn key(&self, runtime: &Runtime) -> Result<Option<SigningKey>, CliError> {
        let Some(source) = &self.webhook_secret else { return Ok(None) };
        let read = runtime.block_on(source.read());
        let key =
            read.map_err(|failure| CliError::wrong("cannot use the secret of the webhooks").cause(&failure.message))?;
        Ok(Some(key))
    }
}

/// The settings of a channel that each run opens for itself.
enum PerRunChannel {
    Webhook(Box<flowcell::Webhook>),
    Program(Vec<String>),
}

/// A channel that has to be closed after its run, so that all its events are delivered.
enum Opened {
    Webhook(Arc<WebhookChannel>),
    Program(Arc<ProgramChannel>),
}

/// The channels of the runs that this process drives.
pub(crate) struct Channels {
    /// A runtime with its own thread, so that busy runs do not delay the channels. `None` if no channel needs it.
    runtime: Option<Runtime>,
    /// The files, which all runs share.
    files: Vec<Arc<JsonLines>>,
    makers: Vec<PerRunChannel>,
    opened: Mutex<Vec<Opened>>,
    notices: Notices,
}

impl Channels {
    fn runtime(&mut self) -> Result<&Runtime, CliError> {
        if self.runtime.is_none() {
            let built = Builder::new_multi_thread().worker_threads(1).thread_name("channels").enable_all().build();
            let cannot = |error: io::Error| CliError::internal("cannot start the channels").because(&error);
            self.runtime = Some(built.map_err(cannot)?);
        }
        self.runtime.as_ref().ok_or_else(|| CliError::internal("the channels have no runtime"))
    }

    /// Opens the channels of one run. Each run has its own webhook channels and starts its own programs. All runs
    /// share the files.
    pub(crate) fn open_for_run(&self) -> Result<Attached, CliError> {
        let channels = self.files.iter().map(|file| file.clone() as Arc<dyn Channel>).collect();
        let mut attached = Attached { channels, programs: Vec::new() };
        let Some(runtime) = &self.runtime else { return Ok(attached) };
        for maker in &self.makers {
            let opened = match maker {
                PerRunChannel::Webhook(webhook) => {
                    let channel = WebhookChannel::start(runtime.handle(), (**webhook).clone(), self.notices.clone());
                    Opened::Webhook(Arc::new(channel))
                }
                PerRunChannel::Program(words) => {
                    let started = ProgramChannel::start(runtime.handle(), words, self.notices.clone());
                    let cannot = |error: io::Error| {
                        CliError::wrong(format!("cannot start the channel `{}`", words.join(" "))).because(&error)
                    };
                    let program = Arc::new(started.map_err(cannot)?);
                    attached.programs.push(program.clone());
                    Opened::Program(program)
                }
            };
            attached.channels.push(opened.channel());
            let mut all = self.opened.lock();
            all.retain(|opened| !opened.is_done());
            all.push(opened);
        }
        Ok(attached)
    }

    /// Waits until the webhooks have received all events and the programs have ended, but no longer than their time
    /// limits.
    pub(crate) fn close(&self) {
        let opened = std::mem::take(&mut *self.opened.lock());
        if let Some(runtime) = &self.runtime {
            runtime.block_on(join_all(opened.iter().map(Opened::close)));
        }
    }
}

/// The channels of one run.
pub(crate) struct Attached {
    pub(crate) channels: Vec<Arc<dyn Channel>>,
    programs: Vec<Arc<ProgramChannel>>,
}

impl Attached {
    /// Returns whether a channel can send answers to the run.
    pub(crate) fn can_answer(&self) -> bool {
        !self.programs.is_empty()
    }

    /// Drives the run until it ends or parks. After the end of all programs no channel can answer, so the run then
    /// parks as soon as it needs an answer.
    pub(crate) async fn drive_run(&self, runner: FlowRunner) -> RunResult {
        let hub = runner.hub();
        let mut run = pin!(runner.run());
        let programs = join_all(self.programs.iter().map(|program| program.ended()));
        tokio::select! {
            biased;
            result = &mut run => return result,
            _ = programs, if self.can_answer() => {}
        }
        let (result, ()) = tokio::join!(run, hub.leave_unattended());
        result
    }
}

impl Opened {
    fn channel(&self) -> Arc<dyn Channel> {
        match self {
            Opened::Webhook(channel) => channel.clone(),
            Opened::Program(channel) => channel.clone(),
        }
    }

    async fn close(&self) {
        match self {
            Opened::Webhook(channel) => channel.close(GRACE).await,
            Opened::Program(channel) => channel.close().await,
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Opened::Webhook(channel) => channel.is_done(),
            Opened::Program(channel) => channel.is_done(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_channel_arguments_are_parsed() {
        let program = |words: &[&str]| ChannelSpec::Program(words.iter().map(|word| (*word).to_owned()).collect());
        let table = [
            ("terminal", ChannelSpec::Terminal),
            ("console", ChannelSpec::Terminal),
            ("jsonl:a b.jsonl", ChannelSpec::JsonLines("a b.jsonl".into())),
            ("webhook:https://example.com/a:b", ChannelSpec::Webhook("https://example.com/a:b".into())),
            ("exec:./voice.sh", program(&["./voice.sh"])),
            (
                "exec: say --to 'two words' \"a \\\" b\" c\\ d ''",
                program(&["say", "--to", "two words", "a \" b", "c d", ""]),
            ),
        ];
        for (text, spec) in table {
            assert_eq!(text.parse(), Ok(spec), "{text}");
        }
    }

    #[test]
    fn invalid_channel_arguments_are_refused_with_a_reason() {
        let table = [
            ("webhok:https://example.com", "did you mean `webhook`?"),
            ("sound", "write `terminal`"),
            ("terminal:x", "takes no argument"),
            ("terminl", "did you mean `terminal`?"),
            ("webhook:", "such as `webhook:https://example.com/hook`"),
            ("jsonl", "such as `jsonl:events.jsonl`"),
            ("exec:", "such as `exec:"),
            ("exec:say 'hello", "is not closed"),
            ("exec:say \\", "escapes nothing"),
        ];
        for (text, sentence) in table {
            let why = text.parse::<ChannelSpec>().unwrap_err();
            assert!(why.contains(sentence), "{text}: {why}");
        }
    }
}
