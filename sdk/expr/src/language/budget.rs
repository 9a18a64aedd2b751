//! Counts the work of one evaluation. MiniJinja's fuel counts instructions, not the work of a filter on a list.

use minijinja::{Error, ErrorKind, State, Value, value::ValueKind};

use crate::{allowance, limits};

/// The message about an expression above [`limits::WORK`].
pub(super) const TOO_MUCH_WORK: &str = "the expression does too much work";

/// The work of the filters in this evaluation so far, in units of [`limits::WORK`].
struct WorkDone(usize);

/// Adds `amount`, in units of [`limits::WORK`], to the work of this evaluation. Returns an error if the evaluation has
/// thereby exceeded [`limits::WORK`], or if all evaluations on this thread have exceeded the limit of [`allowance`].
pub(super) fn charge(state: &mut State<'_, '_>, amount: usize) -> Result<(), Error> {
    let spent = state.get_or_insert_extension(WorkDone(0));
    spent.0 = spent.0.saturating_add(amount);
    if spent.0 > limits::WORK {
        return Err(Error::new(ErrorKind::OutOfFuel, TOO_MUCH_WORK));
    }
    match allowance::spend(amount as u64) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::OutOfFuel, allowance::EXHAUSTED)),
    }
}

/// Returns the work of processing these values once, in units of [`limits::WORK`].
pub(super) fn cost(values: &[Value]) -> usize {
    let one = |value: &Value| match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        _ => value.len().unwrap_or(1).saturating_mul(limits::ITEM_WORK),
    };
    values.iter().map(one).fold(limits::ITEM_WORK, usize::saturating_add)
}
