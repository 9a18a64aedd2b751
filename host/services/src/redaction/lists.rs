//! Keys whose parts are the items of a list: lines, characters, or bytes as numbers.

use flowcell_contract::Json;

use super::{Redaction, budget::Budget};

impl Redaction {
    /// Finds keys that are spread over several items of a list. It joins the items that are texts or bytes, and
    /// searches the result. Returns the indices of the items that contain a part of such a key.
    pub(super) fn in_parts(&self, items: &[Json], budget: &Budget) -> Vec<usize> {
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
            return Vec::new();
        }
        let mut found = Vec::new();
        for span in self.search(&joined, budget) {
            let first = starts.partition_point(|start| *start <= span.start).saturating_sub(1);
            let behind = starts.partition_point(|start| *start < span.end);
            // A key inside a single item was found there already.
            if behind - first > 1 {
                found.extend((first..behind).filter(|index| part(&items[*index]).is_some()));
            }
        }
        found
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
