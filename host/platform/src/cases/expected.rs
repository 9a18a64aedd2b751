//! Compares values with expected values, and describes each difference in a sentence. An expected value may contain
//! matchers, such as `{ "$regex": … }`, in place of exact values.

use std::{borrow::Cow, time::Instant};

use flowcell_contract::{Json, similar};
use regex_lite::RegexBuilder;

/// Maximum number of differences that one comparison reports.
const MAX_DIFFERENCES: usize = 20;
/// Maximum number of characters of a value in a message, and of a name in a place.
const MAX_SHOWN_CHARS: usize = 200;
/// Maximum number of bytes of a place in a message. The names further in are left out.
const MAX_PLACE_BYTES: usize = 1_000;
/// Maximum size in bytes of a text that is compared with a pattern of `$regex`. With [`MAX_PATTERN_MEMORY`] it bounds
/// the time of one comparison: the time of a pattern grows with the product of both.
pub const MAX_MATCHED_BYTES: usize = 64 << 10;
/// Maximum size in bytes of a compiled pattern of `$regex`.
pub const MAX_PATTERN_MEMORY: usize = 64 << 10;

/// The matchers, each an object with one member.
const MATCHERS: [&str; 5] = ["$any", "$type", "$regex", "$contains", "$equals"];
/// The names of types that `$type` accepts.
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "list", "null"];

/// Returns a sentence for each place where the value `came` differs from the expected one. After [`MAX_DIFFERENCES`]
/// sentences, one sentence counts the others. `of` names the value in the sentences. A comparison that is not finished
/// at the time `until` ends with a sentence that says so.
pub fn differences(of: &str, expected: &Json, came: &Json, until: Option<Instant>) -> Vec<String> {
    let mut found = Found { told: Vec::new(), more: 0, until, is_late: false };
    compare(of, expected, came, Members::All, &mut found);
    let Found { told: mut found, more, is_late, .. } = found;
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    if is_late {
        found.push(format!("the comparison of {of} takes too long, and was ended: expect fewer or smaller values"));
    }
    found
}

/// The differences that a comparison has found so far.
struct Found {
    /// The sentences, at most [`MAX_DIFFERENCES`].
    told: Vec<String>,
    /// The number of further differences.
    more: usize,
    /// The time at which the comparison ends.
    until: Option<Instant>,
    /// True once the comparison has ended before it was finished.
    is_late: bool,
}

impl Found {
    fn push(&mut self, told: String) {
        match self.told.len() {
            ..MAX_DIFFERENCES => self.told.push(told),
            _ => self.more += 1,
        }
    }

    /// Returns a comparison without differences that ends at the same time.
    fn anew(&self) -> Found {
        Found { told: Vec::new(), more: 0, until: self.until, is_late: self.is_late }
    }

    /// Returns whether the time of the comparison is over.
    fn is_over(&mut self) -> bool {
        self.is_late = self.is_late || self.until.is_some_and(|until| Instant::now() >= until);
        self.is_late
    }

    /// Returns whether a part of an expected value fits a value.
    fn fits(&mut self, expected: &Json, came: &Json) -> bool {
        let mut part = self.anew();
        compare("", expected, came, Members::Some, &mut part);
        self.is_late = part.is_late;
        part.told.is_empty() && !part.is_late
    }
}

/// Returns true if a value has all expected members. The value and the objects in it may have further members.
pub fn fits(expected: &Json, came: &Json) -> bool {
    Found { told: Vec::new(), more: 0, until: None, is_late: false }.fits(expected, came)
}

/// Whether an expected object has to list all members of the value's object (`All`), or may omit some (`Some`).
#[derive(Clone, Copy, PartialEq)]
enum Members {
    All,
    Some,
}

fn compare(place: &str, expected: &Json, came: &Json, members: Members, found: &mut Found) {
    if found.is_over() {
        return;
    }
    if let Some((name, argument)) = matcher(expected) {
        return compare_matcher(place, name, argument, came, found);
    }
    if let Some((name, meant)) = misspelt(expected) {
        return found.push(format!("{place}: unknown matcher `{name}`; did you mean `{meant}`?"));
    }
    match (expected, came) {
        (Json::Object(expected), Json::Object(came)) => {
            for (key, expected) in expected.iter() {
                let place = inside(place, key);
                match came.get(key) {
                    Some(came) => compare(&place, expected, came, members, found),
                    None => found.push(format!("{place} is missing; expected {}", shown(expected))),
                }
            }
            if members == Members::All {
                let more = came.iter().filter(|(key, _)| !expected.contains_key(&**key));
                more.for_each(|(key, came)| {
                    found.push(format!("{} is unexpected: {}", inside(place, key), shown(came)));
                });
            }
        }
        (Json::Array(expected), Json::Array(came)) if expected.len() == came.len() => {
            for (index, (expected, came)) in expected.iter().zip(came.iter()).enumerate() {
                compare(&deeper(place, &format!("[{index}]")), expected, came, members, found);
            }
        }
        (Json::Array(expected_items), Json::Array(items)) => found.push(format!(
            "{place} has {} items, not {}: it is {}, not {}",
            items.len(),
            expected_items.len(),
            shown(came),
            shown(expected)
        )),
        (Json::String(expected), Json::String(came)) if expected != came => {
            found.push(text_difference(place, expected, came))
        }
        _ if expected == came => {}
        _ => found.push(format!("{place} is {}, not {}", shown(came), shown(expected))),
    }
}

/// Returns the matcher and its argument, if the expected value is an object with one matcher as its only member.
fn matcher(expected: &Json) -> Option<(&'static str, &Json)> {
    let members = expected.as_object().filter(|members| members.len() == 1)?;
    let (name, argument) = members.first()?;
    Some((MATCHERS.iter().find(|known| ***known == **name)?, argument))
}

/// If the expected value is an object whose only member has a name that begins with `$`, returns this name and the most
/// similar matcher. Returns `None` for other values, and if no matcher is similar. A test that expects such an object
/// literally has to wrap it in `$equals`.
fn misspelt(expected: &Json) -> Option<(&str, &'static str)> {
    let members = expected.as_object().filter(|members| members.len() == 1)?;
    let (name, _) = members.first().filter(|(name, _)| name.starts_with('$'))?;
    Some((name, similar(name, MATCHERS)?))
}

fn compare_matcher(place: &str, name: &str, argument: &Json, came: &Json, found: &mut Found) {
    let text = argument.as_str();
    let told = match (name, text) {
        ("$any", _) if *argument == Json::from(true) => None,
        ("$any", _) => Some(format!("{place}: `$any` must be `true`, not {}", shown(argument))),
        ("$equals", _) if argument == came => None,
        ("$equals", _) => Some(format!("{place} is {}, not {}", shown(came), shown(argument))),
        ("$type", Some(wanted)) if TYPES.contains(&wanted) => {
            let is = is_of_type(wanted, came);
            (!is).then(|| format!("{place} is {}, which is not of type {wanted}", shown(came)))
        }
        ("$type", _) => Some(format!("{place}: `$type` must be one of {}, not {}", TYPES.join(", "), shown(argument))),
        ("$regex", Some(pattern)) => regex_difference(place, pattern, came),
        ("$regex", None) => Some(format!("{place}: `$regex` must be a text, not {}", shown(argument))),
        _ => return compare_parts(place, argument, came, found),
    };
    told.into_iter().for_each(|told| found.push(told));
}

/// Returns the place of a member in a message. A long name is cut.
fn inside(place: &str, key: &str) -> String {
    deeper(place, &format!(".{}", shortened(key)))
}

/// Returns a place with one more part, or a place that ends with `…` if it is too long for another part.
fn deeper(place: &str, part: &str) -> String {
    match place.len() {
        _ if place.ends_with("[…]") => place.to_owned(),
        ..MAX_PLACE_BYTES => format!("{place}{part}"),
        _ => format!("{place}[…]"),
    }
}

fn is_of_type(wanted: &str, came: &Json) -> bool {
    match came {
        Json::Null => wanted == "null",
        Json::Bool(_) => wanted == "boolean",
        Json::Number(_) => wanted == "number" || wanted == "integer" && is_whole(came),
        Json::String(_) => wanted == "string",
        Json::Array(_) => wanted == "list",
        Json::Object(_) => wanted == "object",
    }
}

fn is_whole(number: &Json) -> bool {
    number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn regex_difference(place: &str, pattern: &str, came: &Json) -> Option<String> {
    let regex = match RegexBuilder::new(pattern).size_limit(MAX_PATTERN_MEMORY).build() {
        Ok(regex) => regex,
        Err(error) => {
            return Some(format!("{place}: `{}` is not a usable regular expression: {error}", shortened(pattern)));
        }
    };
    if let Some(long) = came.as_str().filter(|text| text.len() > MAX_MATCHED_BYTES) {
        let (bytes, most) = (long.len(), MAX_MATCHED_BYTES);
        return Some(format!("{place} has {bytes} bytes, and `$regex` compares at most {most}: use `$contains`"));
    }
    let fits = came.as_str().is_some_and(|text| regex.is_match(text));
    (!fits).then(|| format!("{place} is {}, which does not match `{}`", shown(came), shortened(pattern)))
}

/// Adds a sentence for each part that `$contains` requires and the value lacks: a part of a text, an item of a list, or
/// a member of an object.
fn compare_parts(place: &str, wanted: &Json, came: &Json, found: &mut Found) {
    match (wanted, came) {
        (Json::String(part), Json::String(text)) if text.contains(&**part) => {}
        (Json::Object(_), Json::Object(_)) => compare(place, wanted, came, Members::Some, found),
        (Json::Array(wanted), Json::Array(items)) => {
            for wanted in wanted.iter() {
                if !items.iter().any(|item| found.fits(wanted, item)) && !found.is_over() {
                    found.push(format!("{place} has no item {}", shown(wanted)));
                }
            }
        }
        (_, Json::Array(items)) if items.iter().any(|item| found.fits(wanted, item)) || found.is_over() => {}
        (_, Json::Array(_)) => found.push(format!("{place} has no item {}: it is {}", shown(wanted), shown(came))),
        _ => found.push(format!("{place} is {}, which does not contain {}", shown(came), shown(wanted))),
    }
}

/// Describes the difference between two texts. Long texts are shown from the first different character.
fn text_difference(place: &str, expected: &str, came: &str) -> String {
    let same = expected.chars().zip(came.chars()).take_while(|(one, other)| one == other).count();
    if expected.chars().count().max(came.chars().count()) <= MAX_SHOWN_CHARS {
        return format!("{place} is {came:?}, not {expected:?}");
    }
    let from = |text: &str| text.chars().skip(same).take(MAX_SHOWN_CHARS / 4).collect::<String>();
    format!(
        "{place} differs from character {} on: it continues with {:?}, not {:?}",
        same + 1,
        from(came),
        from(expected)
    )
}

/// Returns a value as JSON text, cut after [`MAX_SHOWN_CHARS`] characters.
pub fn shown(value: &Json) -> String {
    shortened(&value.to_text()).into_owned()
}

/// Returns a text, cut after [`MAX_SHOWN_CHARS`] characters.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((cut, _)) => Cow::from(format!("{}…", &text[..cut])),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).unwrap()
    }

    #[test]
    fn each_place_that_differs_is_reported() {
        for (expected, came, told) in [
            (r#"{"a":1,"b":[1,2]}"#, r#"{"b":[1,2],"a":1.0}"#, &[][..]),
            (r#"{"a":{"b":1}}"#, r#"{"a":{"b":2}}"#, &["output.a.b is 2, not 1"]),
            ("[1,2]", "[1,3]", &["output[1] is 3, not 2"]),
            ("[1]", "[1,2]", &["output has 2 items, not 1: it is [1,2], not [1]"]),
            (r#"{"a":1}"#, r#"{"b":2}"#, &["output.a is missing; expected 1", "output.b is unexpected: 2"]),
            ("null", r#""text""#, &[r#"output is "text", not null"#]),
        ] {
            assert_eq!(differences("output", &json(expected), &json(came), None), told, "{expected} {came}");
        }
        let long = Json::array((0..30u64).map(Json::from));
        let other = Json::array((0..30u64).map(|number| Json::from(number + 1)));
        assert_eq!(differences("output", &long, &other, None).last().unwrap(), "and 10 more");
        let (one, two) = ("x".repeat(300) + "one", "x".repeat(300) + "two");
        let told = differences("output", &Json::from(one), &Json::from(two), None);
        assert_eq!(told, [r#"output differs from character 301 on: it continues with "two", not "one""#]);
    }

    #[test]
    fn a_matcher_accepts_several_values() {
        let value = r#"{"id":"run-7","n":3,"f":1.5,"list":[{"a":1,"b":2},"x"],"no":null,"deep":{"a":{"b":1,"c":2}}}"#;
        for (expected, fit) in [
            (r#"{"$any":true}"#, true),
            (r#"{"$any":false}"#, false),
            (r#"{"$contains":{"n":{"$any":1}}}"#, false),
            (r#"{"$contains":{"n":3}}"#, true),
            (r#"{"$contains":{"n":4}}"#, false),
            (r#"{"$contains":{"missing":{"$any":true}}}"#, false),
            (r#"{"$contains":{"deep":{"a":{"b":1}}}}"#, true),
            (r#"{"$contains":{"deep":{"a":{"$equals":{"b":1}}}}}"#, false),
            (r#"{"$contains":{"id":{"$regex":"^run-[0-9]+$"}}}"#, true),
            (r#"{"$contains":{"id":{"$regex":"^[0-9]"}}}"#, false),
            (r#"{"$contains":{"id":{"$regex":"("}}}"#, false),
            (r#"{"$contains":{"n":{"$regex":"3"}}}"#, false),
            (r#"{"$contains":{"id":{"$contains":"un-"}}}"#, true),
            (r#"{"$contains":{"id":{"$contains":"nu"}}}"#, false),
            (r#"{"$contains":{"list":{"$contains":{"a":1}}}}"#, true),
            (r#"{"$contains":{"list":{"$contains":["x",{"b":{"$type":"integer"}}]}}}"#, true),
            (r#"{"$contains":{"list":{"$contains":["y"]}}}"#, false),
            (r#"{"$contains":{"n":{"$type":"integer"},"f":{"$type":"number"},"no":{"$type":"null"}}}"#, true),
            (r#"{"$contains":{"f":{"$type":"integer"}}}"#, false),
            (r#"{"$contains":{"f":{"$type":"float"}}}"#, false),
            (r#"{"$contains":{"list":{"$type":"list"},"deep":{"$type":"object"},"id":{"$type":"string"}}}"#, true),
            (r#"{"$equals":{"n":3}}"#, false),
        ] {
            assert_eq!(differences("outputs", &json(expected), &json(value), None).is_empty(), fit, "{expected}");
        }
        assert!(
            differences("outputs", &json(r#"{"$ref":"x"}"#), &json(r#"{"$ref":"x"}"#), None).is_empty(),
            "no matcher"
        );
        for (name, meant) in [("$regexp", "$regex"), ("$tpye", "$type"), ("$contain", "$contains")] {
            let expected = Json::object([(name, Json::from("x"))]);
            let told = format!("outputs: unknown matcher `{name}`; did you mean `{meant}`?");
            assert_eq!(differences("outputs", &expected, &expected, None), [told]);
            assert!(differences("outputs", &Json::object([("$equals", expected.clone())]), &expected, None).is_empty());
        }
        assert!(differences("outputs", &json(r#"{"$equals":{"$any":1}}"#), &json(r#"{"$any":1}"#), None).is_empty());
    }

    #[test]
    fn members_beyond_the_expected_ones_are_accepted() {
        for (expected, came, fit) in [
            (r#"{"a":{"b":1}}"#, r#"{"a":{"b":1,"c":2},"d":3}"#, true),
            (r#"{"a":1}"#, r#"{"a":2}"#, false),
            (r#"{"a":1}"#, "{}", false),
            ("[1]", "[1,2]", false),
        ] {
            assert_eq!(fits(&json(expected), &json(came)), fit, "{expected} {came}");
        }
    }

    #[test]
    fn the_memory_of_a_comparison_does_not_grow_with_names_times_differences() {
        let inner = |from: u64| Json::array((from..from + 1_000).map(Json::from));
        let name = "é".repeat(100_000);
        let named = |value: Json| Json::object([(name.as_str(), value)]);
        let told = differences("out", &named(inner(0)), &named(inner(5_000)), None);
        assert_eq!((told.len(), told[MAX_DIFFERENCES].as_str()), (MAX_DIFFERENCES + 1, "and 980 more"));
        assert!(told[0].contains("…[0] is 5000, not 0") && told[0].len() < 1_000, "{}", told[0].len());
        let told = differences("out", &Json::object::<&str>([]), &named(inner(0)), None);
        assert!(told[0].contains("… is unexpected: [0,1,") && told[0].len() < 1_000, "{}", told[0].len());
        // Each comparison keeps a limited number of sentences, however many it finds.
        let mut found = Found { told: Vec::new(), more: 0, until: None, is_late: false };
        compare("out", &named(inner(0)), &named(inner(5_000)), Members::All, &mut found);
        assert_eq!((found.told.len(), found.more), (MAX_DIFFERENCES, 980));
        let deep = |leaf: u64| (0..60).fold(Json::from(leaf), |value, _| Json::object([("n".repeat(99), value)]));
        let told = differences("out", &deep(1), &deep(2), None);
        assert!(told[0].ends_with("[…] is 2, not 1") && told[0].len() < 2 * MAX_PLACE_BYTES, "{told:?}");
    }

    #[test]
    fn a_comparison_is_bounded_in_time_whatever_the_case_expects() {
        // Patterns that take exponential time in a matcher that backtracks, and one that is too large.
        let text = Json::from("a".repeat(MAX_MATCHED_BYTES - 1) + "!");
        for pattern in ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*)*x", "((a{9}){9}){9}$"] {
            let expected = Json::object([("$regex", Json::from(pattern))]);
            let began = Instant::now();
            let told = differences("out", &expected, &text, None);
            assert!(told[0].contains("does not match") || told[0].contains("usable"), "{pattern}: {told:?}");
            assert!(began.elapsed().as_secs() < 300, "{pattern}: {:?}", began.elapsed());
        }
        let large = Json::object([("$regex", Json::from("a{999}".repeat(99)))]);
        let told = differences("out", &large, &text, None);
        assert!(told[0].contains("not a usable regular expression") && told[0].len() < 500, "{told:?}");
        let long = Json::from("a".repeat(MAX_MATCHED_BYTES + 1));
        let told = differences("out", &Json::object([("$regex", Json::from("a"))]), &long, None);
        assert_eq!(told, ["out has 65537 bytes, and `$regex` compares at most 65536: use `$contains`"]);
        // Each wanted item is compared with each item.
        let numbers = |from: u64| Json::array((from..from + 100_000).map(Json::from));
        let expected = Json::object([("$contains", numbers(0))]);
        let told = differences("out", &expected, &numbers(200_000), Some(Instant::now()));
        assert_eq!(told, ["the comparison of out takes too long, and was ended: expect fewer or smaller values"]);
    }
}
