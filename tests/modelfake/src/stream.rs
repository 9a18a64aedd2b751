//! The events of an answer, in each dialect.

mod chat;
mod messages;
mod responses;

use serde_json::Value;

use crate::{Call, Dialect, Reply, Turn};

/// The number of characters in each delta, a piece of the text. Very long texts have longer deltas.
const DELTA_CHARS: usize = 4;
/// Approximate maximum number of deltas of one text.
const MAX_PIECES: usize = 10_000;

/// Returns all events of a turn, each with the empty line that ends it.
pub(crate) fn events(dialect: Dialect, turn: &Turn) -> Vec<String> {
    match dialect {
        Dialect::Messages => messages::events(turn),
        Dialect::Chat => chat::events(turn),
        Dialect::Responses => responses::events(turn),
    }
}

/// Returns the signature of the thinking. A request that repeats the thinking must repeat the signature.
pub(crate) fn signature(thinking: &str) -> String {
    let sum = thinking.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("sig-{sum:x}")
}

impl Reply {
    fn whole_text(&self) -> Option<String> {
        self.json.as_ref().map(Value::to_string).or_else(|| self.text.clone())
    }
}

impl Call {
    fn id(&self, index: usize) -> String {
        self.id.clone().unwrap_or_else(|| format!("call_{}", index + 1))
    }

    fn text(&self) -> String {
        match (&self.raw_arguments, &self.arguments) {
            (Some(raw), _) => raw.clone(),
            (None, Value::Null) => "{}".into(),
            (None, arguments) => arguments.to_string(),
        }
    }
}

fn pieces(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(DELTA_CHARS.max(letters.len() / MAX_PIECES)).map(|piece| piece.iter().collect()).collect()
}
