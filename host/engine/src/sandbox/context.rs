//! `flowcell:node/context`: lets the guest read parts of its task, such as values in the input, by their paths.

use flowcell_contract::{Attempt, Failure, Json, PIECE_BYTES, VALUE_BYTES, Value, code, part};

use super::Sandbox;
use crate::{
    bindings::{
        context::{Host, Part},
        types,
    },
    failure::{self, Stop},
};

/// The maximum number of bytes in one read of a file.
const MAX_PIECE_BYTES: u32 = 1 << 20;

fn value_of(sandbox: &Sandbox, part: Part) -> Option<&Value> {
    match part {
        Part::Input => Some(&sandbox.attempt.input),
        Part::Config => Some(&sandbox.attempt.config),
        Part::State => sandbox.attempt.state.as_ref(),
        Part::Woken => sandbox.attempt.woken.as_ref(),
        Part::Task => Some(sandbox.task.get_or_init(|| describe_task(&sandbox.attempt))),
    }
}

fn find<'a>(sandbox: &'a Sandbox, part: Part, path: &str) -> Option<&'a Json> {
    value_of(sandbox, part)?.json().pointer(path)
}

/// Reads bytes of a file. The last piece stays in memory, so that small reads in order load each piece once.
fn read_piece(sandbox: &mut Sandbox, file: &str, offset: u64, length: u32) -> Result<Vec<u8>, Failure> {
    let not_a_file = || {
        let message = "`read-file` needs a file value; pass `{ \"kind\": \"file\", \"fileId\": … }` unchanged";
        Failure::new(code::INVALID_INPUT, message)
    };
    let blob = Value::parse(file).ok().and_then(|file| file.blob()).ok_or_else(not_a_file)?;
    let (length, mut bytes) = (length.min(MAX_PIECE_BYTES) as usize, Vec::new());
    loop {
        let at = offset.saturating_add(bytes.len() as u64);
        let number = at / PIECE_BYTES as u64;
        let piece = sandbox.open_piece(&blob, number)?;
        let some = part(piece, at % PIECE_BYTES as u64, length - bytes.len());
        bytes.extend_from_slice(some);
        // A read crosses at most one border between pieces.
        if bytes.len() == length || piece.len() < PIECE_BYTES {
            return Ok(bytes);
        }
    }
}

fn describe_task(attempt: &Attempt) -> Value {
    // JavaScript represents whole numbers up to 53 bits.
    let seed = attempt.seed >> 11;
    Value::from(Json::object([
        ("runId", Json::from(attempt.run_id.0.clone())),
        ("flow", Json::from(attempt.flow.clone())),
        ("nodeId", Json::from(attempt.node_id.0.clone())),
        ("nodeType", Json::from(attempt.node_type.clone())),
        ("scope", Json::from(attempt.scope.0.clone())),
        ("attempt", Json::from(attempt.attempt)),
        ("resumes", Json::from(attempt.resumes)),
        ("hasBody", Json::from(attempt.has_body)),
        ("nowMs", Json::from(attempt.now_ms)),
        ("seed", Json::from(seed)),
    ]))
}

impl Host for Sandbox {
    fn get_json(&mut self, part: Part, path: types::Path) -> wasmtime::Result<Option<String>> {
        let Some(found) = find(self, part, &path) else { return Ok(None) };
        // Values from bindings share their parts, but as text each part is repeated.
        if let Err(misfit) = found.measure(VALUE_BYTES) {
            return Err(Stop::from_code(
                code::INVALID_INPUT,
                format!("the part of the input that the node reads {misfit}"),
            ));
        }
        if path.is_empty() {
            // For a whole part, the value keeps its text, so repeated reads serialise it at most once.
            return Ok(value_of(self, part).map(|value| value.text().to_owned()));
        }
        Ok(Some(found.to_text()))
    }

    fn get_text(&mut self, part: Part, path: types::Path) -> wasmtime::Result<Option<String>> {
        Ok(find(self, part, &path).and_then(Json::as_str).map(str::to_owned))
    }

    fn len(&mut self, part: Part, path: types::Path) -> wasmtime::Result<Option<u32>> {
        let len = match find(self, part, &path) {
            Some(Json::Array(items)) => items.len(),
            Some(Json::Object(members)) => members.len(),
            Some(Json::String(text)) => text.len(),
            _ => return Ok(None),
        };
        Ok(Some(u32::try_from(len).unwrap_or(u32::MAX)))
    }

    fn read_file(
        &mut self,
        file: types::Json,
        offset: u64,
        length: u32,
    ) -> wasmtime::Result<Result<Vec<u8>, types::Failure>> {
        self.meter.count_call()?;
        Ok(read_piece(self, &file, offset, length).map_err(failure::to_guest))
    }
}

impl types::Host for Sandbox {}
