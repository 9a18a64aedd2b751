//! The functions for random values. A value follows from the seed of the roots and from the place of the call, so that
//! each evaluation of the expression gives the same value.

use hmac_sha2::{Digest, Sha256};
use minijinja::{Error, State, Value, value::ValueKind};

use super::{
    budget::charge,
    call::Function,
    names::{BELOW, FRACTION, RANDOM, SHUFFLE, UUID},
    operands::{invalid, kind},
};
use crate::limits;

/// The number of bits of a fraction, as many as a number keeps exactly.
const FRACTION_BITS: u32 = 53;
/// The largest limit of a random whole number: up to it, each whole number is exact.
const MAX_BELOW: i64 = 1 << FRACTION_BITS;

/// Returns the filters that stand for the calls. Their last argument is the byte at which the call begins.
pub(super) fn functions() -> [(&'static str, Function); 4] {
    [
        (
            FRACTION,
            Function::new(2, false, |state, with| Ok(fraction(&mut Stream::new(state, "random", with.get(1)?)?))),
        ),
        (
            BELOW,
            Function::new(2, false, |state, with| {
                below(&mut Stream::new(state, "random", with.get(1)?)?, with.get(0)?)
            }),
        ),
        (
            SHUFFLE,
            Function::new(2, false, |state, with| {
                let (list, at): (Value, u64) = (with.get(0)?, with.get(1)?);
                shuffle(state, &list, at)
            }),
        ),
        (UUID, Function::new(2, false, |state, with| Ok(uuid(&mut Stream::new(state, "uuid", with.get(1)?)?)))),
    ]
}

/// Mixes the seed of the roots with the place of an expression, a JSON Pointer.
pub(super) fn seed_at(seed: &str, pointer: &str) -> String {
    hex::encode(Sha256::new().chain_update(seed).chain_update([0]).chain_update(pointer).finalize())
}

/// Random bytes.
struct Stream {
    seed: Sha256,
    block: u64,
    bytes: Vec<u8>,
}

impl Stream {
    /// Begins the stream of a call. `function` is its name, for errors, and `at` the byte at which it begins.
    fn new(state: &State<'_, '_>, function: &str, at: u64) -> Result<Stream, Error> {
        let seed = state.lookup(RANDOM).filter(|seed| seed.as_str().is_some());
        let Some(seed) = seed else {
            return Err(invalid(format!("`{function}` works only in the inputs, conditions and outputs of a flow")));
        };
        let seed = Sha256::new().chain_update(seed.as_str().unwrap_or_default()).chain_update(at.to_be_bytes());
        Ok(Stream { seed, block: 0, bytes: Vec::new() })
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        for byte in &mut taken {
            if self.bytes.is_empty() {
                self.bytes = self.seed.clone().chain_update(self.block.to_be_bytes()).finalize().to_vec();
                self.block += 1;
            }
            *byte = self.bytes.pop().unwrap_or_default();
        }
        taken
    }

    /// Returns a number below `limit`, each with the same probability but for one part in 2^64 / `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        let wide = u128::from(u64::from_be_bytes(self.take())) * u128::from(limit);
        (wide >> 64) as u64
    }
}

fn fraction(stream: &mut Stream) -> Value {
    let bits = u64::from_be_bytes(stream.take()) >> (u64::BITS - FRACTION_BITS);
    Value::from(bits as f64 / (1_u64 << FRACTION_BITS) as f64)
}

fn below(stream: &mut Stream, limit: Value) -> Result<Value, Error> {
    let whole = limit.is_integer().then(|| limit.as_i64()).flatten();
    match whole.filter(|limit| (1..=MAX_BELOW).contains(limit)) {
        Some(whole) => Ok(Value::from(stream.below(whole.unsigned_abs()))),
        None => {
            let found = if limit.is_number() { limit.to_string() } else { kind(&limit).to_owned() };
            Err(invalid(format!("`random` needs as `below` a whole number from 1 to 2^{FRACTION_BITS}, not {found}")))
        }
    }
}

/// Swaps each item with a random one before it (Fisher and Yates).
fn shuffle(state: &mut State<'_, '_>, list: &Value, at: u64) -> Result<Value, Error> {
    if !matches!(list.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Err(invalid(format!("`shuffle` needs a list, not {}", kind(list))));
    }
    let mut items: Vec<Value> = list.try_iter()?.collect();
    charge(state, items.len().saturating_mul(limits::ITEM_WORK * 2))?;
    let mut stream = Stream::new(state, "shuffle", at)?;
    for last in (1..items.len()).rev() {
        items.swap(last, stream.below(last as u64 + 1) as usize);
    }
    Ok(Value::from(items))
}

/// Returns a UUID of version 4 (RFC 9562): 122 random bits.
fn uuid(stream: &mut Stream) -> Value {
    let mut bytes: [u8; 16] = stream.take();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = hex::encode(bytes);
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    Value::from(parts.join("-"))
}
