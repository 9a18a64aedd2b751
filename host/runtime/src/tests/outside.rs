//! A capability that stands for everything outside the host and records each effect, and nodes that call it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, OnceLock},
    task::Poll,
};

use flowcell_contract::{
    Admission, Arrival, Ask, Call, Caller, Calls, Capability, Effect, Failure, Json, Outgoing, Step, StepResult, Value,
    code,
};
use futures_util::future::{self, BoxFuture};

use super::{disk::Disk, pausing::RandomQuotas, readiness::Counter};
use crate::{Event, decide::Entropy, fact::Fact};

/// The capability: records each effect in a ledger outside of the process, and replies with the number of the effect.
pub(super) struct Outside {
    disk: Arc<Disk>,
    ledger: Mutex<Vec<(Arc<str>, Effect)>>,
    wrong: Mutex<Vec<String>>,
    dice: Mutex<Counter>,
    quotas: OnceLock<Arc<RandomQuotas>>,
}

impl Outside {
    pub(super) fn new(disk: Arc<Disk>, seed: u64) -> Outside {
        let dice = Mutex::new(Counter(seed ^ 7));
        Outside { disk, ledger: Mutex::default(), wrong: Mutex::default(), dice, quotas: OnceLock::new() }
    }

    /// Lets quotas refuse some of the calls.
    pub(super) fn set_quotas(&self, quotas: Arc<RandomQuotas>) {
        _ = self.quotas.set(quotas);
    }

    /// Returns the number of the effect with this key, if a call has made one.
    pub(super) fn effect_of(&self, key: &str) -> Option<usize> {
        self.ledger.lock().unwrap().iter().position(|(made, _)| &**made == key)
    }

    /// Checks the ledger. The test may call it at any time.
    pub(super) fn check(&self) {
        let ledger = self.ledger.lock().unwrap();
        let mut once = HashSet::new();
        let twice = ledger.iter().filter(|(_, effect)| *effect == Effect::Once).find(|(key, _)| !once.insert(key));
        assert_eq!(twice, None, "an effect that must not be made twice was");
        assert_eq!(*self.wrong.lock().unwrap(), Vec::<String>::new());
    }

    /// Asserts that a call leaves only after its record is in the journal, and never when the journal has its reply.
    fn witness(&self, outgoing: &Outgoing) {
        let units = self.disk.runs().into_iter().find(|(run, _)| *run == outgoing.caller.run_id);
        let units = units.map(|(_, units)| units).unwrap_or_default();
        let facts: Vec<_> = units.iter().flat_map(|unit| &unit.facts).collect();
        let begun = facts.iter().enumerate().rev().find_map(|(at, fact)| match fact {
            Fact::CallStarted { task, call } if call.key == outgoing.key => Some((at, *task, call.ordinal)),
            _ => None,
        });
        let wrong = match begun {
            None => Some("a call left that the journal does not know"),
            Some((at, begun, number)) => facts[at..]
                .iter()
                .any(|fact| {
                    let lost = |failure: &Failure| failure.code == code::AMBIGUOUS;
                    matches!(fact, Fact::CallEnded { task, ordinal, reply, .. } if (*task, *ordinal) == (begun, number)
                        && !reply.as_ref().is_err_and(|failure| lost(failure)))
                })
                .then_some("a call was made again whose reply is recorded"),
        };
        // The processes that ended while the call was in progress. A held call is not in progress.
        let (mut out, mut resumes) = (false, 0);
        let (from, task, number) = begun.map_or((facts.len(), None, 0), |(at, task, number)| (at, Some(task), number));
        for fact in &facts[from..] {
            match fact {
                Fact::RunResumed { .. } => resumes += usize::from(out),
                Fact::CallStarted { task: of, call } if (Some(*of), call.ordinal) == (task, number) => {
                    out = call.ask.is_none();
                }
                Fact::CallDecided { task: of, ordinal, .. } | Fact::CallRepeated { task: of, ordinal, .. }
                    if (Some(*of), *ordinal) == (task, number) =>
                {
                    out = true;
                }
                Fact::CallHeld { task: of, ordinal, .. } if (Some(*of), *ordinal) == (task, number) => out = false,
                _ => {}
            }
        }
        let lost = if outgoing.effect == Effect::Once { 0 } else { resumes };
        let miscounted = (outgoing.lost as usize != lost).then_some("a call does not know how often it was lost");
        let wrong = wrong.into_iter().chain(miscounted);
        self.wrong.lock().unwrap().extend(wrong.map(|wrong| format!("{wrong}: {outgoing:?}")));
    }
}

impl Capability for Outside {
    fn admit(&self, call: &Call, _: &Caller) -> Result<Admission, Failure> {
        let effect = match &*call.function {
            "once" => Effect::Once,
            "at-least-once" => Effect::AtLeastOnce,
            _ => Effect::Idempotent,
        };
        let ask = (&*call.function == "asked").then(|| Ask {
            prompt: "May it?".into(),
            expires_ms: u64::MAX,
            arguments: None,
        });
        Ok(Admission { ask, ..Admission::new(effect, Json::Null) })
    }

    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>> {
        self.witness(&outgoing);
        if let Some(refusal) = self.quotas.get().and_then(|quotas| quotas.refusal()) {
            return Box::pin(future::ready(Err(refusal)));
        }
        let number = {
            let mut ledger = self.ledger.lock().unwrap();
            ledger.push((outgoing.key, outgoing.effect));
            ledger.len() - 1
        };
        let mut polls = self.dice.lock().unwrap().draw() % 8;
        Box::pin(future::poll_fn(move |context| {
            if polls == 0 {
                return Poll::Ready(Ok(Value::from(Json::from(number as u64))));
            }
            polls -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

/// Returns every capability that the nodes of a plan use.
pub(super) fn capabilities(outside: &Arc<Outside>) -> Arc<HashMap<Arc<str>, Arc<dyn Capability>>> {
    Arc::new(HashMap::from([("outside".into(), outside.clone() as Arc<dyn Capability>)]))
}

/// Makes calls one after the other. The arguments of each call contain the replies to the calls before it, and a state
/// that other tasks write.
pub(super) async fn in_turn(calls: &dyn Calls, functions: &[&str]) -> StepResult {
    let mut replies = Vec::new();
    for function in functions {
        let key = Json::object([("key", Json::from("count"))]);
        let count = calls.call(Call { interface: "state".into(), function: "get".into(), args: key.into() }).await?;
        let seen =
            Json::array([count.json().clone(), Json::array(replies.clone()), Json::from(calls.now_ms().unwrap_or(0))]);
        replies.push(calls.call(outside(function, seen)).await?.json().clone());
    }
    Ok(Step::Done(Value::from(Json::array(replies))))
}

/// Makes calls concurrently. After each end of a call, makes one more call, with what the attempt has seen so far.
pub(super) async fn concurrently(calls: &dyn Calls, functions: &[&str]) -> StepResult {
    let mut replies = Vec::new();
    for function in functions {
        calls.start(outside(function, Json::Null)).await?;
    }
    let mut waits = 0u32;
    while replies.len() < functions.len() {
        waits += 1;
        let timeout = waits.is_multiple_of(2).then_some(3);
        if let Some(Arrival::Ended { id, outcome }) = calls.next(timeout).await {
            replies.push(Json::array([Json::from(id), outcome?.json().clone()]));
            let seen =
                Json::array([Json::array(replies.clone()), Json::from(waits), Json::from(calls.now_ms().unwrap_or(0))]);
            calls.call(outside("idempotent", seen)).await?;
        }
    }
    assert_eq!(calls.next(None).await, None, "nothing can arrive any more");
    Ok(Step::Done(Value::from(Json::array(replies))))
}

/// Makes calls without waiting for them.
pub(super) async fn in_passing(calls: &dyn Calls, functions: &[&str]) -> StepResult {
    for function in functions {
        calls.start(outside(function, Json::Null)).await?;
    }
    Ok(Step::Done(Value::null()))
}

/// Opens an agent run that makes calls, one of which needs the approval of a person, and acts on two messages.
pub(super) async fn as_agent(calls: &dyn Calls) -> StepResult {
    let agent = |function: &str, members: Vec<(&str, Json)>| {
        calls.call(Call { interface: "agent".into(), function: function.into(), args: Json::object(members).into() })
    };
    let inbox = Json::object([("inbox", Json::object::<&str>([]))]);
    let id = agent("open", vec![("about", inbox)]).await?.json().clone();
    let of_agent = |function: &str, seen: Json| Call {
        interface: "outside".into(),
        function: function.into(),
        args: Json::object([("seen", seen), ("agentRunId", id.clone())]).into(),
    };
    let mut heard = Vec::new();
    calls.start(of_agent("asked", Json::Null)).await?;
    calls.start(of_agent("idempotent", Json::from(1u64))).await?;
    let mut ended = 0;
    while heard.len() < 2 || ended < 2 {
        let next = match calls.next(Some(0)).await {
            None => {
                let state = Json::object([("state", Json::from("idle"))]);
                agent("tell", vec![("agentRunId", id.clone()), ("kind", Json::from("state")), ("data", state)]).await?;
                calls.next(None).await
            }
            some => some,
        };
        match next {
            Some(Arrival::Ended { outcome, .. }) => {
                outcome?;
                ended += 1;
            }
            Some(Arrival::Message { value, .. }) => {
                heard.push(value.json().clone());
                let state = Json::object([("state", Json::from("running"))]);
                let told = vec![("agentRunId", id.clone()), ("kind", Json::from("state")), ("data", state)];
                agent("tell", told).await?;
                calls.call(of_agent("once", Json::array(heard.clone()))).await?;
            }
            other => panic!("{other:?}"),
        }
    }
    let result = Json::object([("result", Json::array(heard.clone()))]);
    agent("close", vec![("agentRunId", id.clone()), ("result", result)]).await?;
    Ok(Step::Done(Value::from(Json::object([("heard", Json::array(heard))]))))
}

/// Asserts that an agent run begins before its other events, and has no events after its one end.
pub(super) fn check_agents(events: &[Event]) {
    let mut open = HashMap::new();
    for event in events {
        let Some(id) = event.data.get("agentRunId").and_then(Json::as_str) else { continue };
        match event.kind {
            "agent:start" => assert!(open.insert(id, true).is_none(), "{id} began twice"),
            "agent:complete" | "agent:error" => assert_eq!(open.insert(id, false), Some(true), "{id} ended twice"),
            _ => assert_eq!(open.get(id), Some(&true), "{} of {id}, which is not open", event.kind),
        }
    }
    if events.last().is_some_and(|event| event.kind == "harness:complete") {
        assert!(open.values().all(|open| !open), "an agent run is open after the end");
    }
}

/// Asserts that every begun call has ended before its task did.
pub(super) fn check_ends(facts: &[&Fact]) {
    let mut open = HashSet::new();
    for fact in facts {
        match fact {
            Fact::CallStarted { task, call } => _ = open.insert((*task, call.ordinal)),
            Fact::CallRepeated { task, ordinal, .. } => _ = open.insert((*task, *ordinal)),
            Fact::CallEnded { task, ordinal, .. } | Fact::CallHeld { task, ordinal, .. } => {
                open.remove(&(*task, *ordinal));
            }
            Fact::TaskSucceeded { task, .. } | Fact::TaskFailed { task, .. } | Fact::TaskCancelled { task, .. } => {
                assert!(open.iter().all(|(open, _)| open != task), "a task ended before its calls");
            }
            _ => {}
        }
    }
}

fn outside(function: &str, seen: Json) -> Call {
    Call { interface: "outside".into(), function: function.into(), args: Json::object([("seen", seen)]).into() }
}
