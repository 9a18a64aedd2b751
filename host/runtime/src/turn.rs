//! Limits the time for which the expressions of one driver occupy a thread of the runtime.
//!
//! A turn is one poll of a driver: its work from one wait to the next. Small evaluations happen at once, on the
//! driver's thread. If an evaluation exceeds the work of its turn, [`Compute`] repeats the evaluation where it delays
//! no other run, as soon as the scheduler gives computing time to the tenant.

use std::{cell::Cell, future::poll_fn, pin::pin, sync::Arc};

use flowcell_contract::Failure;
use flowcell_expr::{ExprError, metered};

use crate::limits::{PLACE_WORK, STEP_WORK, TURN_WORK};

/// Runs a long computation where it delays no other run. Fails without running it if too many such computations are in
/// progress.
pub(crate) type Compute = Arc<dyn Fn(&mut dyn FnMut()) -> Result<(), Failure> + Send + Sync>;

thread_local! {
    /// The turn of the driver that is polled on this thread.
    static TURN: Cell<Option<Turn>> = const { Cell::new(None) };
}

/// The work that remains for the expressions of one turn.
struct Turn {
    compute: Compute,
    /// The work that expressions may still do on the driver's thread, without `compute`.
    here: u64,
    /// The work that expressions may still do in total.
    left: u64,
}

/// Polls a future that drives a run. Each poll is a turn, with new limits of work.
pub(crate) async fn in_turns<T>(compute: Compute, drive: impl Future<Output = T>) -> T {
    /// Restores the previous turn, also when the driver panics.
    struct Before(Option<Turn>);
    impl Drop for Before {
        fn drop(&mut self) {
            TURN.set(self.0.take());
        }
    }
    let mut drive = pin!(drive);
    poll_fn(|context| {
        let turn = Turn { compute: compute.clone(), here: TURN_WORK, left: STEP_WORK };
        let _before = Before(TURN.replace(Some(turn)));
        drive.as_mut().poll(context)
    })
    .await
}

/// Evaluates the expressions of one part of a flow: a node's input, its config, a condition, or the outputs.
pub(crate) fn evaluate<T>(work: impl Fn() -> Result<T, ExprError>) -> Result<T, ExprError> {
    let Some(mut turn) = TURN.take() else { return metered(PLACE_WORK, work).result };
    let first = metered(turn.here, &work);
    turn.here = turn.here.saturating_sub(first.work);
    let mut result = first.result;
    if first.is_exhausted {
        let most = PLACE_WORK.min(turn.left);
        let computed = (turn.compute.clone())(&mut || {
            let whole = metered(most, &work);
            turn.left = turn.left.saturating_sub(whole.work);
            result = whole.result;
        });
        if let (Err(failure), Err(error)) = (computed, &mut result) {
            error.message = failure.message;
        }
    }
    TURN.set(Some(turn));
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::sync::atomic::{AtomicU32, Ordering};

    use flowcell_contract::{Json, code};
    use flowcell_expr::Binding;

    use super::*;

    /// Renders this number of members. Each takes a quarter of the work that one turn allows.
    fn render(members: u64) -> Result<Json, ExprError> {
        let text = Json::from("a".repeat(TURN_WORK as usize / 4));
        let roots = Json::object([("s", text)]);
        let members = (0..members).map(|index| (index.to_string(), Json::from("{{ s | length }}")));
        let binding = Binding::compile(&Json::object(members)).unwrap();
        evaluate(|| binding.render(&roots))
    }

    #[tokio::test]
    async fn expressions_that_do_much_wait_for_their_turn_to_compute() {
        let may = Arc::new(AtomicU32::new(2));
        let (left, taken) = (|| may.load(Ordering::Relaxed), may.clone());
        let compute: Compute = Arc::new(move |work| {
            let less = |left: u32| left.checked_sub(1);
            let before = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            before.map_err(|_| Failure::new(code::LIMIT_EXCEEDED, "too many"))?;
            work();
            Ok(())
        });
        in_turns(compute, async {
            assert!(render(3).is_ok() && left() == 2, "little is done at once");
            assert!(render(3).is_ok() && left() == 1, "what a turn has done before counts");
            tokio::task::yield_now().await;
            assert!(render(3).is_ok() && left() == 1, "each turn may do as much");
            assert!(render(3).is_ok() && left() == 0);
            assert_eq!(render(3).unwrap_err().message, "too many");
        })
        .await;
        let most = 4 * PLACE_WORK / TURN_WORK;
        assert!(render(most - 8).is_ok());
        assert!(render(most).unwrap_err().message.contains("do too much work in total"));
    }
}
