//! Tool calls that arrive in pieces. Servers send the pieces with an index or without, and a call in one piece or in
//! many.

use std::collections::BTreeMap;

use flowcell_contract::Json;

use super::super::text_of;

/// A tool call, as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// The calls of one message, by index.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: BTreeMap<u64, Call>,
    last: u64,
}

impl Calls {
    /// Adds the pieces of one event to their calls. Returns the number of bytes of arguments in the pieces.
    pub(super) fn take(&mut self, pieces: &[Json]) -> usize {
        pieces.iter().enumerate().map(|(position, piece)| self.piece(position, pieces.len(), piece)).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.calls.values()
    }

    fn piece(&mut self, position: usize, among: usize, piece: &Json) -> usize {
        let id = text_of(piece, "id");
        let empty = Json::Null;
        let function = piece.get("function").unwrap_or(&empty);
        let name = text_of(function, "name");
        let index = match piece.get("index").and_then(Json::as_u64) {
            Some(index) => index,
            None => self.index_of(position, among, id, name),
        };
        self.last = index;
        let call = self.calls.entry(index).or_default();
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        if call.name.is_empty() {
            call.name.push_str(name);
        }
        match function.get("arguments") {
            Some(Json::String(text)) => {
                call.arguments.push_str(text);
                text.len()
            }
            // Some servers send the arguments as an object.
            Some(object @ Json::Object(_)) => {
                call.arguments = object.to_text();
                call.arguments.len()
            }
            _ => 0,
        }
    }

    /// Returns the index of the call that a piece without an index belongs to. A piece with a function name begins a
    /// new call. There is one exception: if the piece has the id of the last call, and that call has no arguments yet,
    /// the piece continues a call. Every piece without a function name continues a call, too. If the event has several
    /// pieces, the index of that call is the position of the piece in the event; otherwise it is that of the last call.
    fn index_of(&self, position: usize, among: usize, id: &str, name: &str) -> u64 {
        let last = self.calls.get(&self.last);
        let goes_on = last.is_some_and(|last| !id.is_empty() && last.id == id && last.arguments.is_empty());
        if !name.is_empty() && !goes_on {
            return self.calls.keys().next_back().map_or(0, |last| last.saturating_add(1));
        }
        if among > 1 { position as u64 } else { self.last }
    }
}

#[cfg(test)]
mod tests {
    use flowcell_contract::Json;

    use super::Calls;

    /// The case's name, the lists of pieces that arrive, and the expected calls: id, name, arguments.
    type Case = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str, &'static str)]);

    const CASES: [Case; 9] = [
        (
            "as documented",
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]"#,
                r#"[{"index":0,"function":{"arguments":"{\"k\""}}]"#,
                r#"[{"index":0,"function":{"arguments":":1}"}}]"#,
            ],
            &[("a", "f", r#"{"k":1}"#)],
        ),
        (
            "interleaved",
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f"}},{"index":1,"id":"b","function":{"name":"g"}}]"#,
                r#"[{"index":1,"function":{"arguments":"2"}}]"#,
                r#"[{"index":0,"function":{"arguments":"1"}}]"#,
            ],
            &[("a", "f", "1"), ("b", "g", "2")],
        ),
        ("whole", &[r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]"#], &[("a", "f", "{}")]),
        (
            "id and name in every piece",
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]"#,
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}]"#,
            ],
            &[("a", "f", "{}")],
        ),
        (
            "no index, one list",
            &[
                r#"[{"id":"a","function":{"name":"f","arguments":"1"}},{"id":"b","function":{"name":"g","arguments":"2"}}]"#,
            ],
            &[("a", "f", "1"), ("b", "g", "2")],
        ),
        (
            "no index, several events",
            &[
                r#"[{"id":"a","function":{"name":"f","arguments":"1"}}]"#,
                r#"[{"id":"b","function":{"name":"g","arguments":""}}]"#,
                r#"[{"function":{"arguments":"2"}}]"#,
            ],
            &[("a", "f", "1"), ("b", "g", "2")],
        ),
        (
            "no index and no ids",
            &[r#"[{"function":{"name":"f","arguments":"1"}},{"function":{"name":"f","arguments":"2"}}]"#],
            &[("", "f", "1"), ("", "f", "2")],
        ),
        (
            "arguments that are an object",
            &[r#"[{"id":"a","function":{"name":"f","arguments":{"k":1}}}]"#],
            &[("a", "f", r#"{"k":1}"#)],
        ),
        (
            "an index far away",
            &[r#"[{"index":18446744073709551615,"id":"a","function":{"name":"f","arguments":"1"}}]"#],
            &[("a", "f", "1")],
        ),
    ];

    #[test]
    fn calls_are_assembled_from_pieces_in_every_form() {
        for (what, events, expected) in CASES {
            let mut calls = Calls::default();
            for event in events {
                calls.take(Json::parse(event).unwrap().as_array().unwrap());
            }
            let found: Vec<_> =
                calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.as_str())).collect();
            assert_eq!(found, expected, "{what}");
        }
    }
}
