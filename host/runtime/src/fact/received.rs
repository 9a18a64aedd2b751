//! Digests of the inputs of attempts.

use std::io::{BufWriter, Write};

use flowcell_contract::{VALUE_BYTES, Value};
use sha2::{Digest, Sha256};

use super::{Fact, Received, TaskKey};

/// Bytes of JSON text that are hashed at a time.
const HASHED_PIECE_BYTES: usize = 4 * 1024;
/// Approximate bytes of JSON text whose digest takes at most a millisecond.
const MAX_QUICK_BYTES: u64 = 256 * 1024;

impl Received {
    /// Returns the digest of an input and a config. `None`: one of them is too large to be written as text.
    pub(crate) fn digest_of(input: &Value, config: &Value) -> Option<Received> {
        let mut out = BufWriter::with_capacity(HASHED_PIECE_BYTES, Sha256::new());
        for part in [input, config] {
            // Values share parts, so the text may be far larger than the value in memory.
            part.json().measure(VALUE_BYTES).ok()?;
            part.write_to(&mut out).and_then(|()| out.write_all(&[0])).ok()?;
        }
        let hash = out.into_inner().ok()?.finalize();
        Some(Received::Digest(hex::encode(&hash[..16]).into()))
    }

    /// Returns true if the digest takes so long that a blocking thread has to compute it.
    pub(crate) fn takes_long(input: &Value, config: &Value) -> bool {
        [input, config].iter().any(|part| part.json().measure(MAX_QUICK_BYTES).is_err())
    }
}

impl Fact {
    /// Returns the task whose attempt this fact ends or pauses, and the field for the recorded input of the attempt.
    /// `None` for other facts.
    pub(crate) fn end_of_attempt(&mut self) -> Option<(TaskKey, &mut Option<Received>)> {
        match self {
            Fact::TaskPaused { task, received, .. }
            | Fact::TaskRetrying { task, received, .. }
            | Fact::TaskSucceeded { task, received, .. }
            | Fact::TaskFailed { task, received, .. }
            | Fact::TaskCancelled { task, received }
            | Fact::TaskClosing { task, received, .. } => Some((*task, received)),
            Fact::TaskBlocked { task, reason, received } if reason.is_undo_failed() => Some((*task, received)),
            _ => None,
        }
    }
}
