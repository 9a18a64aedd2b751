//! Mutations of a pack's bytes.

use rand::{RngExt, rngs::StdRng};

/// Limit of the changes of one pack.
const MAX_CHANGES: usize = 6;
/// Limit of the bytes that one change moves, copies or removes.
const MAX_CHANGED_BYTES: usize = 64;
/// Numbers at the limits: lengths, indices, and LEB128 without an end.
const NUMBERS: [&[u8]; 8] = [
    &[0],
    &[0x7f],
    &[0x80, 0x01],
    &[0xff, 0xff, 0x03],
    &[0xff, 0xff, 0xff, 0xff, 0x07],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80],
    &[0xff; 10],
];
/// Words of manifests.
const WORDS: [&str; 16] = [
    "name",
    "nodes",
    "type",
    "acme.x",
    "acme.y",
    "control.if",
    "capabilities",
    "input",
    "$ref",
    "{}",
    "[]",
    "&a",
    "*a",
    "!!binary",
    "|\n",
    "1e999",
];

/// Returns a mutated pack, perhaps with parts of another one.
pub(crate) fn changed(pack: &[u8], other: &[u8], dice: &mut StdRng) -> Vec<u8> {
    let mut pack = pack.to_vec();
    for _ in 0..dice.random_range(1..=MAX_CHANGES) {
        change(&mut pack, other, dice);
    }
    pack
}

fn change(pack: &mut Vec<u8>, other: &[u8], dice: &mut StdRng) {
    let at = dice.random_range(0..=pack.len());
    let end = (at + dice.random_range(0..MAX_CHANGED_BYTES)).min(pack.len());
    match dice.random_range(0..8) {
        0 => pack.truncate(at),
        1 => drop(pack.drain(at..end)),
        2 => {
            let doubled = pack[at..end].to_vec();
            pack.splice(at..at, doubled);
        }
        3 => {
            let from = dice.random_range(0..=other.len());
            let to = (from + dice.random_range(0..MAX_CHANGED_BYTES)).min(other.len());
            pack.splice(at..end, other[from..to].iter().copied());
        }
        4 => drop(pack.splice(at..at, NUMBERS[dice.random_range(0..NUMBERS.len())].iter().copied())),
        5 => drop(pack.splice(at..at, WORDS[dice.random_range(0..WORDS.len())].bytes())),
        // A change that keeps all lengths passes the most checks.
        _ if at < pack.len() => {
            pack[at] = if dice.random() { dice.random() } else { pack[at] ^ (1 << dice.random_range(0..8)) }
        }
        _ => {}
    }
}
