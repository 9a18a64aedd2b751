//! The keys of states.

/// Keys of states in JSONPath.
const JSON_PATH: [&str; 12] = [
    "InputPath",
    "OutputPath",
    "Parameters",
    "Result",
    "ResultPath",
    "ResultSelector",
    "ItemsPath",
    "SecondsPath",
    "TimestampPath",
    "ErrorPath",
    "CausePath",
    "MaxConcurrencyPath",
];
/// Keys of states in JSONata.
const JSONATA: [&str; 3] = ["Arguments", "Output", "Items"];

/// Returns the keys that each state of a type may have.
fn common(kind: &str) -> &'static [&'static str] {
    match kind {
        "Fail" => &["Type", "Comment", "QueryLanguage"],
        "Succeed" => &["Type", "Comment", "QueryLanguage", "InputPath", "OutputPath", "Output"],
        "Choice" => &["Type", "Comment", "QueryLanguage", "InputPath", "OutputPath", "Output", "Assign"],
        _ => &["Type", "Comment", "QueryLanguage", "InputPath", "OutputPath", "Output", "Assign", "Next", "End"],
    }
}

/// Returns the keys that only states of a type have.
fn own(kind: &str) -> &'static [&'static str] {
    match kind {
        "Pass" => &["Result", "ResultPath", "Parameters"],
        "Wait" => &["Seconds", "Timestamp", "SecondsPath", "TimestampPath"],
        "Fail" => &["Error", "Cause", "ErrorPath", "CausePath"],
        "Choice" => &["Choices", "Default"],
        "Succeed" => &[],
        "Task" => {
            &["Resource", "Parameters", "Arguments", "ResultSelector", "ResultPath", "Retry", "Catch", "TimeoutSeconds"]
        }
        "Parallel" => &["Branches", "Parameters", "Arguments", "ResultSelector", "ResultPath", "Retry", "Catch"],
        _ => &[
            "ItemProcessor",
            "Iterator",
            "ItemsPath",
            "Items",
            "ItemSelector",
            "Parameters",
            "MaxConcurrency",
            "MaxConcurrencyPath",
            "ToleratedFailureCount",
            "ToleratedFailurePercentage",
            "ItemBatcher",
            "ResultSelector",
            "ResultPath",
            "Retry",
            "Catch",
            "Label",
        ],
    }
}

/// Returns the reason for which a key of a state has no effect; `None` if it has one.
pub(super) fn refusal(kind: &str, key: &str, is_jsonata: bool) -> Option<&'static str> {
    if !common(kind).contains(&key) && !own(kind).contains(&key) {
        Some("the key has no counterpart here; see whether it matters")
    } else if is_jsonata && JSON_PATH.contains(&key) {
        Some("a state in JSONata does not have this key; see whether it matters")
    } else if !is_jsonata && JSONATA.contains(&key) {
        Some("only states in JSONata have this key; see whether it matters")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_effect_are_refused() {
        let cases = [
            ("Pass", "Parameters", false, true),
            ("Pass", "Parameters", true, false),
            ("Pass", "Output", true, true),
            ("Pass", "Output", false, false),
            ("Wait", "SecondsPath", true, false),
            ("Succeed", "Assign", true, false),
            ("Fail", "Assign", false, false),
            ("Fail", "Next", false, false),
            ("Choice", "Assign", true, true),
            ("Map", "Items", false, false),
            ("Map", "ItemSelector", true, true),
            ("Task", "Odd", false, false),
        ];
        for (kind, key, is_jsonata, has_effect) in cases {
            assert_eq!(refusal(kind, key, is_jsonata).is_none(), has_effect, "{kind} {key} {is_jsonata}");
        }
    }
}
