//! Checks in tests, at every step, that the parts of a driver agree with its state.

use std::collections::HashSet;

use super::Driver;
use crate::outstanding::{Outstanding, outstanding};

/// Asserts that the driver's attempts and timers are the outstanding ones of its state, and that its calls and
/// children are among the outstanding ones.
pub(super) fn check(driver: &Driver) {
    let mut attempts = HashSet::new();
    let mut timers = HashSet::new();
    let mut children = HashSet::new();
    let mut calls = HashSet::new();
    for outstanding in outstanding(&driver.state) {
        match outstanding {
            Outstanding::Attempt { task, .. } => _ = attempts.insert(task),
            Outstanding::Timer(timer, due) => _ = timers.insert((timer, due)),
            Outstanding::Child { task, .. } => _ = children.insert(task),
            Outstanding::Call { task, attempt, ordinal } => _ = calls.insert((task, attempt, ordinal)),
            _ => {}
        }
    }
    assert_eq!(attempts, driver.attempts.tasks().collect());
    assert!(driver.calls.leaving().all(|call| calls.contains(call)), "a call without an entry in the state");
    assert_eq!(timers, driver.clock.live(&driver.state));
    assert!(driver.children.tasks().all(|task| children.contains(task)), "a child without an entry in the state");
}
