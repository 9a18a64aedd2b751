//! `--answer`: answers to gates before they ask.

use flowcell::{Json, RunResult, Waiting, graph::Graph, similar};

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

/// Whether an answer is for the node at this address: it is named so, or by its id alone, for every pass.
pub(super) fn is_for(gate: &str, address: &str) -> bool {
    gate == address || (!address.contains('/') && asked_here(address) == gate)
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

/// Answers that their questions do not admit, and why.
pub(super) fn refused(answers: &[(String, String)], result: &RunResult) -> Vec<String> {
    let why = |gate: &str, value: &str| {
        let question = result.waiting.iter().find_map(|waiting| match waiting {
            Waiting::Answer { address, question } if is_for(gate, address) => Some(question),
            _ => None,
        })?;
        let choices: Vec<_> = question.choices.iter().map(|choice| format!("`{}`", choice.value)).collect();
        Some(format!("`{gate}` did not take the answer `{value}`; it takes {}", choices.join(", ")))
    };
    answers.iter().filter_map(|(gate, value)| why(gate, value)).collect()
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
}
