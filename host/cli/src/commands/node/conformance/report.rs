//! Prints the results of the checks.

use std::fmt::Write as _;

use flowcell::Inspection;
use serde_json::{Value, json};

use super::{
    ConformanceArgs,
    check::{Check, Finding, Findings, Tried},
};
use crate::{
    cli_error::CliError,
    output::{put, put_json},
    terminal::{counted, inert},
};

/// Maximum number of findings of one kind and check that the text prints. `--json` has all.
const MAX_SHOWN: usize = 10;

pub(super) fn print(
    args: &ConformanceArgs,
    inspection: Option<&Inspection>,
    findings: &Findings,
) -> Result<(), CliError> {
    if args.json { put_json(&as_json(args, inspection, findings)) } else { put(&as_text(args, inspection, findings)) }
}

/// Returns the verdict on a check.
fn verdict(tried: Option<&Tried>) -> &'static str {
    match tried {
        Some(tried) if !tried.failed.is_empty() => "failed",
        Some(tried) if tried.count > 0 => "passed",
        _ => "skipped",
    }
}

fn as_json(args: &ConformanceArgs, inspection: Option<&Inspection>, findings: &Findings) -> Value {
    let list = |findings: &[Finding]| -> Value {
        findings.iter().map(|finding| json!({ "subject": finding.subject, "text": finding.text })).collect()
    };
    let none = Tried::default();
    let check = |check: Check| {
        let tried = findings.of(check);
        let Tried { count, failed, skipped, notes } = tried.unwrap_or(&none);
        json!({
            "check": check.name(),
            "rule": check.rule(),
            "verdict": verdict(tried),
            "tried": count,
            "failed": list(failed),
            "skipped": list(skipped),
            "notes": list(notes),
            "mend": (!failed.is_empty()).then(|| check.mend()),
        })
    };
    json!({
        "file": args.file.display().to_string(),
        "pack": inspection.map(|inspection| inspection.manifest.name.clone()),
        "version": inspection.map(|inspection| inspection.manifest.version.to_string()),
        "digest": inspection.map(|inspection| inspection.digest.to_string()),
        "conforms": findings.is_good(),
        "checks": Check::ALL.map(check),
    })
}

fn as_text(args: &ConformanceArgs, inspection: Option<&Inspection>, findings: &Findings) -> String {
    let mut text = match inspection {
        Some(Inspection { manifest, digest, .. }) => {
            format!("{} {}  {digest}\n", inert(&manifest.name), manifest.version)
        }
        None => format!("{}\n", inert(&args.file.display().to_string())),
    };
    for check in Check::ALL {
        let tried = findings.of(check);
        let count = tried.map_or(0, |tried| tried.count);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<8} {:<14} {}; tried {count}", verdict(tried), check.name(), check.rule());
        let Some(tried) = tried else { continue };
        add(&mut text, "", &tried.failed);
        if !tried.failed.is_empty() {
            let _ = writeln!(text, "    mend: {}", check.mend());
        }
        add(&mut text, "skipped: ", &tried.skipped);
        add(&mut text, "note: ", &tried.notes);
    }
    let failed = Check::ALL.into_iter().filter(|check| verdict(findings.of(*check)) == "failed").count();
    let end = if failed == 0 { "the pack conforms".to_owned() } else { format!("{} failed", counted(failed, "check")) };
    let _ = writeln!(text, "{end}");
    text
}

fn add(text: &mut String, kind: &str, findings: &[Finding]) {
    for Finding { subject, text: told } in findings.iter().take(MAX_SHOWN) {
        let _ = writeln!(text, "    {kind}{}: {}", inert(subject), inert(told));
    }
    if findings.len() > MAX_SHOWN {
        let _ = writeln!(text, "    {kind}and {} more: `--json` has all", findings.len() - MAX_SHOWN);
    }
}
