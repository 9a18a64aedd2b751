//! `acme.greet`: returns a greeting.

use crate::{
    done,
    flowcell::{
        host::log,
        node::types::{Failure, Source, Step},
    },
    text,
};

/// Returns a greeting and writes a line to the log.
pub fn run() -> Result<Step, Failure> {
    let name = text("/name")?;
    log::log(log::Level::Info, &format!("greeting {name}"));
    done(vec![("text", Source::Json(quoted(&format!("Hello {name}"))))])
}

/// Returns a text as a JSON string.
fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c.is_control() => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}
