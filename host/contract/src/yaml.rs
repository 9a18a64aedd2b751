//! Error messages for YAML documents, in words that the authors of the documents understand.

use std::borrow::Cow;

use serde_yaml::{Budget, DefaultMessageFormatter, Error, MessageFormatter, budget::BudgetBreach};

/// Describes a parser's error, and shows the lines of the document around it.
pub fn yaml_error(error: &Error) -> String {
    let rendered = error.render_with_formatter(&PlainDescriptions);
    // The caller says that it is an error.
    rendered.strip_prefix("error: ").map_or_else(|| rendered.clone(), str::to_owned)
}

/// Describes a parser's error in one line, without its place.
pub fn yaml_reason(error: &Error) -> String {
    let described = yaml_error(error);
    let first = described.lines().next().unwrap_or_default();
    match first.split_once(": ") {
        Some((place, reason)) if place.starts_with("line ") => reason.to_owned(),
        _ => first.to_owned(),
    }
}

/// Replaces the names that the parser gives to expected parts of a document with plain descriptions.
struct PlainDescriptions;

impl MessageFormatter for PlainDescriptions {
    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        let words = match error {
            Error::Unexpected { expected, .. } => return expected_here(expected),
            Error::InvalidScalar { ty, .. } => return expected_here(ty),
            Error::InvalidBooleanStrict { .. } => return expected_here("boolean"),
            Error::DuplicateMappingKey { key: Some(key), .. } => return format!("the key `{key}` occurs twice").into(),
            Error::DuplicateMappingKey { key: None, .. } => "a key occurs twice",
            Error::NullIntoString { .. } => "expected a text; for the text `null` use quotes",
            Error::ExpectedStringKeyForExternallyTaggedEnum { .. }
            | Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. } => {
                "expected an object with one member, whose key names its kind"
            }
            Error::MultipleDocuments { .. } => "the file has more than one document; remove the line `---`",
            Error::QuotingRequired { value, .. } => return format!("put the text `{value}` in quotes").into(),
            Error::AliasError { error, .. } => return self.format_message(error),
            Error::AliasReplayLimitExceeded { max_total_replayed_events: most, .. } => {
                return format!("the aliases (`*name`) repeat more than {most} values; {WRITE_OUT}").into();
            }
            Error::AliasReplayStackDepthExceeded { max_depth: most, .. } => {
                return format!("aliases (`*name`) repeat each other more than {most} deep; {WRITE_OUT}").into();
            }
            Error::Budget { breach, .. } => match limit_reached(breach) {
                Some(message) => return message.into(),
                None => return DefaultMessageFormatter.format_message(error),
            },
            _ => return DefaultMessageFormatter.format_message(error),
        };
        words.into()
    }
}

/// The beginning of a message about the size of a document.
const TOO_MANY: &str = "the document, with what aliases (`*name`) repeat, has more than";
/// The advice about aliases.
const WRITE_OUT: &str = "write the values where they are needed";

/// Returns the message about a limit that a document has reached. Returns `None` for limits that no document of ours meets.
fn limit_reached(breach: &BudgetBreach) -> Option<String> {
    let most = Budget::default();
    Some(match breach {
        BudgetBreach::Depth { .. } => {
            format!("lists and objects are nested deeper than {}; nest them less deep", most.max_depth)
        }
        BudgetBreach::Nodes { .. } => format!("{TOO_MANY} {} values; leave some out", most.max_nodes),
        BudgetBreach::Events { .. } => format!("{TOO_MANY} {} parts; leave some out", most.max_events),
        BudgetBreach::ScalarBytes { .. } => {
            format!("the texts have more than {} MiB together; shorten them", most.max_total_scalar_bytes >> 20)
        }
        BudgetBreach::Aliases { .. } => {
            format!("the document has more than {} aliases (`*name`); {WRITE_OUT}", most.max_aliases)
        }
        BudgetBreach::Anchors { .. } => {
            format!("the document has more than {} anchors (`&name`); {WRITE_OUT}", most.max_anchors)
        }
        BudgetBreach::AliasAnchorRatio { .. } => format!(
            "the document has more than {} aliases (`*name`) for each anchor (`&name`); {WRITE_OUT}",
            most.alias_anchor_ratio_multiplier
        ),
        BudgetBreach::RecordedAnchorEvents { .. } => format!(
            "the values with anchors (`&name`) have more than {} parts; {WRITE_OUT}",
            most.max_recorded_anchor_events
        ),
        BudgetBreach::RecordedAnchorBytes { .. } => format!(
            "the values with anchors (`&name`) have more than {} MiB; {WRITE_OUT}",
            most.max_recorded_anchor_bytes >> 20
        ),
        BudgetBreach::MergeKeys { .. } => {
            format!("the document has more than {} merge keys (`<<`); {WRITE_OUT}", most.max_merge_keys)
        }
        BudgetBreach::Documents { .. } => "the file has more than one document; remove the line `---`".to_owned(),
        _ => return None,
    })
}

/// Returns the message for a place where the parser expects this event or type. `name` is the parser's own name for it.
fn expected_here(name: &str) -> Cow<'_, str> {
    let what = match name {
        "mapping start" | "map" => "an object, such as `{ key: value }` or `key: value` on a line of its own",
        "sequence start" | "seq" => "a list, such as `[a, b]` or lines that begin with `- `",
        "string" | "string scalar" => "a text",
        "boolean" | "bool" => "`true` or `false`",
        "floating point" | "f32" | "f64" => "a number",
        "null" => "nothing, or `null`",
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number of at least 0",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" | "an integer" => "a whole number",
        other => return format!("expected {other}").into(),
    };
    format!("expected {what}").into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::collections::BTreeMap;

    use serde::{Deserialize, de::DeserializeOwned};

    use super::{BudgetBreach, limit_reached, yaml_error, yaml_reason};

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[allow(dead_code, reason = "only whether it can be read counts")]
    enum Choice {
        One(u32),
    }

    #[test]
    fn limits_are_named_with_their_numbers_and_what_to_do() {
        let deep = format!("{}{}", "[".repeat(70), "]".repeat(70));
        let many = format!("[{}1]", "1,".repeat(250_000));
        let bomb = (1..9).fold("- &x0 [1, 1]\n".to_owned(), |text, at| {
            let alias = format!("*x{}", at - 1);
            format!("{text}- &x{at} [{}]\n", vec![alias; 10].join(", "))
        });
        for (text, expected) in [
            (deep, "lists and objects are nested deeper than 64; nest them less deep"),
            (many, "has more than 250000 values; leave some out"),
            (bomb, "with what aliases (`*name`) repeat, has more than"),
        ] {
            let reason = yaml_reason(&serde_yaml::from_str::<serde_json::Value>(&text).unwrap_err());
            assert!(reason.contains(expected) && !reason.contains("budget"), "{expected}: {reason}");
        }
        let ratio = limit_reached(&BudgetBreach::AliasAnchorRatio { aliases: 121, anchors: 1 }).unwrap();
        assert!(ratio.contains("more than 10 aliases (`*name`) for each anchor"), "{ratio}");
        let error = serde_yaml::from_str::<Vec<u32>>("{ a: 1 }").unwrap_err();
        assert_eq!(yaml_reason(&error), "expected a list, such as `[a, b]` or lines that begin with `- `");
    }

    fn error_message<T: DeserializeOwned + std::fmt::Debug>(text: &str) -> String {
        let told = yaml_error(&serde_yaml::from_str::<T>(text).unwrap_err());
        assert!(told.starts_with("line 1 column "), "{told}");
        told.lines().next().unwrap().rsplit_once("column ").unwrap().1.split_once(": ").unwrap().1.to_owned()
    }

    #[test]
    fn errors_are_described_in_words_for_authors() {
        type Texts = BTreeMap<String, String>;
        let object = "expected an object, such as `{ key: value }` or `key: value` on a line of its own";
        assert_eq!(error_message::<BTreeMap<String, Texts>>("a: [b]"), object);
        let list = "expected a list, such as `[a, b]` or lines that begin with `- `";
        assert_eq!(error_message::<BTreeMap<String, Vec<u32>>>("a: { b: 1 }"), list);
        assert_eq!(error_message::<Vec<u32>>("[-1]"), "expected a whole number of at least 0");
        assert_eq!(error_message::<Vec<i64>>("[x]"), "expected a whole number");
        assert_eq!(error_message::<Vec<bool>>("[x]"), "expected `true` or `false`");
        assert_eq!(error_message::<Vec<f64>>("[x]"), "expected a number");
        assert_eq!(error_message::<Texts>("{ a: b, a: c }"), "the key `a` occurs twice");
        let one = "expected an object with one member, whose key names its kind";
        assert_eq!(error_message::<Vec<Choice>>("[{}]"), one);
    }
}
