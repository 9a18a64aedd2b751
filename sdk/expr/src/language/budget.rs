//! Counts the work of one evaluation. MiniJinja's fuel counts instructions, not the work of a filter on a list.

use minijinja::{Error, ErrorKind, State, Value, value::ValueKind};

use crate::{allowance, limits};

/// Bytes and items that the filters of this evaluation have processed.
struct WorkDone(usize);

/// Adds to the work of this evaluation. Returns an error above the limit.
pub(super) fn charge(state: &mut State<'_, '_>, amount: usize) -> Result<(), Error> {
    let spent = state.get_or_insert_extension(WorkDone(0));
    spent.0 = spent.0.saturating_add(amount);
    if spent.0 > limits::WORK {
        return Err(Error::new(ErrorKind::OutOfFuel, "the expression does too much work"));
    }
    match allowance::take(amount as u64) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::OutOfFuel, allowance::EXHAUSTED)),
    }
}

/// Returns the cost of processing these values once.
pub(super) fn cost(values: &[Value]) -> usize {
    let one = |value: &Value| match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        _ => value.len().unwrap_or(1).saturating_mul(limits::ITEM_WORK),
    };
    values.iter().map(one).fold(limits::ITEM_WORK, usize::saturating_add)
}
