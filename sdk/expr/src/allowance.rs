//! Limits the total work of several evaluations on one thread. The unit of work is that of [`crate::limits::WORK`].

use std::cell::Cell;

use crate::json::Json;

thread_local! {
    /// The work that the evaluations inside [`metered`] may still do; `None` outside of `metered`, where work is not
    /// counted.
    static REMAINING_WORK: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The result of [`metered`].
pub struct Metered<T> {
    /// The value that the function passed to [`metered`] returned.
    pub result: T,
    /// The work of all evaluations in that function, in units of [`crate::limits::WORK`]; at most the limit.
    pub work: u64,
    /// True if all evaluations together exceeded the limit, so that at least one of them failed.
    pub is_exhausted: bool,
}

/// Calls `evaluate`, and counts the work of all evaluations that `evaluate` makes. Together they may do at most
/// `max_work`, in units of [`crate::limits::WORK`]. An evaluation that would exceed this limit fails.
pub fn metered<T>(max_work: u64, evaluate: impl FnOnce() -> T) -> Metered<T> {
    /// Restores the counter of an enclosing [`metered`] on drop, even if `evaluate` panics.
    struct RestoreOnDrop(Option<u64>);
    impl Drop for RestoreOnDrop {
        fn drop(&mut self) {
            REMAINING_WORK.set(self.0);
        }
    }
    // One unit more than the limit. If the counter reaches 0, the evaluations exceeded the limit.
    let start = max_work.saturating_add(1);
    let before = RestoreOnDrop(REMAINING_WORK.replace(Some(start)));
    let result = evaluate();
    let left = REMAINING_WORK.get().unwrap_or_default();
    drop(before);
    Metered { result, work: max_work.min(start - left), is_exhausted: left == 0 }
}

/// Subtracts work from the work that [`metered`] still allows on this thread. Returns false if the limit is now
/// exceeded. Returns true if it is not, or if work is not counted on this thread.
pub(crate) fn spend(amount: u64) -> bool {
    let Some(left) = REMAINING_WORK.get() else { return true };
    let rest = left.saturating_sub(amount);
    REMAINING_WORK.set(Some(rest));
    rest > 0
}

/// Subtracts the work of reading every part of a value. Returns the same as [`spend`].
pub(crate) fn spend_reading(value: &Json) -> bool {
    match REMAINING_WORK.get() {
        Some(left) => spend(value.work(left)),
        None => true,
    }
}

/// The message of an evaluation that fails because the limit is exceeded.
pub(crate) const EXHAUSTED: &str = "the expressions here do too much work in total";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{Binding, Condition, limits::EVALUATION_WORK};

    fn roots() -> Json {
        let deep = (0..100).fold(Json::array([]), |inner, _| Json::array([inner]));
        let many = Json::array((0..1_000).map(|_| deep.clone()));
        Json::object([("l", many.clone()), ("m", many), ("s", Json::from("a".repeat(1_000)))])
    }

    /// Returns the work of rendering an expression.
    fn work_of(source: &str) -> u64 {
        let binding = Binding::compile(&Json::from(source)).unwrap();
        metered(u64::MAX - 1, || binding.render(&roots()).unwrap()).work
    }

    #[test]
    fn filters_and_compared_parts_count_as_work() {
        assert!(work_of("{{ s is defined }}") >= EVALUATION_WORK);
        assert!(work_of("{{ l | unique | length }}") >= 16_000);
        let parts = 100_000 * 16;
        for source in ["{{ l == m }}", "{{ 1 in l }}", "{{ s in l }}", "{{ l in [m, m] }}"] {
            assert!(work_of(source) >= parts, "{source}: {}", work_of(source));
        }
        for condition in [r#"{"equals":{"var":"l","value":[]}}"#, r#"{"in":{"var":"s","values":"{{ l }}"}}"#] {
            let condition = Condition::compile(&Json::parse(condition).unwrap()).unwrap();
            let metered = metered(u64::MAX - 1, || condition.evaluate(&roots()).unwrap());
            assert!(metered.work >= parts, "{}", metered.work);
        }
    }

    #[test]
    fn evaluations_share_one_limit() {
        let members = (0..4).map(|index| (index.to_string(), Json::from("{{ s | upper | length }}")));
        let binding = Binding::compile(&Json::object(members)).unwrap();
        let whole = metered(u64::MAX - 1, || binding.render(&roots())).work;
        let enough = metered(whole, || binding.render(&roots()));
        assert!(!enough.is_exhausted && enough.result.is_ok() && enough.work == whole);
        let less = metered(whole - 1, || binding.render(&roots()));
        assert!(less.is_exhausted && less.work < whole);
        assert_eq!(less.result.unwrap_err().message, EXHAUSTED);
        // Outside of `metered`, work is not counted.
        assert!(spend(u64::MAX) && binding.render(&roots()).is_ok());
    }
}
