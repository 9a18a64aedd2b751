//! The budget of the check that a thread does at the moment.
//!
//! The validator calls back into [`tree`](crate::tree) wherever it looks at the value. There each visit is counted. A check
//! that exceeds its budget is left by unwinding, because the validator has no other way out; no panic hook runs.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    time::Instant,
};

use crate::{Budget, DEPTH, NODES, PATTERN_STEPS, TIME};

/// Bytes of the stack that a check may take.
const STACK: usize = 512 * 1024;
/// Visits between two looks at the clock.
const LOOK: u64 = 256;
/// Steps of a pattern that count as one visit.
const STEPS_PER_VISIT: u64 = 256;

/// The limit that a schema, or a check against it, exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooCostly {
    /// Visits of parts of the value.
    #[error("the check visits the value more often than its budget allows; write fewer alternatives that overlap")]
    Visits,
    /// Time.
    #[error("it takes more than {} s; write a simpler schema", TIME.as_secs())]
    Time,
    /// The stack.
    #[error("the schema refers to itself too deep for this value; write fewer references between its parts")]
    Stack,
    /// A pattern and the text for it.
    #[error(
        "a text times the size of a pattern for it exceeds {PATTERN_STEPS}; repeat less in the pattern, or set `maxLength`"
    )]
    Pattern,
    /// The patterns of a schema together.
    #[error("its patterns are too large together; repeat less in them")]
    Patterns,
    /// The size of the schema.
    #[error("it has more than {NODES} parts when its references are unfolded; refer to fewer schemas, or to `true`")]
    Nodes,
    /// The depth of the schema.
    #[error("it nests, with its references, deeper than {DEPTH}")]
    Depth,
}

struct Meter {
    left: Cell<u64>,
    until: Cell<Option<Instant>>,
    /// An address on the stack where the check began.
    stack: Cell<usize>,
    key_positions: Cell<u64>,
}

thread_local! {
    static METER: Meter =
        const { Meter { left: Cell::new(0), until: Cell::new(None), stack: Cell::new(0), key_positions: Cell::new(0) } };
}

/// Carries the reason through the validator.
struct Stop(TooCostly);

/// Does something within a budget. `key_positions` is the size of the largest pattern for keys.
pub(crate) fn within<T>(budget: Budget, key_positions: u64, work: impl FnOnce() -> T) -> Result<T, TooCostly> {
    METER.with(|meter| {
        meter.left.set(budget.visits);
        meter.until.set(Instant::now().checked_add(budget.time));
        meter.stack.set(here());
        meter.key_positions.set(key_positions);
    });
    // A validator has no state of its own that a check could leave half changed.
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Ok(done),
        Err(payload) => match payload.downcast::<Stop>() {
            Ok(stop) => Err(stop.0),
            Err(other) => panic::resume_unwind(other),
        },
    }
}

/// Counts visits, and stops the check if its budget is used up.
pub(crate) fn spend(visits: u64) {
    METER.with(|meter| {
        let left = meter.left.get();
        let Some(rest) = left.checked_sub(visits) else { stop(TooCostly::Visits) };
        meter.left.set(rest);
        if meter.stack.get().abs_diff(here()) > STACK {
            stop(TooCostly::Stack);
        }
        if left / LOOK != rest / LOOK {
            look(meter);
        }
    });
}

/// Stops the check if its time is over.
pub(crate) fn look_at_clock() {
    METER.with(look);
}

fn look(meter: &Meter) {
    if meter.until.get().is_some_and(|until| Instant::now() >= until) {
        stop(TooCostly::Time);
    }
}

/// Counts matching a text against a pattern, before that is done: a match cannot be stopped.
pub(crate) fn spend_match(bytes: usize, positions: u64) {
    let steps = (bytes as u64).saturating_mul(positions);
    if steps > PATTERN_STEPS {
        stop(TooCostly::Pattern);
    }
    spend(1 + steps / STEPS_PER_VISIT);
}

/// Counts a key of an object, which the validator may match against patterns.
pub(crate) fn spend_key(bytes: usize) {
    spend_match(bytes, METER.with(|meter| meter.key_positions.get()).max(1));
}

/// Leaves the check.
pub(crate) fn stop(reason: TooCostly) -> ! {
    panic::resume_unwind(Box::new(Stop(reason)))
}

/// An address on the stack.
#[inline]
fn here() -> usize {
    let place = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&place)).addr()
}
