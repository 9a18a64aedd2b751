//! Enforces the budget of the current check on a thread.
//!
//! The validator accesses the value through [`tree`](crate::tree), which counts each visit. A check that exceeds its
//! budget stops by unwinding, because the validator has no other exit. No panic hook runs.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    time::Duration,
};

use crate::{Budget, DEPTH, NODES, PATTERN_STEPS, TIME, clock::thread_time};

/// Maximum number of bytes of the stack that a check may use.
const MAX_STACK_BYTES: usize = 512 * 1024;
/// Number of visits between two readings of the clock.
const VISITS_PER_CLOCK_READ: u64 = 256;
/// Number of pattern steps that count as one visit.
const STEPS_PER_VISIT: u64 = 256;

/// The limit that a schema, or a check against it, exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooCostly {
    /// The check needs more visits than its budget has.
    #[error("the check needs more visits to the value than its budget allows; use fewer overlapping alternatives")]
    Visits,
    /// Checking or compiling takes more CPU time than [`TIME`], or than the budget allows.
    #[error("the schema takes more than {} s of CPU time; simplify it", TIME.as_secs())]
    Time,
    /// The check needs more than 512 KiB of stack.
    #[error("the schema refers to itself too deeply for this value; use fewer references between its parts")]
    Stack,
    /// The product of a text's bytes and its pattern's positions exceeds [`PATTERN_STEPS`].
    #[error(
        "the size of a text times the size of its pattern exceeds {PATTERN_STEPS}; use fewer repetitions in the pattern, or set `maxLength`"
    )]
    Pattern,
    /// The patterns of the schema are too large in total.
    #[error("the total size of its patterns is too large; use fewer repetitions in them")]
    Patterns,
    /// The schema has too many subschemas after unfolding.
    #[error("it has more than {NODES} parts with unfolded references; refer to fewer schemas, or to `true`")]
    Nodes,
    /// The schemas are nested too deeply, references included.
    #[error("it is nested deeper than {DEPTH}, including its references")]
    Depth,
}

struct Meter {
    left: Cell<u64>,
    /// The CPU time of the thread at which the time of the check is over.
    until: Cell<Duration>,
    /// Stack address at the start of the check.
    stack: Cell<usize>,
    key_positions: Cell<u64>,
}

thread_local! {
    static METER: Meter =
        const { Meter { left: Cell::new(0), until: Cell::new(Duration::MAX), stack: Cell::new(0), key_positions: Cell::new(0) } };
}

/// The panic payload that carries the exceeded limit through the validator.
struct Stop(TooCostly);

/// Calls `work` within a budget. Returns its result, or the limit that it exceeded. `key_positions` is the number of
/// positions of the largest pattern in `patternProperties`.
pub(crate) fn with_budget<T>(budget: Budget, key_positions: u64, work: impl FnOnce() -> T) -> Result<T, TooCostly> {
    METER.with(|meter| {
        meter.left.set(budget.visits);
        meter.until.set(thread_time().saturating_add(budget.time));
        meter.stack.set(stack_address());
        meter.key_positions.set(key_positions);
    });
    // Validators are immutable, so unwinding leaves no inconsistent state.
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Ok(done),
        Err(payload) => match payload.downcast::<Stop>() {
            Ok(stop) => Err(stop.0),
            Err(other) => panic::resume_unwind(other),
        },
    }
}

/// Subtracts visits from the budget of the current check, and stops the check if too few are left.
pub(crate) fn spend(visits: u64) {
    METER.with(|meter| {
        let left = meter.left.get();
        let Some(rest) = left.checked_sub(visits) else { stop(TooCostly::Visits) };
        meter.left.set(rest);
        if meter.stack.get().abs_diff(stack_address()) > MAX_STACK_BYTES {
            stop(TooCostly::Stack);
        }
        if left / VISITS_PER_CLOCK_READ != rest / VISITS_PER_CLOCK_READ {
            stop_if_time_is_over(meter);
        }
    });
}

/// Stops the check if its time is over.
pub(crate) fn check_time() {
    METER.with(stop_if_time_is_over);
}

fn stop_if_time_is_over(meter: &Meter) {
    if thread_time() >= meter.until.get() {
        stop(TooCostly::Time);
    }
}

/// Subtracts the cost of matching a text against a pattern from the budget. Call it before the match, because a match
/// cannot be interrupted.
pub(crate) fn spend_match(bytes: usize, positions: u64) {
    let steps = (bytes as u64).saturating_mul(positions);
    if steps > PATTERN_STEPS {
        stop(TooCostly::Pattern);
    }
    spend(1 + steps / STEPS_PER_VISIT);
}

/// Subtracts from the budget the cost of matching an object's key against the patterns in `patternProperties`.
pub(crate) fn spend_key(bytes: usize) {
    spend_match(bytes, METER.with(|meter| meter.key_positions.get()).max(1));
}

/// Stops the check by unwinding the stack to [`with_budget`], which returns the reason.
pub(crate) fn stop(reason: TooCostly) -> ! {
    panic::resume_unwind(Box::new(Stop(reason)))
}

/// Returns an address on the current stack.
#[inline]
fn stack_address() -> usize {
    let place = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&place)).addr()
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::sync::mpsc;

    use super::*;

    /// Runs work with 20 ms of CPU time.
    fn timed(work: impl FnOnce()) -> Result<(), TooCostly> {
        let budget = Budget { visits: 1, time: Duration::from_millis(20) };
        with_budget(budget, 0, || {
            work();
            check_time();
        })
    }

    #[test]
    fn only_the_time_counts_in_which_the_thread_computes() {
        let (_sender, receiver) = mpsc::channel::<()>();
        // A busy machine lets the thread wait, too.
        assert_eq!(timed(|| _ = receiver.recv_timeout(Duration::from_millis(60))), Ok(()));
        let computes = || loop {
            check_time();
        };
        assert_eq!(timed(computes), Err(TooCostly::Time));
    }
}
