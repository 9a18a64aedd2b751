//! The log on standard error: for people, or a JSON object a line.

use std::{fmt, io};

use clap::ValueEnum;
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

/// What is logged if somebody asks for a log and not for what should be in it.
const USUAL: &str = "warn,flowcell::http=info,flowcell::runs=info";

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// Starts the log, if a command is told how, if `FLOWCELL_LOG` says what, or, with warnings alone, if the command drives the
/// runs of others.
pub(crate) fn start(format: Option<LogFormat>, drives: bool) {
    let filter = match (std::env::var("FLOWCELL_LOG"), format) {
        (Ok(filter), _) => EnvFilter::new(filter),
        (Err(_), Some(_)) => EnvFilter::new(USUAL),
        (Err(_), None) if drives => EnvFilter::new("warn"),
        (Err(_), None) => return,
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        Some(LogFormat::Json) => log.event_format(JsonLines).init(),
        _ => log.init(),
    }
}

/// `{ "ts", "level", "target", "message", … }`.
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

/// The fields of an event.
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
