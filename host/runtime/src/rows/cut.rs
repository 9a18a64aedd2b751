//! Large values: cut out of the text of a row, kept once by their content, and put back where they were.
//!
//! A value is cut if its text is larger than [`INLINE_BYTES`], not counting what was cut inside of it. So what is cut is as
//! small as can be, and a large part is the same blob wherever it stands: in an output, in the input of the next node, in an
//! item of a list. Blobs hold plain JSON, with `null` in the place of what was cut inside of them; where that is, the row
//! says.
//!
//! Texts are cut and put together as text: nothing is parsed, and what is put together is the same to the byte.

use std::{collections::HashSet, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{limits::INLINE_BYTES, memory::blob_ref};

/// What stands in a text where something was cut out.
const HOLE: &str = "null";

/// The list of facts, each fact, and its members stand around a value: `[{"TaskSucceeded":{"output":…}}]`.
const LEVELS_OF_FACTS: usize = 3;

/// What is written of a text.
#[derive(Debug, PartialEq)]
pub(crate) struct Pieces {
    /// What stays in the row.
    pub(crate) text: String,
    /// What was cut out of it and where, as JSON; none: nothing was.
    pub(crate) cuts: Option<String>,
    /// What was cut out, each once.
    pub(crate) blobs: Vec<(Arc<str>, String)>,
}

/// One cut. A row has all of its cuts in one list: each is followed by those inside of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Cut {
    /// The byte of the text at which the hole begins.
    at: usize,
    /// The content's hash.
    blob: Arc<str>,
    /// How many of the following were made inside of this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    inside: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Pieces {
    /// Cuts a text of JSON without spaces, which may be cut as a whole.
    pub(crate) fn of_value(text: String) -> Result<Pieces, serde_json::Error> {
        Pieces::of(text, 0)
    }

    /// Cuts a list of facts, of which only members of facts leave the row.
    pub(crate) fn of_facts(text: String) -> Result<Pieces, serde_json::Error> {
        Pieces::of(text, LEVELS_OF_FACTS)
    }

    /// Cuts what stands at least so deep.
    fn of(text: String, depth: usize) -> Result<Pieces, serde_json::Error> {
        if text.len() <= INLINE_BYTES {
            return Ok(Pieces { text, cuts: None, blobs: Vec::new() });
        }
        let mut cutter = Cutter { text: &text, open: Vec::new(), holes: Vec::new(), blobs: Vec::new() };
        cutter.cut_all(depth);
        let (holes, mut blobs) = (std::mem::take(&mut cutter.holes), std::mem::take(&mut cutter.blobs));
        if holes.is_empty() {
            return Ok(Pieces { text, cuts: None, blobs });
        }
        let (left, cuts) = without(&text, 0, text.len(), holes);
        let mut seen = HashSet::new();
        blobs.retain(|(hash, _)| seen.insert(hash.clone()));
        Ok(Pieces { text: left, cuts: Some(serde_json::to_string(&cuts)?), blobs })
    }
}

/// Walks over a text once and cuts what it has walked over.
struct Cutter<'a> {
    text: &'a str,
    /// The lists and objects around the current place: where each begins, and how many holes there were before it.
    open: Vec<(usize, usize)>,
    /// What was cut and is in no other hole, in order.
    holes: Vec<Hole>,
    blobs: Vec<(Arc<str>, String)>,
}

/// A part of the text that was cut out.
struct Hole {
    start: usize,
    end: usize,
    /// The cut itself, and after it those inside.
    cuts: Vec<Cut>,
}

impl Cutter<'_> {
    fn cut_all(&mut self, depth: usize) {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let start = at;
            at += 1;
            match byte {
                b'"' => {
                    at = end_of_string(bytes, at);
                    let is_key = bytes.get(at) == Some(&b':');
                    if !is_key && self.open.len() >= depth {
                        self.close(start, at, self.holes.len());
                    }
                }
                b'{' | b'[' => self.open.push((start, self.holes.len())),
                b'}' | b']' => {
                    let Some((start, before)) = self.open.pop() else { return };
                    if self.open.len() >= depth {
                        self.close(start, at, before);
                    }
                }
                _ => {}
            }
        }
    }

    /// A value ends. It is cut if it is large without the holes inside of it, which are those from `before` on.
    fn close(&mut self, start: usize, end: usize, before: usize) {
        if end - start <= INLINE_BYTES {
            return;
        }
        let holes: usize = self.holes[before..].iter().map(|hole| hole.end - hole.start - HOLE.len()).sum();
        if end - start - holes <= INLINE_BYTES {
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

/// The place after the quote that ends a string.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(next) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))) {
        at += next;
        if bytes[at] == b'"' {
            return at + 1;
        }
        // Whatever is escaped is no quote that ends it.
        at += 2;
    }
    bytes.len()
}

/// A part of a text without what was cut out of it, and the cuts as they are seen from its beginning.
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

/// Puts back into a text what was cut out of it.
pub(crate) fn fill(
    text: &str,
    cuts: &str,
    mut blob: impl FnMut(&str) -> Result<Arc<str>, String>,
) -> Result<String, String> {
    let cuts: Vec<Cut> = serde_json::from_str(cuts).map_err(|error| format!("its list of large values: {error}"))?;
    let mut whole = String::new();
    let mut cuts = cuts.as_slice();
    fill_part(&mut whole, text, &mut cuts, usize::MAX, &mut blob)?;
    Ok(whole)
}

/// Puts back so many cuts, and those inside of them, and takes them from the list.
fn fill_part(
    whole: &mut String,
    text: &str,
    cuts: &mut &[Cut],
    count: usize,
    blob: &mut impl FnMut(&str) -> Result<Arc<str>, String>,
) -> Result<(), String> {
    let no_hole = || "its list of large values does not fit".to_owned();
    let all = cuts.len();
    let mut at = 0;
    while let Some((cut, rest)) = cuts.split_first().filter(|_| all - cuts.len() < count) {
        *cuts = rest;
        let before = text.get(at..cut.at).ok_or_else(no_hole)?;
        whole.push_str(before);
        at = cut.at + HOLE.len();
        if text.get(cut.at..at) != Some(HOLE) {
            return Err(no_hole());
        }
        let inner = blob(&cut.blob)?;
        fill_part(whole, &inner, cuts, cut.inside, blob)?;
    }
    whole.push_str(text.get(at..).ok_or_else(no_hole)?);
    Ok(())
}
