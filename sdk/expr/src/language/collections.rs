//! Functions that make and change lists and objects.

use minijinja::{Error, State, Value, value::Kwargs};

use super::{
    budget::charge,
    operands::{argument, invalid},
};
use crate::limits;

/// `range(stop)` and `range(start, stop, step)`: the whole numbers from `start` to before `stop`.
pub(super) fn range(
    state: &mut State<'_, '_>,
    first: i64,
    stop: Option<i64>,
    step: Option<i64>,
    options: Kwargs,
) -> Result<Value, Error> {
    let stop = argument(stop, &options, "stop")?;
    let step = argument(step, &options, "step")?.unwrap_or(1);
    options.assert_all_used()?;
    let (start, stop) = stop.map_or((0, first), |stop| (first, stop));
    if step == 0 {
        return Err(invalid("`range` needs a step that is not 0".to_owned()));
    }
    let (distance, length) = match step > 0 {
        true => (i128::from(stop) - i128::from(start), i128::from(step)),
        false => (i128::from(start) - i128::from(stop), -i128::from(step)),
    };
    let count = usize::try_from((distance + length - 1) / length).unwrap_or(if distance < 0 { 0 } else { usize::MAX });
    charge(state, count.saturating_mul(limits::ITEM_WORK))?;
    let numbers = std::iter::successors(Some(start), |number| number.checked_add(step)).take(count);
    Ok(Value::from(numbers.map(Value::from).collect::<Vec<_>>()))
}
