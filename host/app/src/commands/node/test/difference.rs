//! What is not as expected, place by place.

use flowcell::Json;

/// Places that are told.
const TOLD: usize = 20;
/// Letters of a value that are shown.
const SHOWN: usize = 200;

/// Where a value is another than expected, each place a sentence.
pub(super) fn differences(of: &str, expected: &Json, came: &Json) -> Vec<String> {
    let mut found = Vec::new();
    compare(of, expected, came, &mut found);
    if found.len() > TOLD {
        let more = found.len() - TOLD;
        found.truncate(TOLD);
        found.push(format!("and {more} more"));
    }
    found
}

fn compare(place: &str, expected: &Json, came: &Json, found: &mut Vec<String>) {
    match (expected, came) {
        (Json::Object(expected), Json::Object(came)) => {
            for (key, expected) in expected.iter() {
                let place = format!("{place}.{key}");
                match came.get(key) {
                    Some(came) => compare(&place, expected, came, found),
                    None => found.push(format!("{place} is missing, it should be {}", shown(expected))),
                }
            }
            let more = came.iter().filter(|(key, _)| !expected.contains_key(&**key));
            found.extend(more.map(|(key, came)| format!("{place}.{key} is not expected, it is {}", shown(came))));
        }
        (Json::Array(expected), Json::Array(came)) if expected.len() == came.len() => {
            for (index, (expected, came)) in expected.iter().zip(came.iter()).enumerate() {
                compare(&format!("{place}[{index}]"), expected, came, found);
            }
        }
        _ if expected == came => {}
        _ => found.push(format!("{place} is {}, not {}", shown(came), shown(expected))),
    }
}

/// Whether a value has everything that is expected, and perhaps more members.
pub(super) fn fits(expected: &Json, came: &Json) -> bool {
    match (expected, came) {
        (Json::Object(expected), Json::Object(came)) => {
            expected.iter().all(|(key, expected)| came.get(key).is_some_and(|came| fits(expected, came)))
        }
        _ => expected == came,
    }
}

/// A value as text, cut where it is long.
pub(super) fn shown(value: &Json) -> String {
    let mut text = value.to_text();
    if let Some((cut, _)) = text.char_indices().nth(SHOWN) {
        text.truncate(cut);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn each_place_that_differs_is_told() {
        let json = |text: &str| Json::parse(text).unwrap();
        for (expected, came, told) in [
            (r#"{"a":1,"b":[1,2]}"#, r#"{"b":[1,2],"a":1.0}"#, &[][..]),
            (r#"{"a":{"b":1}}"#, r#"{"a":{"b":2}}"#, &["output.a.b is 2, not 1"]),
            ("[1,2]", "[1,3]", &["output[1] is 3, not 2"]),
            ("[1]", "[1,2]", &["output is [1,2], not [1]"]),
            (r#"{"a":1}"#, r#"{"b":2}"#, &["output.a is missing, it should be 1", "output.b is not expected, it is 2"]),
            ("null", r#""text""#, &[r#"output is "text", not null"#]),
        ] {
            assert_eq!(differences("output", &json(expected), &json(came)), told, "{expected} {came}");
        }
        let long = Json::array((0..30u64).map(Json::from));
        let other = Json::array((0..30u64).map(|number| Json::from(number + 1)));
        assert_eq!(differences("output", &long, &other).last().unwrap(), "and 10 more");
    }

    #[test]
    fn more_members_than_expected_fit() {
        let json = |text: &str| Json::parse(text).unwrap();
        for (expected, came, fit) in [
            (r#"{"a":{"b":1}}"#, r#"{"a":{"b":1,"c":2},"d":3}"#, true),
            (r#"{"a":1}"#, r#"{"a":2}"#, false),
            (r#"{"a":1}"#, "{}", false),
            ("[1]", "[1,2]", false),
        ] {
            assert_eq!(fits(&json(expected), &json(came)), fit, "{expected} {came}");
        }
    }
}
