//! Writes the log to standard error, as text for people or as one JSON object on each line.

use std::{
    fmt,
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use clap::ValueEnum;
use flowcell::contract::text::judged;
use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// The default filter of the log if `--log-format` is given.
const DEFAULT_FILTER: &str = "warn,flowcell::http=info,flowcell::runs=info";

/// The filter of the log of other commands: warnings about the files that they store and cannot see.
const COMMAND_FILTER: &str = "off,flowcell_runtime::objects=warn";

/// Maximum number of bytes of an event in a line. A longer event is cut, and a note with the number of its other bytes
/// is added.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

/// Starts the log. Its filter is the environment variable `FLOWCELL_LOG`, or [`DEFAULT_FILTER`] if only `format` is
/// set. If neither is set, and `drives` is true (the command drives runs of other processes), the log has only
/// warnings. If neither is set and `drives` is false, only warnings about an object store are printed.
pub(crate) fn start(format: Option<LogFormat>, drives: bool) {
    // Silence the MCP library, since it logs the messages of MCP servers, which may contain keys. The library
    // of the shared store logs each failed connection, and the store logs its outages itself.
    let silent = ["rmcp=off", "sqlx=off", "sqlx_core=off"];
    let quiet = |filter: EnvFilter| {
        silent.iter().filter_map(|silent| silent.parse().ok()).fold(filter, EnvFilter::add_directive)
    };
    let chosen = std::env::var("FLOWCELL_LOG").ok();
    let is_chosen = chosen.is_some() || format.is_some() || drives;
    let filter = EnvFilter::new(match (&chosen, format) {
        (Some(filter), _) => filter.as_str(),
        (None, Some(_)) => DEFAULT_FILTER,
        (None, None) if drives => "warn",
        (None, None) => COMMAND_FILTER,
    });
    let log = tracing_subscriber::fmt().with_env_filter(quiet(filter)).with_writer(|| OneLineWriter);
    match format {
        Some(LogFormat::Json) => {
            JSON.store(true, Ordering::Relaxed);
            log.event_format(JsonLines).init();
        }
        _ if is_chosen => log.init(),
        _ => log.event_format(Warnings).init(),
    }
}

/// True if standard error takes only JSON lines.
static JSON: AtomicBool = AtomicBool::new(false);

/// Returns true if every line on standard error is one JSON object.
pub(crate) fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Writes a message of the command line as a JSON line of the log.
pub(crate) fn put_json(level: &str, message: &str) {
    let mut members = Members(Map::new());
    members.put("ts", jiff::Timestamp::now().to_string());
    members.put("level", level);
    members.put("target", "flowcell");
    members.put("message", message);
    // A failed write means that standard error is closed.
    let _ = OneLineWriter.write_all(Value::Object(members.0).to_string().as_bytes());
}

/// Writes each event to standard error as one line of limited length. Control characters are replaced, so that
/// untrusted text can forge neither a line of the log nor a terminal command.
struct OneLineWriter;

impl Write for OneLineWriter {
    /// Writes one event of the log. The subscriber calls this function once for each event, with its whole text.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let mut line = one_line(&String::from_utf8_lossy(event));
        line.push('\n');
        io::stderr().write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Returns the event as one line, without control and deceptive characters, and cut after [`MAX_LINE_BYTES`] bytes.
fn one_line(event: &str) -> String {
    let event = event.trim_end_matches('\n');
    let end = event.floor_char_boundary(MAX_LINE_BYTES);
    let plain = |(letter, deceptive): (char, bool)| match letter {
        '\t' => letter,
        letter if letter.is_control() || deceptive => '\u{fffd}',
        letter => letter,
    };
    let mut line: String = judged(&event[..end]).map(plain).collect();
    if end < event.len() {
        line.push_str(&format!("… ({} more bytes)", event.len() - end));
    }
    line
}

/// Formats an event as `{ "ts", "level", "target", "message", … }`.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut members = Members(Map::new());
        let about = event.metadata();
        members.put("ts", jiff::Timestamp::now().to_string());
        members.put("level", about.level().as_str().to_ascii_lowercase());
        members.put("target", about.target());
        event.record(&mut members);
        writeln!(writer, "{}", Value::Object(members.0))
    }
}

/// Formats an event as a warning of a command: `warning: …`.
struct Warnings;

impl<S, N> FormatEvent<S, N> for Warnings
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut members = Members(Map::new());
        event.record(&mut members);
        let message = members.0.get("message").and_then(Value::as_str).unwrap_or_default();
        writeln!(writer, "warning: {message}")
    }
}

/// The fields of an event as members of a JSON object.
struct Members(Map<String, Value>);

impl Members {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for Members {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_becomes_one_line_without_control_characters() {
        for (event, line) in [
            ("a\tb\n", "a\tb"),
            ("id=x\n2026-11-23 ERROR forged\n", "id=x\u{fffd}2026-11-23 ERROR forged"),
            ("\u{1b}[2J\u{202e}\u{7f}", "\u{fffd}[2J\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(one_line(event), line);
        }
        let long = one_line(&"ü".repeat(MAX_LINE_BYTES));
        assert!(
            long.len() < MAX_LINE_BYTES + 40 && long.ends_with("… (16384 more bytes)"),
            "{}",
            &long[MAX_LINE_BYTES..]
        );
    }
}
