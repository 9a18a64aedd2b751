//! Prints the result of a measurement.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};

use super::{
    BASELINE, Measured,
    samples::{Part, Samples, Spread},
};
use crate::{
    cli_error::CliError,
    commands::node::subject::Subject,
    output::{put, put_json},
    terminal::inert,
};

/// The parts of the time, as people and programs read them.
const PARTS: [(&str, Part); 3] = [("instantiation", Part::Instantiation), ("call", Part::Call), ("total", Part::Total)];

pub(super) fn print(subject: &Subject, measured: &Measured, json: bool) -> Result<(), CliError> {
    if json { put_json(&as_json(subject, measured)) } else { put(&as_text(subject, measured)) }
}

fn as_json(subject: &Subject, measured: &Measured) -> Value {
    let ratio = |part| measured.node.spread(part).ratio(&measured.baseline.spread(part));
    let ratios = PARTS.map(|(name, part)| (name.to_owned(), json!(ratio(part))));
    json!({
        "type": subject.node.full_name(),
        "input": measured.input,
        "calls": measured.node.len(),
        "seconds": measured.took.as_secs_f64(),
        "attemptsPerCall": measured.node.attempts(),
        "micros": spreads(&measured.node),
        "baseline": { "type": BASELINE, "micros": spreads(&measured.baseline) },
        "ratio": ratios.into_iter().collect::<serde_json::Map<_, _>>(),
        "componentBytes": subject.component_size(),
        "memoryBytes": measured.node.memory(),
    })
}

fn spreads(samples: &Samples) -> Value {
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let spread = |Spread { median, p99 }| json!({ "median": micros(median), "p99": micros(p99) });
    Value::Object(PARTS.map(|(name, part)| (name.to_owned(), spread(samples.spread(part)))).into_iter().collect())
}

fn as_text(subject: &Subject, measured: &Measured) -> String {
    let name = subject.node.full_name();
    let (calls, seconds) = (measured.node.len(), measured.took.as_secs_f64());
    let mut text = format!("{}  {calls} calls of each type in {seconds:.1} s\n", inert(&name));
    // Writing to a string does not fail.
    let _ = writeln!(text, "input: {}\n", inert(&measured.input));
    let _ = writeln!(text, "{:15}{:>12}{:>12}{:>16}{:>12}{:>9}", "", "median", "p99", BASELINE, "p99", "ratio");
    for (title, part) in PARTS {
        let (node, baseline) = (measured.node.spread(part), measured.baseline.spread(part));
        let [median, p99, base, base_p99] = [node.median, node.p99, baseline.median, baseline.p99].map(shown);
        let ratio = node.ratio(&baseline).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}"));
        let _ = writeln!(text, "{title:15}{median:>12}{p99:>12}{base:>16}{base_p99:>12}{ratio:>9}");
    }
    if measured.node.attempts() > 1 {
        let _ = writeln!(text, "\nA call has up to {} attempts, since the node pauses.", measured.node.attempts());
    }
    let size = subject.component_size().map_or_else(|| "unknown".to_owned(), |size| format!("{size} bytes"));
    let _ = writeln!(text, "\ncomponent  {size}\nmemory     {} bytes of an instance", measured.node.memory());
    text
}

/// Formats a short time: `1.2 µs`, `34.5 ms` or `1.20 s`.
fn shown(time: Duration) -> String {
    let micros = time.as_nanos() as f64 / 1e3;
    match micros {
        ..1e3 => format!("{micros:.1} µs"),
        ..1e6 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.2} s", time.as_secs_f64()),
    }
}
