//! What every part of a dialect needs to read its fields.

use crate::{
    diagnostic::{Findings, did_you_mean, inert},
    yaml::{Entry, Kind, Tree},
};

/// A text from the flow, short and without characters that change how the message is shown.
pub(crate) fn shown(text: &str) -> String {
    let mut short = inert(&text.chars().take(64).collect::<String>());
    if text.chars().nth(64).is_some() {
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
pub(crate) fn known<'t>(entries: impl IntoIterator<Item = &'t Entry>, allowed: &[&str], findings: &mut Findings<'_>) {
    for entry in entries.into_iter().filter(|entry| !allowed.contains(&&*entry.key)) {
        let help = did_you_mean(&entry.key, allowed.iter().copied())
            .unwrap_or_else(|| format!("known here: {}", allowed.join(", ")));
        findings.error("unknown_key", entry.key_span, format!("unknown key `{}`", shown(&entry.key)), Some(help));
    }
}
