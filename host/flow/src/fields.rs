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
            not_a_map(tree, what, findings);
            &[]
        }
    }
}

/// What should be a map is none.
pub(crate) fn not_a_map(tree: &Tree, what: &str, findings: &mut Findings<'_>) {
    let help = is_null(tree).then(|| "indent what belongs to it deeper than its key".to_owned());
    findings.error("wrong_type", tree.span, format!("{what} is a map, this is {}", tree.type_name()), help);
}

fn is_null(tree: &Tree) -> bool {
    matches!(&tree.kind, Kind::Scalar(json) if json.is_null())
}

/// Unknown keys are findings.
pub(crate) fn known(entries: &[Entry], allowed: &[&str], findings: &mut Findings<'_>) {
    known_or(entries, allowed, |_| None, findings);
}

/// Unknown keys are findings; `meant` tells what to write in place of some.
pub(crate) fn known_or(
    entries: &[Entry],
    allowed: &[&str],
    meant: impl Fn(&Entry) -> Option<String>,
    findings: &mut Findings<'_>,
) {
    let mut empty = None;
    for entry in entries {
        if allowed.contains(&&*entry.key) {
            empty = is_null(&entry.value).then_some(&entry.key).or(empty);
            continue;
        }
        let help = meant(entry)
            .or_else(|| did_you_mean(&entry.key, allowed.iter().copied()))
            .or_else(|| empty.map(|above| format!("indent it deeper, if it belongs to `{above}`")))
            .unwrap_or_else(|| format!("known here: {}", allowed.join(", ")));
        findings.error("unknown_key", entry.key_span, format!("unknown key `{}`", shown(&entry.key)), Some(help));
    }
}

/// Whether a flow can have this name.
pub(crate) fn is_flow_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}
