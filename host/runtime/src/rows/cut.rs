//! Large values: cut out of the text of a row, stored once for each content, and put back on reading.
//!
//! A *cut* is a value that was moved from the text into a blob. A *hole* is the `null` that stays in its place. A
//! *repeat* is a value that equals an earlier value of the same row and is not written again. For example, when a pass
//! ends, the fact of its end and the fact that wakes its owner may contain the same value. A repeat also leaves a hole.
//!
//! A value is cut if its text is larger than [`MAX_INLINE_BYTES`], not counting the parts that were cut inside of it.
//! So each cut is as small as possible, and a large part is the same blob in every place: in an output, in the input of
//! the next node, in an item of a list. Blobs hold plain JSON, with holes for the parts that were cut inside of them.
//! The row lists the positions of all holes.
//!
//! Values are cut and put back as text, without parsing. The result is the same to the byte.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    limits::{MAX_INLINE_BYTES, MIN_REPEATED_BYTES},
    ports::blob_ref,
};

/// The hash of a content, and the content.
type Blob = (Arc<str>, String);

/// The text of a hole.
const HOLE: &str = "null";

/// Nesting levels around a member of a fact: the list of facts, the fact, and its members:
/// `[{"TaskSucceeded":{"output":…}}]`.
const LEVELS_AROUND_MEMBERS: usize = 3;
/// Nesting levels of a text that are searched for repeats. The limit keeps deep values as cheap as flat ones.
const MAX_REPEAT_LEVELS: usize = 16;

/// The row of a text whose large values are in blobs.
#[derive(Debug, PartialEq)]
pub(crate) struct ExternalizedRow {
    /// The text that stays in the row.
    pub(crate) text: String,
    /// The positions of the cut values, as JSON, if there are any.
    pub(crate) cuts: Option<String>,
    /// The cut values, each once.
    pub(crate) blobs: Vec<Blob>,
}

/// One cut. A row lists all of its cuts; the cuts inside a cut follow it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Cut {
    /// The byte of the text at which the hole begins.
    at: usize,
    /// The hash of the cut content.
    blob: Arc<str>,
    /// The number of following cuts inside of this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    inside: usize,
}

/// A value that equals an earlier value of the row. `from` is a position in the text with all repeats put back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Repeat {
    /// The byte at which the hole begins, in the text without repeats.
    at: usize,
    /// The byte at which the first copy begins, in the text with all repeats put back.
    from: usize,
    /// The length of each copy in bytes.
    bytes: usize,
}

/// The content of a row's column `cuts`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum CutList {
    /// The row repeats no value.
    Cuts(Vec<Cut>),
    /// The row repeats values. The reader puts the repeats back first, and then the cuts.
    Both { repeats: Vec<Repeat>, cuts: Vec<Cut> },
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl ExternalizedRow {
    /// Cuts the large values and the repeats out of a list of facts. Only members of facts, and values inside them,
    /// are cut.
    pub(crate) fn of_facts(text: String) -> Result<ExternalizedRow, serde_json::Error> {
        let (text, cuts, blobs) = cut(text, LEVELS_AROUND_MEMBERS);
        let repeats = find_repeats(&text, &cuts);
        if repeats.is_empty() {
            return ExternalizedRow::new(text, cuts, blobs);
        }
        let mut left = String::with_capacity(text.len());
        let mut end = 0;
        let repeats = repeats.into_iter().map(|(start, from, bytes)| {
            left.push_str(&text[end..start]);
            end = start + bytes;
            let at = left.len();
            left.push_str(HOLE);
            Repeat { at, from, bytes }
        });
        let missing = CutList::Both { repeats: repeats.collect(), cuts };
        left.push_str(&text[end..]);
        Ok(ExternalizedRow { text: left, cuts: Some(serde_json::to_string(&missing)?), blobs })
    }

    /// Cuts the large values out of a JSON text without spaces. The whole text may become one cut.
    pub(crate) fn of_value(text: String) -> Result<ExternalizedRow, serde_json::Error> {
        let (text, cuts, blobs) = cut(text, 0);
        ExternalizedRow::new(text, cuts, blobs)
    }

    fn new(text: String, cuts: Vec<Cut>, blobs: Vec<Blob>) -> Result<ExternalizedRow, serde_json::Error> {
        let cuts = if cuts.is_empty() { None } else { Some(serde_json::to_string(&CutList::Cuts(cuts))?) };
        Ok(ExternalizedRow { text, cuts, blobs })
    }
}

/// Cuts the large values of a text that have at least `depth` levels around them. Returns the remaining text, the
/// cuts and the blobs.
fn cut(text: String, depth: usize) -> (String, Vec<Cut>, Vec<Blob>) {
    if text.len() <= MAX_INLINE_BYTES {
        return (text, Vec::new(), Vec::new());
    }
    let mut cutter = Cutter { text: &text, holes: Vec::new(), blobs: Vec::new() };
    walk(&text, |start, end, found| {
        if found >= depth {
            cutter.close(start, end);
        }
    });
    let Cutter { holes, mut blobs, .. } = cutter;
    if holes.is_empty() {
        return (text, Vec::new(), blobs);
    }
    let (left, cuts) = without(&text, 0, text.len(), holes);
    let mut seen = HashSet::new();
    blobs.retain(|(hash, _)| seen.insert(hash.clone()));
    (left, cuts, blobs)
}

/// Finds the values of at least [`MIN_REPEATED_BYTES`] that equal an earlier value. For each, in order, returns its
/// position, the position of the first copy, and the length of a copy in bytes. Skips values with a hole, because all
/// holes have the same text.
fn find_repeats(text: &str, cuts: &[Cut]) -> Vec<(usize, usize, usize)> {
    if text.len() < 2 * MIN_REPEATED_BYTES {
        return Vec::new();
    }
    let mut holes = Vec::new();
    let mut rest = cuts;
    while let Some((cut, after)) = rest.split_first() {
        holes.push(cut.at);
        rest = after.get(cut.inside..).unwrap_or_default();
    }
    let has_hole = |start: usize, end: usize| {
        holes.get(holes.partition_point(|hole| *hole < start)).is_some_and(|hole| *hole < end)
    };
    let mut values = Vec::new();
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    walk(text, |start, end, depth| {
        let searched = (LEVELS_AROUND_MEMBERS..LEVELS_AROUND_MEMBERS + MAX_REPEAT_LEVELS).contains(&depth);
        if searched && end - start >= MIN_REPEATED_BYTES && !has_hole(start, end) {
            values.push((start, Reverse(end)));
            *lengths.entry(end - start).or_default() += 1;
        }
    });
    // The outer of two values comes first, so that one repeat covers as much as possible.
    values.retain(|(start, Reverse(end))| lengths.get(&(end - start)).is_some_and(|count| *count > 1));
    values.sort_unstable();
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut repeats: Vec<(usize, usize, usize)> = Vec::new();
    for (start, Reverse(end)) in values {
        if repeats.last().is_some_and(|(before, _, bytes)| start < before + bytes) {
            continue;
        }
        let value = &text[start..end];
        match seen.get(value) {
            Some(from) => repeats.push((start, *from, end - start)),
            None => drop(seen.insert(value, start)),
        }
    }
    repeats
}

/// Calls `close` with the start, the end and the depth of each string, list and object in a JSON text, except for keys.
/// Inner values come before outer ones.
fn walk(text: &str, mut close: impl FnMut(usize, usize, usize)) {
    let bytes = text.as_bytes();
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => {
                at = end_of_string(bytes, at);
                if bytes.get(at) != Some(&b':') {
                    close(start, at, open.len());
                }
            }
            b'{' | b'[' => open.push(start),
            b'}' | b']' => {
                let Some(start) = open.pop() else { return };
                close(start, at, open.len());
            }
            _ => {}
        }
    }
}

/// Cuts values when it finds their ends.
struct Cutter<'a> {
    text: &'a str,
    /// The outermost cuts so far, in order.
    holes: Vec<Hole>,
    blobs: Vec<Blob>,
}

/// A part of the text that was cut out.
struct Hole {
    start: usize,
    end: usize,
    /// The cut itself, followed by the cuts inside it.
    cuts: Vec<Cut>,
}

impl Cutter<'_> {
    /// Cuts a value if its text is larger than [`MAX_INLINE_BYTES`], not counting the parts that are already cut inside
    /// it.
    fn close(&mut self, start: usize, end: usize) {
        if end - start <= MAX_INLINE_BYTES {
            return;
        }
        let before = self.holes.partition_point(|hole| hole.start < start);
        let holes: usize = self.holes[before..].iter().map(|hole| hole.end - hole.start - HOLE.len()).sum();
        if end - start - holes <= MAX_INLINE_BYTES {
            return;
        }
        let (text, inner) = without(self.text, start, end, self.holes.split_off(before));
        let blob = blob_ref(text.as_bytes(), "").file_id;
        let mut cuts = vec![Cut { at: 0, blob: blob.clone(), inside: inner.len() }];
        cuts.extend(inner);
        self.blobs.push((blob, text));
        self.holes.push(Hole { start, end, cuts });
    }
}

/// Returns the position after the quote that ends a string.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(next) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))) {
        at += next;
        if bytes[at] == b'"' {
            return at + 1;
        }
        // An escaped character does not end the string.
        at += 2;
    }
    bytes.len()
}

/// Returns a part of a text with holes in place of its cuts, and the cuts with positions relative to the start of the
/// part.
fn without(text: &str, start: usize, end: usize, holes: Vec<Hole>) -> (String, Vec<Cut>) {
    let (mut left, mut cuts) = (String::new(), Vec::new());
    let mut at = start;
    for hole in holes {
        left.push_str(&text[at..hole.start]);
        let mut inner = hole.cuts;
        inner[0].at = left.len();
        cuts.append(&mut inner);
        left.push_str(HOLE);
        at = hole.end;
    }
    left.push_str(&text[at..end]);
    (left, cuts)
}

/// Returns the whole text of a row: puts its repeats and its cuts back. `cuts` is the row's column of this name.
/// `blob` returns the content of a blob by its hash.
pub(crate) fn fill(
    text: &str,
    cuts: &str,
    mut blob: impl FnMut(&str) -> Result<Arc<str>, String>,
) -> Result<String, String> {
    let missing = serde_json::from_str(cuts).map_err(|error| format!("its list of large values: {error}"))?;
    let (repeats, cuts) = match missing {
        CutList::Cuts(cuts) => (Vec::new(), cuts),
        CutList::Both { repeats, cuts } => (repeats, cuts),
    };
    let text = repeat(text, &repeats).ok_or_else(does_not_fit)?;
    let mut whole = String::new();
    let mut cuts = cuts.as_slice();
    fill_part(&mut whole, &text, &mut cuts, usize::MAX, &mut blob)?;
    Ok(whole)
}

fn does_not_fit() -> String {
    "its list of large values does not fit".to_owned()
}

/// Puts the repeats back into a text. `None`: the positions do not fit the text.
fn repeat<'a>(text: &'a str, repeats: &[Repeat]) -> Option<Cow<'a, str>> {
    if repeats.is_empty() {
        return Some(Cow::Borrowed(text));
    }
    let mut whole = String::new();
    let mut rest = 0;
    for Repeat { at, from, bytes } in repeats {
        whole.push_str(text.get(rest..*at)?);
        let copy = whole.get(*from..from.checked_add(*bytes)?)?.to_owned();
        whole.push_str(&copy);
        rest = at.checked_add(HOLE.len())?;
        text.get(*at..rest).filter(|hole| *hole == HOLE)?;
    }
    whole.push_str(text.get(rest..)?);
    Some(Cow::Owned(whole))
}

/// Appends a text to `whole`, and puts back the next `count` cuts of the list: the cuts of the text and those inside
/// them. Removes these cuts from the list.
fn fill_part(
    whole: &mut String,
    text: &str,
    cuts: &mut &[Cut],
    count: usize,
    blob: &mut impl FnMut(&str) -> Result<Arc<str>, String>,
) -> Result<(), String> {
    let all = cuts.len();
    let mut at = 0;
    while let Some((cut, rest)) = cuts.split_first().filter(|_| all - cuts.len() < count) {
        *cuts = rest;
        let before = text.get(at..cut.at).ok_or_else(does_not_fit)?;
        whole.push_str(before);
        at = cut.at + HOLE.len();
        if text.get(cut.at..at) != Some(HOLE) {
            return Err(does_not_fit());
        }
        let inner = blob(&cut.blob)?;
        fill_part(whole, &inner, cuts, cut.inside, blob)?;
    }
    whole.push_str(text.get(at..).ok_or_else(does_not_fit)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Writes a row and reads it. Returns the length of its text and the length of its list of cuts.
    fn round_trip(facts: &Value) -> (usize, usize) {
        let text = serde_json::to_string(facts).unwrap();
        let pieces = ExternalizedRow::of_facts(text.clone()).unwrap();
        let cuts = pieces.cuts.clone().unwrap_or_else(|| "[]".to_owned());
        let blobs: HashMap<_, _> = pieces.blobs.into_iter().collect();
        let blob = |hash: &str| Ok(Arc::from(blobs.get(hash).unwrap().as_str()));
        assert!(fill(&pieces.text, &cuts, blob).unwrap() == text, "{cuts}");
        (pieces.text.len(), cuts.len())
    }

    fn pass(value: &Value) -> Value {
        json!([
            { "TaskSucceeded": { "output": { "list": value } } },
            { "PassEnded": { "outcome": { "Done": value } } },
            { "TaskWoken": { "outcome": { "Ok": value } } },
        ])
    }

    #[test]
    fn a_row_has_a_repeated_value_once() {
        let once = json!([{ "id": 1, "name": "x".repeat(MIN_REPEATED_BYTES) }]);
        let (text, cuts) = round_trip(&pass(&once));
        assert!(text < MIN_REPEATED_BYTES + 200 && cuts < 150, "{text} {cuts}");
        let small = json!("x".repeat(MIN_REPEATED_BYTES - 3));
        assert_eq!(round_trip(&pass(&small)), (serde_json::to_string(&pass(&small)).unwrap().len(), 2));
    }

    #[test]
    fn values_that_differ_by_a_character_or_a_hole_are_not_repeats() {
        let (a, b) = ("a".repeat(5_000), format!("{}b", "a".repeat(4_999)));
        let (text, _) = round_trip(&json!([{ "F": { "a": a, "b": b } }]));
        assert!(text > 10_000);
        // Both lists look alike after their large texts are cut out.
        let list = |letter: &str| json!(["same".repeat(500), letter.repeat(MAX_INLINE_BYTES + 1)]);
        round_trip(&json!([{ "F": { "a": list("x"), "b": list("y"), "c": list("x"), "d": list("y") } }]));
    }

    #[test]
    fn deep_values_cost_no_more_than_flat_ones() {
        let deep = format!("{}1{}", "[".repeat(30_000), "]".repeat(30_000));
        let facts = format!(r#"[{{"F":{{"a":{deep},"b":{deep}}}}}]"#);
        let pieces = ExternalizedRow::of_facts(facts.clone()).unwrap();
        assert!(pieces.text.len() < facts.len() / 2 + 100);
        let whole = fill(&pieces.text, &pieces.cuts.unwrap(), |_| Err("no blob".into())).unwrap();
        assert!(whole == facts);
    }

    #[test]
    fn positions_outside_the_text_are_refused() {
        for (at, from, bytes) in [(6, 0, 9), (6, 1, usize::MAX), (5, 0, 1), (usize::MAX, 0, 1), (6, 0, 7)] {
            let missing = CutList::Both { repeats: vec![Repeat { at, from, bytes }], cuts: Vec::new() };
            let cuts = serde_json::to_string(&missing).unwrap();
            assert_eq!(fill(r#"["ab",null]"#, &cuts, |_| Err("no blob".into())), Err(does_not_fit()), "{cuts}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            "[a-z\\\"{}é\u{1F600}]{0,8}".prop_map(Value::from),
            (1_000..3_000_usize, "[xyé\"]").prop_map(|(length, letter)| letter.repeat(length).into()),
            Just(Value::from("z".repeat(MAX_INLINE_BYTES + 10))),
            any::<i32>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z\"]{0,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn every_row_comes_back_to_the_byte(some in prop::collection::vec(values(), 1..4), order in prop::collection::vec(0..4_usize, 0..8)) {
            let facts: Vec<_> = order.iter().filter_map(|at| some.get(*at)).map(|value| json!({ "F": { "v": value } })).collect();
            round_trip(&Value::from(facts));
        }
    }
}
