//! `--answer`: answers to gates before they ask.

use std::sync::{Arc, OnceLock};

use flowcell::{
    Channel, Event, Hub, Json, RunId,
    contract::{Choice, Question},
    graph::Graph,
    similar,
};

use super::{lines::Subject, screen::Screen};
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

/// The answer that was given to the node at this address: to the address, or else to its id, for every pass. The last
/// one wins.
pub(super) fn given<'a>(answers: &'a [(String, String)], address: &str) -> Option<&'a (String, String)> {
    let to = |name: &str| answers.iter().rev().find(|(gate, _)| gate == name);
    to(address).or_else(|| (!address.contains('/')).then(|| to(asked_here(address)))?)
}

/// Refuses answers to nodes that are not there.
pub(super) fn check(answers: &[(String, String)], graph: &Graph) -> Result<(), Problem> {
    let ids = || graph.nodes.iter().map(|node| node.id.as_str());
    for (gate, _) in answers {
        let asked = asked_here(gate);
        if ids().any(|id| id == asked) {
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

/// Tells of answers that their questions do not admit, when these are asked: a run may go on without an answer.
pub(super) struct Refusals {
    screen: Arc<Screen>,
    given: Vec<(String, String)>,
    root: OnceLock<RunId>,
}

impl Refusals {
    /// Watches what becomes of the given answers.
    pub(super) fn new(screen: Arc<Screen>, given: &[(String, String)]) -> Refusals {
        Refusals { screen, given: given.to_vec(), root: OnceLock::new() }
    }
}

impl Channel for Refusals {
    fn on_start(&self, hub: &Hub) {
        self.root.get_or_init(|| hub.run_id().clone());
    }

    fn on_event(&self, event: &Event) {
        let (Some(asked), Some(root)) = (event.data.get("question"), self.root.get()) else { return };
        let Some(subject) = Subject::of(event, root.as_str()) else { return };
        let question = read_question(asked);
        let Some((gate, value)) = given(&self.given, &subject.address) else { return };
        if let Some(takes) = refusal(&question, value) {
            self.screen.warn(&format!("`{gate}` did not take the answer `{value}`; it takes {takes}"));
        }
    }
}

/// What a question takes instead of an answer that it does not admit.
fn refusal(question: &Question, value: &str) -> Option<String> {
    let admitted = question.allow_text || question.choices.iter().any(|choice| choice.value == value);
    let choices: Vec<_> = question.choices.iter().map(|choice| format!("`{}`", choice.value)).collect();
    (!admitted).then(|| choices.join(", "))
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

/// The node of this flow behind an address: `approve` in `process[3].approve`, `review` in `review/approve`.
fn asked_here(address: &str) -> &str {
    let here = address.split('/').next().unwrap_or(address);
    here.rsplit('.').next().unwrap_or(here)
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
        ];
        for (address, node) in cases {
            assert_eq!(asked_here(address), node);
        }
    }

    #[test]
    fn the_nearest_answer_is_taken() {
        let answers = [("a", "first"), ("a", "last"), ("each[1].a", "of this pass"), ("b/a", "of the child")];
        let answers = answers.map(|(gate, value)| (gate.to_owned(), value.to_owned()));
        let cases = [
            ("a", Some("last")),
            ("each[0].a", Some("last")),
            ("each[1].a", Some("of this pass")),
            ("b/a", Some("of the child")),
            ("c/a", None),
            ("b", None),
        ];
        for (address, value) in cases {
            assert_eq!(given(&answers, address).map(|(_, value)| value.as_str()), value, "{address}");
        }
    }
}
