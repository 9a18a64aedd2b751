//! `--answer`: answers to gates before they ask.

use std::{
    collections::HashSet,
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use flowcell::{
    Channel, Event, Host, Hub, Json, RunId, RunResult, StartError,
    contract::{Choice, Question, Trait},
    graph::{Graph, Node},
    similar,
};

use super::{
    lines::{Subject, callers},
    screen::Screen,
};
use crate::problem::Problem;

/// Splits `gate=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((gate, value)) if !gate.is_empty() => Ok((gate.to_owned(), value.to_owned())),
        _ => Err("write it as gate=value, for example `--answer approve=yes`".into()),
    }
}

/// What a gate receives.
pub(crate) fn answer(value: &str) -> Json {
    Json::object([("content", Json::from(value))])
}

/// Returns the answer for the question at an address: the one for the address, or else the one for its node, for every
/// pass. The last one wins.
pub(super) fn given<'a>(answers: &'a [(String, String)], address: &str) -> Option<&'a (String, String)> {
    let to = |name: &str| answers.iter().rev().find(|(gate, _)| gate == name);
    to(address).or_else(|| (!address.contains('/')).then(|| to(asked_here(address)))?)
}

/// Whether a question takes an answer as it is written.
pub(super) fn is_admitted(question: &Question, value: &str) -> bool {
    question.allow_text || question.choices.iter().any(|choice| choice.value == value)
}

/// Refuses answers to nodes that are not there.
pub(crate) fn check(answers: &[(String, String)], graph: &Graph) -> Result<(), Problem> {
    let ids = || graph.nodes.iter().map(|node| node.id.as_str());
    for (gate, _) in answers {
        let asked = node_of(gate);
        if let Some(node) = graph.nodes.iter().find(|node| node.id.as_str() == asked) {
            check_call(gate, node)?;
            continue;
        }
        let problem = Problem::wrong(format!("the flow has no gate `{gate}`"));
        let gates = gates(graph);
        let problem = match similar(asked, ids()) {
            Some(id) => problem.hint(format!("did you mean `{id}`?")),
            None => problem,
        };
        return Err(match gates.is_empty() {
            true => problem.hint("no node of this flow is known to ask anything"),
            false => problem.hint(format!("its gates are: {}", gates.join(", "))),
        });
    }
    Ok(())
}

/// An answer to `node#call` is for a node that makes calls, and names one of them by its number.
fn check_call(gate: &str, node: &Node) -> Result<(), Problem> {
    let here = gate.split('/').next().unwrap_or(gate);
    let Some((_, call)) = here.split_once('#') else { return Ok(()) };
    if call.parse::<u32>().is_err() {
        return Err(Problem::wrong(format!("`{gate}` names no call")).hint("write its number, as in `assistant#3`"));
    }
    if !node.node_type.traits.iter().any(|found| matches!(found, Trait::Agent)) {
        let id = &node.id;
        return Err(Problem::wrong(format!("`{id}` is no agent and asks about no calls"))
            .hint(format!("answer the node itself: `--answer {id}=…`")));
    }
    Ok(())
}

/// Tells of answers that their questions do not admit, when these are asked, and at the end of those that nothing has asked
/// for: a run may go on without an answer.
pub(super) struct Refusals {
    screen: Arc<Screen>,
    given: Vec<(String, String)>,
    root: OnceLock<RunId>,
    asked: Mutex<HashSet<String>>,
}

impl Refusals {
    /// Watches what becomes of the given answers.
    pub(super) fn new(screen: Arc<Screen>, given: &[(String, String)]) -> Refusals {
        Refusals { screen, given: given.to_vec(), root: OnceLock::new(), asked: Mutex::default() }
    }
}

impl Refusals {
    /// Takes in what a run has asked before this process goes on with it. Its children are not looked through.
    pub(super) fn catch_up(&self, host: &Host, run: &RunId) -> Result<(), StartError> {
        let mut asked = self.asked();
        asked.extend(self.given.iter().map(|(gate, _)| gate).filter(|gate| gate.contains('/')).cloned());
        host.each_event(run, 0, |event| {
            let question = question_of(&event, run.as_str());
            let answered = question.and_then(|(address, _)| given(&self.given, &address));
            asked.extend(answered.map(|(gate, _)| gate.clone()));
            ControlFlow::Continue(())
        })
    }

    fn asked(&self) -> MutexGuard<'_, HashSet<String>> {
        // A panic while the lock was held cannot have left the set half changed.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel for Refusals {
    fn on_start(&self, hub: &Hub) {
        self.root.get_or_init(|| hub.run_id().clone());
    }

    fn on_event(&self, event: &Event) {
        let Some((address, question)) = self.root.get().and_then(|root| question_of(event, root.as_str())) else {
            return;
        };
        let Some((gate, value)) = given(&self.given, &address) else { return };
        self.asked().insert(gate.clone());
        if let Some(takes) = refusal(&question, value) {
            self.screen.warn(&format!("`{gate}` did not take the answer `{value}`; it takes {takes}"));
        }
    }

    fn on_complete(&self, _result: &RunResult) {
        let asked = self.asked();
        for (gate, value) in self.given.iter().filter(|(gate, _)| !asked.contains(gate)) {
            self.screen.warn(&format!("nothing was asked at `{gate}`: the answer `{value}` was not used"));
        }
    }
}

/// Returns the question that an event asks, and its address in the run `root`: a gate's, or an agent's about a call.
pub(super) fn question_of(event: &Event, root: &str) -> Option<(String, Question)> {
    if event.kind == "agent:tool:permission" {
        let address = event.data.get("address")?.as_str()?;
        let choices = ["allow", "deny"].map(|value| Choice { value: value.into(), label: None });
        let question = Question { choices: choices.into(), ..Question::default() };
        return Some((format!("{}{address}", callers(event.run_id.as_str(), root)), question));
    }
    let question = read_question(event.data.get("question")?);
    Some((Subject::of(event, root)?.address, question))
}

/// What a question takes instead of an answer that it does not admit.
fn refusal(question: &Question, value: &str) -> Option<String> {
    let choices: Vec<_> = question.choices.iter().map(|choice| format!("`{}`", choice.value)).collect();
    (!is_admitted(question, value)).then(|| choices.join(", "))
}

/// Reads a question from the event of the pause that asks it.
pub(crate) fn read_question(json: &Json) -> Question {
    let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
    let choices = json.get("choices").and_then(Json::as_array).unwrap_or_default();
    Question {
        prompt: json.get("prompt").map(text).unwrap_or_default(),
        choices: choices.iter().map(|value| Choice { value: text(value), label: None }).collect(),
        allow_text: json.get("allowText").and_then(Json::as_bool).unwrap_or(choices.is_empty()),
        ..Question::default()
    }
}

/// The last part of an address in this flow: `approve` in `process[3].approve`, `review` in `review/approve`, `bot#3` in
/// `each[0].bot#3`.
fn asked_here(address: &str) -> &str {
    let here = address.split('/').next().unwrap_or(address);
    here.rsplit('.').next().unwrap_or(here)
}

/// The node of this flow behind an address.
pub(crate) fn node_of(address: &str) -> &str {
    let here = asked_here(address);
    here.split('#').next().unwrap_or(here)
}

/// Nodes whose types say, in their examples, that they wait for an answer.
fn gates(graph: &Graph) -> Vec<&str> {
    let asks = |wakes: &Vec<String>| wakes.iter().any(|wake| wake == "answer");
    let nodes = graph
        .nodes
        .iter()
        .filter(|node| node.node_type.examples.iter().filter_map(|example| example.pause.as_ref()).any(asks));
    nodes.map(|node| node.id.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_a_node_of_the_flow() {
        let cases = [
            ("approve", "approve"),
            ("process[3].approve", "approve"),
            ("a[0].b[1].c", "c"),
            ("review/approve", "review"),
            ("bot#3", "bot"),
            ("each[0].bot#3", "bot"),
        ];
        for (address, node) in cases {
            assert_eq!(node_of(address), node);
        }
    }

    #[test]
    fn the_nearest_answer_is_taken() {
        let answers = [
            ("a", "first"),
            ("a", "last"),
            ("each[1].a", "of this pass"),
            ("b/a", "of the child"),
            ("bot#3", "of the call"),
        ];
        let answers = answers.map(|(gate, value)| (gate.to_owned(), value.to_owned()));
        let cases = [
            ("a", Some("last")),
            ("each[0].a", Some("last")),
            ("each[1].a", Some("of this pass")),
            ("b/a", Some("of the child")),
            ("c/a", None),
            ("b", None),
            ("each[2].bot#3", Some("of the call")),
            ("bot#4", None),
        ];
        for (address, value) in cases {
            assert_eq!(given(&answers, address).map(|(_, value)| value.as_str()), value, "{address}");
        }
    }
}
