//! Prints the result of a fuzz run.

use std::fmt::Write as _;

use flowcell::contract::code::{INVALID_INPUT, TIMEOUT};
use serde_json::{Value, json};

use super::{Finding, FuzzArgs, Fuzzed, text::ascii_json};
use crate::{
    arguments::shell_word,
    cli_error::CliError,
    commands::node::subject::Subject,
    output::{put, put_json},
    terminal::{counted, inert},
};

/// Maximum size in bytes of an input that a command repeats. A larger one is written to a file with `--save`.
const MAX_SHOWN_BYTES: usize = 4_096;

pub(super) fn print(args: &FuzzArgs, subject: &Subject, fuzzed: &Fuzzed) -> Result<(), CliError> {
    if args.json { put_json(&as_json(args, subject, fuzzed)) } else { put(&as_text(args, subject, fuzzed)) }
}

fn as_json(args: &FuzzArgs, subject: &Subject, fuzzed: &Fuzzed) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "code": finding.code,
            "message": finding.message,
            "round": finding.round,
            "input": finding.input,
            "firstBytes": finding.first_bytes,
            "runs": finding.runs,
            "command": command(args, subject, finding),
        })
    };
    json!({
        "type": subject.node.full_name(),
        "seed": args.seed,
        "rounds": fuzzed.rounds,
        "roundsAsked": args.rounds,
        "seconds": fuzzed.took.as_secs_f64(),
        "outcomes": fuzzed.outcomes,
        "findings": fuzzed.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

fn as_text(args: &FuzzArgs, subject: &Subject, fuzzed: &Fuzzed) -> String {
    let (name, seconds) = (subject.node.full_name(), fuzzed.took.as_secs_f64());
    let mut text = format!("{}  {} inputs of seed {} in {seconds:.1} s", inert(&name), fuzzed.rounds, args.seed);
    if fuzzed.rounds < args.rounds {
        // Writing to a string does not fail.
        let _ = write!(text, "; the time is over, so {} were not tried", args.rounds - fuzzed.rounds);
    }
    text.push('\n');
    for (outcome, count) in &fuzzed.outcomes {
        let _ = writeln!(text, "  {count:>6}  {}{}", inert(outcome), note(subject, fuzzed, outcome));
    }
    for finding in &fuzzed.findings {
        let _ = writeln!(text, "\n{}: {}", inert(&finding.code), inert(&finding.message));
        let bytes = finding.input.to_string().len();
        let runs = counted(finding.runs, "run");
        let _ = writeln!(text, "  input {}: {bytes} bytes, {} before {runs}", finding.round, finding.first_bytes);
        match command(args, subject, finding) {
            Some(command) => {
                let _ = writeln!(text, "  {}", inert(&command));
            }
            None => {
                text.push_str("  too large for a command line: `--save FILE` writes it, `--input-file FILE` reads it\n")
            }
        }
    }
    if fuzzed.findings.is_empty() {
        text.push_str("\nno traps, no timeouts, and no outputs that do not fit the schema\n");
    }
    text
}

/// Returns the meaning of an outcome that its name does not tell.
fn note(subject: &Subject, fuzzed: &Fuzzed, outcome: &str) -> &'static str {
    let is_finding = fuzzed.findings.iter().any(|finding| finding.code == outcome);
    let is_declared = subject.node.errors.iter().any(|error| error.code == outcome);
    match outcome {
        "succeeded" | "waits" => "",
        INVALID_INPUT => "  (the schema refuses the input)",
        _ if is_finding => "  (see below)",
        _ if is_declared => "",
        _ => "  (not among the `errors` of the manifest)",
    }
}

/// Returns the command that repeats a finding. Returns `None` if its input is too large.
fn command(args: &FuzzArgs, subject: &Subject, finding: &Finding) -> Option<String> {
    let input = ascii_json(&finding.input);
    if input.len() > MAX_SHOWN_BYTES {
        return None;
    }
    let node_type = shell_word(&args.subject.node_type);
    let mut text = format!("printf '%s' {} | flowcell node run {node_type} --input-file -", shell_word(&input));
    let mut add = |option: &str, value: &str| text.extend([" ", option, " ", &*shell_word(value)]);
    let config = subject.case.config.as_ref().and_then(|config| config.as_object()).into_iter().flatten();
    config.for_each(|(key, value)| add("--config", &format!("{key}={}", ascii_json(&value.to_serde()))));
    let grants = subject.case.grants.iter();
    grants.for_each(|(name, grant)| add("--grant", &format!("{name}={}", ascii_json(grant))));
    args.subject.packs.packs.iter().for_each(|packs| add("--packs", &packs.display().to_string()));
    if finding.code == TIMEOUT {
        add("--timeout-ms", &args.timeout_ms.to_string());
    }
    Some(text)
}
