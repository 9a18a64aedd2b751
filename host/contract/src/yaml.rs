//! Error messages for YAML documents, in words that the authors of the documents understand.

use std::borrow::Cow;

use serde_yaml::{DefaultMessageFormatter, Error, MessageFormatter};

/// Describes a parser's error, and shows the lines of the document around it.
pub fn yaml_error(error: &Error) -> String {
    let rendered = error.render_with_formatter(&PlainDescriptions);
    // The caller says that it is an error.
    rendered.strip_prefix("error: ").map_or_else(|| rendered.clone(), str::to_owned)
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
            _ => return DefaultMessageFormatter.format_message(error),
        };
        words.into()
    }
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

    use super::yaml_error;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[allow(dead_code, reason = "only whether it can be read counts")]
    enum Choice {
        One(u32),
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
