//! An attempt begins again only after it was evicted. The fact that ends an attempt has the digest of its input.

use std::{
    future::{pending, ready},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use flowcell_contract::{Attempt, Failure, Step, StepResult, Value, code};
use futures_util::{FutureExt, future::BoxFuture};

use super::{Answered, Attempts};
use crate::{
    driver::{
        Driver, attempt,
        testing::{begun, task},
    },
    fact::{Fact, Received},
    tests::graphs::Plan,
};

const NUMBER: (u32, u32) = (1, 0);

fn done() -> BoxFuture<'static, StepResult> {
    ready(Ok(Step::Done(Value::null()))).boxed()
}

fn begin(attempts: &mut Attempts, driver: &Driver, result: BoxFuture<'static, StepResult>) {
    let calls = Arc::new(attempt::calls(&driver.site, &driver.state, task(0), Value::null()));
    attempts.begin((task(0), NUMBER), calls, None, result);
}

fn poll(attempts: &mut Attempts) -> Poll<Answered> {
    attempts.poll(&mut Context::from_waker(Waker::noop()))
}

fn rendered(driver: &Driver) -> Result<Attempt, Failure> {
    attempt::render(&driver.identity, &driver.state, task(0), true)
}

/// Returns the input that is recorded with the success of the first task.
fn recorded(attempts: &mut Attempts) -> Option<Received> {
    let mut facts = [Fact::TaskSucceeded { task: task(0), output: Value::null(), received: None }];
    attempts.record_inputs(&mut facts);
    let [Fact::TaskSucceeded { received, .. }] = facts else { unreachable!("it stays a success") };
    received
}

#[test]
fn a_withdrawn_attempt_does_not_answer() {
    let (driver, mut attempts) = (begun(vec![Plan::Done]), Attempts::default());
    begin(&mut attempts, &driver, done());
    attempts.withdraw(task(0));
    assert!(poll(&mut attempts).is_pending() && attempts.tasks().next().is_none());
    begin(&mut attempts, &driver, done());
    let Poll::Ready(answered) = poll(&mut attempts) else { panic!("the second attempt answers") };
    assert_eq!((answered.task, answered.attempt), (task(0), NUMBER));
}

#[test]
fn an_evicted_attempt_begins_again_once() {
    let (driver, mut attempts) = (begun(vec![Plan::Hang]), Attempts::default());
    begin(&mut attempts, &driver, pending().boxed());
    assert!(!attempts.rehydrate(task(0)), "it has its instance");
    attempts.evict(task(0), NUMBER);
    assert!(attempts.calls_of(task(0)).is_none() && poll(&mut attempts).is_pending());
    assert_eq!(attempts.tasks().collect::<Vec<_>>(), [task(0)], "the task still has an attempt");
    assert!(attempts.rehydrate(task(0)));
    assert!(!attempts.rehydrate(task(0)), "the driver begins it again after the first arrival");
}

#[test]
fn only_attempts_that_wait_are_found_at_a_check() {
    let (driver, mut attempts) = (begun(vec![Plan::Hang]), Attempts::default());
    begin(&mut attempts, &driver, pending().boxed());
    attempts.check_at(20, task(0), NUMBER);
    assert_eq!((attempts.next_waiting(19), attempts.next_check()), (None, Some(20)), "it is too early");
    assert_eq!((attempts.next_waiting(20), attempts.next_check()), (None, None), "the attempt computes");
    let calls = attempts.calls_of(task(0)).unwrap().clone();
    assert!(calls.wait_forever().now_or_never().is_none());
    attempts.check_at(30, task(0), NUMBER);
    assert_eq!(attempts.next_waiting(30), Some((task(0), NUMBER)));
    assert_eq!(attempts.next_waiting(30), None, "each check finds it once");
}

#[test]
fn an_attempt_that_has_something_open_keeps_its_sandbox() {
    let (mut driver, mut attempts) = (begun(vec![Plan::Hang]), Attempts::default());
    begin(&mut attempts, &driver, pending().boxed());
    let calls = attempts.calls_of(task(0)).unwrap().clone();
    assert!(calls.wait_forever().now_or_never().is_none());
    driver.attempts = attempts;
    let open = driver.site.endings.end_of(task(0), NUMBER).on_end(|| ());
    driver.attempts.check_at(0, task(0), NUMBER);
    driver.evict_waiting();
    assert!(driver.attempts.calls_of(task(0)).is_some());
    assert!(driver.attempts.next_check().is_some_and(|due| due > 0), "it is checked again");
    drop(open);
    driver.attempts.checks.clear();
    driver.attempts.check_at(0, task(0), NUMBER);
    driver.evict_waiting();
    assert!(driver.attempts.calls_of(task(0)).is_none());
}

#[test]
fn the_end_of_an_attempt_records_its_input_once() {
    let (driver, mut attempts) = (begun(vec![Plan::Done]), Attempts::default());
    let attempt = rendered(&driver);
    let digest = attempt.as_ref().map(|attempt| Received::digest_of(&attempt.input, &attempt.config)).unwrap();
    assert!(matches!(digest, Some(Received::Digest(_))));
    assert!(attempts.remember(task(0), &attempt, false).is_none(), "a short digest is computed with the record");
    assert_eq!(recorded(&mut attempts), digest);
    assert_eq!(recorded(&mut attempts), None);

    attempts.remember(task(0), &attempt, false);
    attempts.evict(task(0), NUMBER);
    assert_eq!(recorded(&mut attempts), digest, "an evicted attempt keeps the digest");

    attempts.remember(task(0), &attempt, true);
    assert_eq!(recorded(&mut attempts), Some(Received::Nothing), "a kept output needs no input");

    attempts.remember(task(0), &Err(Failure::new(code::BAD_PACK, "no pack")), false);
    assert_eq!(recorded(&mut attempts), None, "an attempt that cannot be rendered has no input");
}

#[test]
fn an_answer_that_is_put_back_comes_out_once() {
    let (driver, mut attempts) = (begun(vec![Plan::Done]), Attempts::default());
    begin(&mut attempts, &driver, done());
    let Poll::Ready(answered) = poll(&mut attempts) else { panic!("it answers") };
    attempts.put_back(answered);
    assert!(attempts.take_back().is_some_and(|answered| answered.task == task(0)));
    assert!(attempts.take_back().is_none());
}
