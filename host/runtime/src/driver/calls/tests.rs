//! A call leaves at most once, and has at most one end.

use std::{
    future::ready,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use flowcell_contract::{Admission, Call, Caller, Capability, Effect, Failure, Grants, Outgoing, Tenant, Value, code};
use futures_util::{FutureExt, future::BoxFuture};

use super::{CallKey, Calls, Ended};
use crate::driver::testing::task;

/// A capability that replies at once. Its function `broken` panics.
struct Echo;

impl Capability for Echo {
    fn admit(&self, _: &Call, _: &Caller) -> Result<Admission, Failure> {
        unreachable!("calls are admitted before the driver has them")
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        match &*outgoing.call.function {
            "broken" => async { panic!("broken") }.boxed(),
            _ => ready(Ok(Value::null())).boxed(),
        }
    }
}

fn key(ordinal: u32) -> CallKey {
    (task(0), 1, ordinal)
}

fn outgoing(function: &str, effect: Effect) -> Outgoing {
    let caller = Caller {
        tenant: Tenant::local(),
        run_id: "run-1".into(),
        pin: "planned".into(),
        node_id: "n0".into(),
        node_type: "test".into(),
        grants: Arc::new(Grants::default()),
        effect,
        config: Value::null(),
    };
    let call = Call { interface: "echo".into(), function: function.into(), args: Value::null() };
    let (progress, prepared, attempt_end) = Default::default();
    Outgoing { caller, call, effect, key: "key".into(), progress, prepared, lost: 0, attempt_end }
}

fn make(calls: &mut Calls, ordinal: u32, function: &str, effect: Effect) {
    let echo: Arc<dyn Capability> = Arc::new(Echo);
    calls.set_leaving(key(ordinal));
    calls.make(key(ordinal), &echo, outgoing(function, effect));
}

fn poll(calls: &mut Calls) -> Poll<Ended> {
    calls.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_call_that_is_settled_has_no_end_of_its_own() {
    let mut calls = Calls::default();
    make(&mut calls, 1, "echo", Effect::Once);
    make(&mut calls, 2, "echo", Effect::Once);
    calls.settle(key(1));
    assert!(matches!(poll(&mut calls), Poll::Ready(Ended { call, .. }) if call == key(2)));
    assert!(poll(&mut calls).is_pending());
    assert!(!calls.is_dispatched(key(1)) && calls.is_dispatched(key(2)) && !calls.is_quiet());
    calls.forget(key(2));
    assert!(calls.is_quiet());
}

#[test]
fn calls_have_no_end_after_the_end_of_the_run() {
    let mut calls = Calls::default();
    make(&mut calls, 1, "echo", Effect::Once);
    calls.clear();
    assert!(calls.is_quiet() && poll(&mut calls).is_pending());
}

#[test]
fn a_call_that_waits_for_the_journal_is_not_dispatched_again() {
    let mut calls = Calls::default();
    calls.set_leaving(key(1));
    assert!(calls.is_dispatched(key(1)) && !calls.is_quiet());
    calls.settle(key(1));
    assert!(calls.is_quiet());
}

#[test]
fn a_call_that_needs_approval_is_taken_once_and_not_after_its_end() {
    let mut calls = Calls::default();
    calls.ask(key(1), Box::new(outgoing("echo", Effect::Once)));
    assert!(calls.is_quiet(), "it has not left");
    assert!(calls.take_asked(key(1)).is_some());
    assert!(calls.take_asked(key(1)).is_none());
    calls.ask(key(2), Box::new(outgoing("echo", Effect::Once)));
    calls.settle(key(2));
    assert!(calls.take_asked(key(2)).is_none(), "a call with a recorded end does not leave");
}

#[test]
fn a_panic_in_a_capability_is_ambiguous_only_for_calls_that_must_not_be_repeated() {
    let mut calls = Calls::default();
    for (effect, expected) in [(Effect::Once, code::AMBIGUOUS), (Effect::Idempotent, code::LOST_WORKER)] {
        make(&mut calls, 1, "broken", effect);
        let Poll::Ready(Ended { reply: Err(failure), .. }) = poll(&mut calls) else { panic!("{effect:?}") };
        assert_eq!(failure.code, expected, "{effect:?}");
    }
}
