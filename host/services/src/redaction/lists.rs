//! Keys whose parts are the items of a list: lines, characters, or bytes as numbers.

use flowcell_contract::Json;

use super::{REPLACEMENT, Redaction, WITHHELD, budget::Work};

impl Redaction {
    /// Finds keys that are spread over several items of a list. It joins the items that are texts or bytes, and
    /// searches the result. Returns the indices of the items that contain a part of such a key, and the replacement of each:
    /// all of them and [`WITHHELD`], if the search does not end.
    pub(super) fn in_parts(&self, items: &[Json], work: &Work<'_>) -> (Vec<usize>, &'static str) {
        let (mut joined, mut starts) = (Vec::new(), Vec::with_capacity(items.len()));
        for item in items {
            starts.push(joined.len());
            match part(item) {
                Some(Part::Text(text)) => joined.extend_from_slice(text.as_bytes()),
                Some(Part::Byte(byte)) => joined.push(byte),
                None => joined.push(b' '),
            }
        }
        if items.len() < 2 || !items.iter().any(|item| part(item).is_some()) {
            return (Vec::new(), REPLACEMENT);
        }
        let Some(spans) = self.search(&joined, work) else {
            work.note_withheld();
            return ((0..items.len()).filter(|index| part(&items[*index]).is_some()).collect(), WITHHELD);
        };
        let mut found = Vec::new();
        for span in spans {
            let first = starts.partition_point(|start| *start <= span.start).saturating_sub(1);
            let behind = starts.partition_point(|start| *start < span.end);
            // A key inside a single item was found there already.
            if behind - first > 1 {
                found.extend((first..behind).filter(|index| part(&items[*index]).is_some()));
            }
        }
        (found, REPLACEMENT)
    }
}

enum Part<'a> {
    Text(&'a str),
    Byte(u8),
}

fn part(item: &Json) -> Option<Part<'_>> {
    match item {
        Json::String(text) => Some(Part::Text(text)),
        Json::Number(_) => item.as_u64().and_then(|number| u8::try_from(number).ok()).map(Part::Byte),
        _ => None,
    }
}
