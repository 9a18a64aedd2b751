//! What the evaluations on one thread may do together.

use std::cell::Cell;

use crate::json::Json;

thread_local! {
    /// The work that is left; `None`: it is not counted.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// What came of work that evaluates expressions.
pub struct Metered<T> {
    /// What the work gave.
    pub result: T,
    /// How much its evaluations did, in the unit of [`crate::limits::WORK`].
    pub done: u64,
    /// Whether an evaluation failed because nothing was left.
    pub is_exhausted: bool,
}

/// Does work whose evaluations may do so much together. One that finds nothing left fails.
pub fn metered<T>(most: u64, work: impl FnOnce() -> T) -> Metered<T> {
    /// Puts back what was there, also when the work panics.
    struct Before(Option<u64>);
    impl Drop for Before {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    // One more than allowed: when it is gone, an evaluation wanted too much.
    let start = most.saturating_add(1);
    let before = Before(LEFT.replace(Some(start)));
    let result = work();
    let left = LEFT.get().unwrap_or_default();
    drop(before);
    Metered { result, done: most.min(start - left), is_exhausted: left == 0 }
}

/// Takes work from what is left. Returns whether there was enough.
pub(crate) fn take(amount: u64) -> bool {
    let Some(left) = LEFT.get() else { return true };
    let rest = left.saturating_sub(amount);
    LEFT.set(Some(rest));
    rest > 0
}

/// Takes the work of looking at every part of a value. Returns whether there was enough.
pub(crate) fn take_for(value: &Json) -> bool {
    match LEFT.get() {
        Some(left) => take(value.work(left)),
        None => true,
    }
}

/// What an evaluation says that finds nothing left.
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

    /// What an evaluation does at least.
    fn done(source: &str) -> u64 {
        let binding = Binding::compile(&Json::from(source)).unwrap();
        metered(u64::MAX - 1, || binding.render(&roots()).unwrap()).done
    }

    #[test]
    fn filters_and_every_part_that_is_compared_count() {
        assert!(done("{{ s is defined }}") >= EVALUATION_WORK);
        assert!(done("{{ l | unique | length }}") >= 16_000);
        let parts = 100_000 * 16;
        for source in ["{{ l == m }}", "{{ 1 in l }}", "{{ s in l }}", "{{ l in [m, m] }}"] {
            assert!(done(source) >= parts, "{source}: {}", done(source));
        }
        for condition in [r#"{"equals":{"var":"l","value":[]}}"#, r#"{"in":{"var":"s","values":"{{ l }}"}}"#] {
            let condition = Condition::compile(&Json::parse(condition).unwrap()).unwrap();
            let metered = metered(u64::MAX - 1, || condition.evaluate(&roots()).unwrap());
            assert!(metered.done >= parts, "{}", metered.done);
        }
    }

    #[test]
    fn evaluations_share_what_they_may_do() {
        let members = (0..4).map(|index| (index.to_string(), Json::from("{{ s | upper | length }}")));
        let binding = Binding::compile(&Json::object(members)).unwrap();
        let whole = metered(u64::MAX - 1, || binding.render(&roots())).done;
        let enough = metered(whole, || binding.render(&roots()));
        assert!(!enough.is_exhausted && enough.result.is_ok() && enough.done == whole);
        let less = metered(whole - 1, || binding.render(&roots()));
        assert!(less.is_exhausted && less.done < whole);
        assert_eq!(less.result.unwrap_err().message, EXHAUSTED);
        // Nothing is counted where nobody asks for it.
        assert!(take(u64::MAX) && binding.render(&roots()).is_ok());
    }
}
