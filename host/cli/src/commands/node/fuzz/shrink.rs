//! Makes inputs smaller.

use serde_json::Value;

/// Maximum number of places in a value that are made smaller.
const MAX_PLACES: usize = 400;

/// A change that makes a place of a value smaller.
enum Change {
    Set(Value),
    /// Keeps the first or the second half of a list, or of the letters of a text.
    KeepHalf(bool),
    WithoutMember(String),
    WithoutItem(usize),
    /// Drops the last letter of a text.
    WithoutLast,
    /// Replaces all letters by `a`.
    PlainText,
}

/// Returns smaller values one by one, those with the largest cuts first. None is larger than the value or equal to it.
pub(super) fn smaller(value: &Value) -> impl Iterator<Item = Value> + use<'_> {
    let size = weight(value);
    let changes = places(value).into_iter().flat_map(|(pointer, place)| {
        let changes = changes_of(place);
        changes.into_iter().map(move |change| (pointer.clone(), change))
    });
    changes.filter_map(move |(pointer, change)| {
        let mut smaller = value.clone();
        apply(smaller.pointer_mut(&pointer)?, change);
        Some(smaller).filter(|smaller| weight(smaller) < size)
    })
}

/// Returns the size of a value as text, and then its number of letters other than the plainest.
fn weight(value: &Value) -> (usize, usize) {
    let text = value.to_string();
    (text.len(), text.bytes().filter(|byte| !matches!(byte, b'a' | b'0')).count())
}

/// Returns the places of a value with their JSON pointers, level by level.
fn places(value: &Value) -> Vec<(String, &Value)> {
    let mut places = vec![(String::new(), value)];
    let mut next = 0;
    while let Some((pointer, place)) = places.get(next).cloned() {
        next += 1;
        let inner: Vec<(String, &Value)> = match place {
            Value::Object(members) => members
                .iter()
                .map(|(key, value)| (format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")), value))
                .collect(),
            Value::Array(items) => {
                items.iter().enumerate().map(|(index, value)| (format!("{pointer}/{index}"), value)).collect()
            }
            _ => continue,
        };
        let room = MAX_PLACES.saturating_sub(places.len());
        places.extend(inner.into_iter().take(room));
    }
    places
}

fn changes_of(place: &Value) -> Vec<Change> {
    match place {
        Value::Object(members) => {
            let whole = (members.len() > 1).then(|| Change::Set(Value::Object(Default::default())));
            whole.into_iter().chain(members.keys().cloned().map(Change::WithoutMember)).collect()
        }
        Value::Array(items) if items.is_empty() => Vec::new(),
        Value::Array(items) => {
            let cuts = [Change::Set(Value::Array(Vec::new())), Change::KeepHalf(true), Change::KeepHalf(false)];
            cuts.into_iter().chain((0..items.len()).map(Change::WithoutItem)).collect()
        }
        Value::String(_) => {
            let halves = [Change::KeepHalf(true), Change::KeepHalf(false)];
            let cuts = [Change::Set("".into())].into_iter().chain(halves);
            cuts.chain([Change::WithoutLast, Change::PlainText]).collect()
        }
        Value::Number(number) => {
            let half = number.as_i64().map(|number| Change::Set((number / 2).into()));
            [Change::Set(0.into())].into_iter().chain(half).collect()
        }
        Value::Bool(_) | Value::Null => Vec::new(),
    }
}

fn apply(place: &mut Value, change: Change) {
    match (change, place) {
        (Change::Set(value), place) => *place = value,
        (Change::KeepHalf(first), Value::Array(items)) => {
            let second = items.split_off(items.len() / 2);
            if !first {
                *items = second;
            }
        }
        (Change::KeepHalf(first), Value::String(text)) => {
            let letters: Vec<char> = text.chars().collect();
            let (one, two) = letters.split_at(letters.len() / 2);
            *text = if first { one } else { two }.iter().collect();
        }
        (Change::WithoutMember(key), Value::Object(members)) => {
            members.remove(&key);
        }
        (Change::WithoutItem(index), Value::Array(items)) => {
            items.remove(index);
        }
        (Change::WithoutLast, Value::String(text)) => {
            text.pop();
        }
        (Change::PlainText, Value::String(text)) => *text = "a".repeat(text.chars().count()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the smallest value that a test accepts.
    fn smallest(mut value: Value, is_bad: impl Fn(&Value) -> bool) -> Value {
        loop {
            let next = smaller(&value).find(|smaller| is_bad(smaller));
            let Some(next) = next else { return value };
            value = next;
        }
    }

    #[test]
    fn values_become_as_small_as_the_mistake_allows() {
        let value = json!({ "name": "x".repeat(1000), "n": 1234, "list": [[1, "é"], { "a~/b": true }, 3], "no": null });
        let long = |value: &Value| value["name"].as_str().is_some_and(|name| name.chars().count() > 10);
        let found = smallest(value.clone(), long);
        let name = found["name"].as_str().unwrap_or_default();
        assert!(found.as_object().is_some_and(|members| members.len() == 1), "{found}");
        assert!(name.len() == 11 && name.chars().all(|letter| letter == 'a'), "{found}");
        let flagged = smallest(value, |value| value.to_string().contains("true"));
        assert_eq!(flagged, json!({ "list": [{ "a~/b": true }] }));
    }

    #[test]
    fn each_value_is_smaller_and_a_huge_one_is_not_copied_without_end() {
        let value = json!({ "list": vec!["\u{202e}x"; 3000], "deep": [[[[[[0]]]]]] });
        assert!(smaller(&value).take(100).all(|smaller| smaller.to_string().len() < value.to_string().len()));
        assert!(places(&value).len() <= MAX_PLACES);
        assert_eq!(smaller(&json!({})).count(), 0);
    }
}
