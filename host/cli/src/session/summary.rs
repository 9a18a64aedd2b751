//! Shortens large results for a person at a terminal.

use flowcell::Json;

use crate::terminal::counted;

/// Maximum number of printed lines of results that are not shortened.
const MAX_LINES: usize = 200;
/// Maximum number of items shown of a long list, and of members shown of a large object.
const MAX_ITEMS: usize = 3;
const MAX_MEMBERS: usize = 50;
/// Maximum number of characters shown of a text.
const MAX_CHARS: usize = 400;

/// Shortens results with more than [`MAX_LINES`] lines or with a text of more than [`MAX_CHARS`] characters. Returns
/// `None` for other results.
pub(crate) fn shortened(outputs: &Json) -> Option<Json> {
    let mut budget = MAX_LINES;
    (!is_short(outputs, &mut budget)).then(|| short(outputs, true))
}

/// Returns true if a value has no text longer than [`MAX_CHARS`], and needs at most `lines` lines when it is printed
/// with indentation. Subtracts the needed lines from `lines`. A list or an object with parts needs a line for each of
/// its two brackets.
fn is_short(json: &Json, lines: &mut usize) -> bool {
    let has_parts = match json {
        Json::Array(items) => !items.is_empty(),
        Json::Object(members) => !members.is_empty(),
        _ => false,
    };
    let own = if has_parts { 2 } else { 1 };
    if *lines < own {
        return false;
    }
    *lines -= own;
    match json {
        Json::String(text) => text.chars().nth(MAX_CHARS).is_none(),
        Json::Array(items) => items.iter().all(|item| is_short(item, lines)),
        Json::Object(members) => members.values().all(|member| is_short(member, lines)),
        _ => true,
    }
}

/// Cuts the long parts of a value. At the top level, all members are kept, because they are the results of nodes.
fn short(json: &Json, is_top: bool) -> Json {
    match json {
        Json::String(text) => match text.char_indices().nth(MAX_CHARS) {
            Some((cut, _)) => {
                let left = text.chars().count() - MAX_CHARS;
                Json::from(format!("{}… {} more", &text[..cut], counted(left, "character")))
            }
            None => json.clone(),
        },
        Json::Array(items) if items.len() > MAX_ITEMS + 1 => {
            let more = Json::from(format!("… {} more items", items.len() - MAX_ITEMS));
            Json::array(items.iter().take(MAX_ITEMS).map(|item| short(item, false)).chain([more]))
        }
        Json::Array(items) => Json::array(items.iter().map(|item| short(item, false))),
        Json::Object(members) => {
            let most = if is_top { members.len() } else { MAX_MEMBERS };
            let left = members.len().saturating_sub(most);
            let more = (left > 0).then(|| ("…".into(), Json::from(format!("{} more", counted(left, "member")))));
            let shown = members.iter().take(most).map(|(name, value)| (name.clone(), short(value, false)));
            Json::object(shown.chain(more))
        }
        _ => json.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn only_large_results_are_shortened() {
        let list = |length: u64| Json::object([("each", Json::array((0..length).map(Json::from)))]);
        assert!(shortened(&list(100)).is_none());
        assert_eq!(shortened(&list(3_000)).unwrap().to_text(), r#"{"each":[0,1,2,"… 2997 more items"]}"#);
        // Limit: the printed lines, with those of brackets.
        let rows = |count: u64| {
            let row =
                || Json::object([("a", Json::from(1u64)), ("none", Json::array([])), ("b", Json::object::<&str>([]))]);
            Json::object([("rows", Json::array((0..count).map(|_| row())))])
        };
        for count in 1..100 {
            let rows = rows(count);
            let lines = serde_json::to_string_pretty(&rows).unwrap().lines().count();
            assert_eq!(shortened(&rows).is_none(), lines <= MAX_LINES, "{count} rows have {lines} lines");
        }
        let text = shortened(&Json::from("x".repeat(1_000))).unwrap();
        assert!(text.as_str().unwrap().ends_with("x… 600 characters more"), "{text:?}");
        let many = Json::object((0..500u64).map(|index| (format!("n{index}"), Json::from(index))));
        assert_eq!(shortened(&many).unwrap().as_object().unwrap().len(), 500, "every node is named");
        let inner = shortened(&Json::object([("a", many)])).unwrap();
        assert_eq!(inner.get("a").unwrap().as_object().unwrap().len(), MAX_MEMBERS + 1);
    }
}
