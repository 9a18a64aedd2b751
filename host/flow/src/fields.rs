//! What every part of a dialect needs to read its fields.

use crate::{
    diagnostic::{Findings, did_you_mean},
    yaml::{Entry, Kind, Tree},
};

/// A text from the flow, short and without characters that change how the message is shown.
pub(crate) fn shown(text: &str) -> String {
    let inert = |c: char| if c.is_control() || ('\u{200b}'..='\u{202e}').contains(&c) { '\u{fffd}' } else { c };
    let mut short: String = text.chars().take(64).map(inert).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The members of a map.
pub(crate) fn entries<'t>(tree: &'t Tree, what: &str, findings: &mut Findings<'_>) -> &'t [Entry] {
    match &tree.kind {
        Kind::Map(entries) => entries,
        _ => {
            findings.error("wrong_type", tree.span, format!("{what} is a map, this is {}", tree.type_name()), None);
            &[]
        }
    }
}

/// Unknown keys are findings.
pub(crate) fn known(entries: &[Entry], allowed: &[&str], findings: &mut Findings<'_>) {
    for entry in entries.iter().filter(|entry| !allowed.contains(&&*entry.key)) {
        let help = did_you_mean(&entry.key, allowed.iter().copied())
            .unwrap_or_else(|| format!("known here: {}", allowed.join(", ")));
        findings.error("unknown_key", entry.key_span, format!("unknown key `{}`", shown(&entry.key)), Some(help));
    }
}
