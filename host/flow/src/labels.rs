//! Labels: names with values by which people find runs.

use std::{collections::BTreeMap, fmt};

use flowcell_contract::text::has_deceptive;

use crate::{
    diagnostic::Diagnostics,
    fields::{for_message, map, text_help},
    limits::{LABEL_BYTES, LABELS},
    yaml::{Kind, Tree},
};

/// The labels of a flow, a trigger or a run.
pub type Labels = BTreeMap<String, String>;

/// The reason why labels are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelError {
    /// The name is empty, too long, or has other characters.
    Name(String),
    /// The value is empty, too long, or has control characters or invisible ones.
    Value(String),
    /// The run would have too many labels.
    TooMany(usize),
}

impl fmt::Display for LabelError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabelError::Name(name) => write!(
                out,
                "the label name `{name}` is not valid; use 1 to {LABEL_BYTES} letters, digits, `-`, `_`, `.` and `/`, with a \
                 letter or a digit first"
            ),
            LabelError::Value(name) => write!(
                out,
                "the value of the label `{name}` is not valid; use 1 to {LABEL_BYTES} bytes without commas, control \
                 characters, and characters that are invisible or change the direction of the text"
            ),
            LabelError::TooMany(count) => write!(
                out,
                "the run would have {count} labels; use at most {LABELS} together with those of its flow and trigger"
            ),
        }
    }
}

impl std::error::Error for LabelError {}

/// Checks a label that a flow, a trigger or a run is to get.
pub fn check_label(name: &str, value: &str) -> Result<(), LabelError> {
    check_stored_label(name, value)?;
    if has_deceptive(value) { Err(LabelError::Value(for_message(name))) } else { Ok(()) }
}

/// Checks a label that a stored run may have. Older versions accepted values with invisible characters.
pub fn check_stored_label(name: &str, value: &str) -> Result<(), LabelError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let starts = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if !starts || name.len() > LABEL_BYTES || !name.bytes().all(plain) {
        return Err(LabelError::Name(for_message(name)));
    }
    if value.is_empty() || value.len() > LABEL_BYTES || value.chars().any(|letter| letter.is_control() || letter == ',')
    {
        return Err(LabelError::Value(for_message(name)));
    }
    Ok(())
}

/// Adds the labels `added` to the labels `to`. An added label replaces one of the same name. Fails if an added label is
/// not valid, or if there are then more than [`LABELS`].
pub fn add_labels(to: &mut Labels, added: Labels) -> Result<(), LabelError> {
    added.iter().try_for_each(|(name, value)| check_label(name, value))?;
    to.extend(added);
    if to.len() > LABELS { Err(LabelError::TooMany(to.len())) } else { Ok(()) }
}

/// Reads the member `labels` of a flow or a trigger.
pub(crate) fn read(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Labels {
    let Some(tree) = map(tree, "labels", diagnostics) else { return Labels::new() };
    let Kind::Map(entries) = &tree.kind else { return Labels::new() };
    let mut labels = Labels::new();
    for entry in entries {
        let Some(value) = entry.value.text() else {
            let message =
                format!("the label `{}` must be a text, not {}", for_message(&entry.key), entry.value.type_name());
            diagnostics.error("wrong_type", entry.value.span, message, Some(text_help(&entry.key, &entry.value)));
            continue;
        };
        match check_label(&entry.key, value) {
            Ok(()) => _ = labels.insert(entry.key.to_string(), value.to_owned()),
            Err(error @ LabelError::Name(_)) => {
                diagnostics.error("bad_label", entry.key_span, error.to_string(), None);
            }
            Err(error) => diagnostics.error("bad_label", entry.value.span, error.to_string(), None),
        }
    }
    if labels.len() > LABELS {
        let message = format!("there are {} labels", labels.len());
        diagnostics.error("too_large", tree.span, message, Some(format!("use at most {LABELS} labels")));
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_plain_texts() {
        let long = "x".repeat(LABEL_BYTES);
        let too_long = "x".repeat(LABEL_BYTES + 1);
        for (name, value) in [("team", "billing"), ("a.b/c-d_e", "ü 1; 2"), ("0", "x"), (&long, &long)] {
            assert_eq!(check_label(name, value), Ok(()), "{name}={value}");
        }
        for name in ["", "-a", "a b", "ä", "a=b", "a\n", &too_long] {
            assert!(matches!(check_label(name, "x"), Err(LabelError::Name(_))), "{name}");
        }
        for value in ["", "a\nb", "a,b", "\u{7f}", &too_long] {
            assert_eq!(check_label("a", value), Err(LabelError::Value("a".into())), "{value}");
        }
        for value in ["gold\u{202e}dlog", "a\u{200b}b", "\u{2066}a\u{2069}", "a\u{2028}b", "\u{feff}a", "\u{200f}a"] {
            assert_eq!(check_label("a", value), Err(LabelError::Value("a".into())), "{value:?}");
            assert_eq!(check_stored_label("a", value), Ok(()), "{value:?}");
        }
        assert_eq!(check_label("a", "שלום\u{200f}!"), Ok(()), "a mark of direction in its own script");
    }

    #[test]
    fn a_later_label_replaces_an_earlier_one_and_the_number_is_bounded() {
        let named = |names: std::ops::Range<usize>, value: &str| -> Labels {
            names.map(|name| (name.to_string(), value.to_owned())).collect()
        };
        let mut labels = named(0..LABELS, "flow");
        add_labels(&mut labels, named(0..1, "run")).unwrap();
        assert_eq!((labels.len(), &*labels["0"], &*labels["1"]), (LABELS, "run", "flow"));
        assert_eq!(add_labels(&mut labels, named(LABELS..LABELS + 1, "run")), Err(LabelError::TooMany(LABELS + 1)));
    }
}
