//! Runs node types without a host, for a pack's own tests.

use serde_json::{Map, Value};

#[cfg(not(target_family = "wasm"))]
pub use crate::script::{RecordedCall, Script, reply};
use crate::{
    failure::{Failure, Result},
    source::Source,
    step::{Output, Step},
    task::{Given, Task},
};

/// The result of a node. Each reference to a part of the input or the wake is replaced with that part, as the host
/// does.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The output.
    Output(Value),
    /// The pause: the names of its wakes, and its state.
    Pause(Vec<&'static str>, Value),
    /// The failure.
    Failure(Failure),
}

/// Performs one task of a node type without a host. `run` is the function `run_node` that [`pack!`](crate::pack)
/// defines.
pub fn run(run: impl FnOnce(&str, &Task) -> Result<Step>, node_type: &str, given: Given) -> Outcome {
    match run(node_type, &Task::given(given.clone())) {
        Ok(Step::Done(output)) => match resolve_references(output, &given) {
            Some(output) => Outcome::Output(output),
            None => Outcome::Failure(Failure::new("missing_part", "the output names a part that does not exist")),
        },
        Ok(Step::Pause(pause)) => Outcome::Pause(pause.until.iter().map(|wake| wake.name()).collect(), pause.state),
        Err(failure) => Outcome::Failure(failure),
    }
}

/// The outcome of a task that ran with a script as its host.
#[cfg(not(target_family = "wasm"))]
#[derive(Clone, Debug, PartialEq)]
pub struct Played {
    /// The result of the node.
    pub outcome: Outcome,
    /// The calls of the node, in order.
    pub calls: Vec<RecordedCall>,
    /// The number of acts of the script that did not happen.
    pub remaining_acts: usize,
}

#[cfg(not(target_family = "wasm"))]
impl Script {
    /// Performs one task of a node type on this thread, with this script as its host. `run` is the function `run_node`
    /// that [`pack!`](crate::pack) defines.
    pub fn play(self, run: impl FnOnce(&str, &Task) -> Result<Step>, node_type: &str, given: Given) -> Played {
        let (outcome, rest, calls) = crate::script::play(self, || self::run(run, node_type, given));
        Played { outcome, calls, remaining_acts: rest.acts.len() }
    }
}

#[cfg(not(target_family = "wasm"))]
impl Played {
    /// Returns the arguments of all calls with this name, such as `tools.find`, in the order of the calls.
    pub fn of(&self, name: &str) -> Vec<&Value> {
        self.calls.iter().filter(|call| call.name == name).map(|call| &call.args).collect()
    }
}

fn resolve_references(output: Output, given: &Given) -> Option<Value> {
    let value = |source| match source {
        Source::Value(value) => Some(value),
        Source::Text(text) => serde_json::from_str(&text).ok(),
        Source::Input(pointer) => given.input.pointer(&pointer).cloned(),
        Source::Woken(pointer) => given.woken.as_ref()?.pointer(&pointer).cloned(),
    };
    match output {
        Output::One(source) => value(source),
        Output::Object(members) => {
            let member = |(key, source)| Some((key, value(source)?));
            members.into_iter().map(member).collect::<Option<Map<_, _>>>().map(Value::Object)
        }
    }
}
