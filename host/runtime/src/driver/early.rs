//! Answers from the options of a run to questions that are not open yet.

use std::collections::BTreeMap;

use flowcell_contract::Json;

use crate::{
    command::RunCommand,
    fact::TaskKey,
    question::{self, QuestionRef},
    state::RunState,
};

/// Answers by the address of the asking task or by the id of its node.
///
/// For a call that needs approval, the key ends with `#` and the number of the call. For a child run, the key begins
/// with the address of the calling task and `/`.
#[derive(Clone, Debug, Default)]
pub(crate) struct EarlyAnswers(BTreeMap<String, Json>);

impl From<BTreeMap<String, Json>> for EarlyAnswers {
    fn from(answers: BTreeMap<String, Json>) -> EarlyAnswers {
        EarlyAnswers(answers)
    }
}

impl EarlyAnswers {
    /// Returns the reply to the question that a task asks.
    pub(super) fn to_gate(&self, state: &RunState, key: TaskKey) -> Option<RunCommand> {
        let question = question::gate(state, key).map(|(_, _, asked)| asked).unwrap_or_default();
        self.reply(state, key, "", question)
    }

    /// Returns the reply to the question whether a call may leave. Returns `None` unless the call is one of the first
    /// attempt of its task in this pass, and the options have an answer for the call.
    pub(super) fn to_call(&self, state: &RunState, key: TaskKey, ordinal: u32) -> Option<RunCommand> {
        let loops = state.cycle_of(key.node).is_some();
        state.find(key).filter(|task| task.attempt == 1 || loops && task.tries() == 1)?;
        self.reply(state, key, &format!("#{ordinal}"), QuestionRef::default())
    }

    fn reply(&self, state: &RunState, key: TaskKey, call: &str, question: QuestionRef) -> Option<RunCommand> {
        let gate = format!("{}{call}", state.address(key));
        let of_node = || self.0.get(&format!("{}{call}", state.graph.node(key.node).id));
        let answer = self.0.get(&gate).or_else(of_node)?.clone();
        Some(RunCommand::Reply { gate, answer, question })
    }

    /// Returns the answers for the run that the task at an address calls.
    pub(super) fn below(&self, address: &str) -> EarlyAnswers {
        let below = |(gate, answer): (&String, &Json)| {
            Some((gate.strip_prefix(address)?.strip_prefix('/')?.to_owned(), answer.clone()))
        };
        EarlyAnswers(self.0.iter().filter_map(below).collect())
    }
}

#[cfg(test)]
mod tests {
    use flowcell_contract::Json;

    use super::EarlyAnswers;
    use crate::{
        command::RunCommand,
        driver::testing::{begun, task, task_in},
        tests::graphs::Plan,
    };

    fn answers(names: &[&str]) -> EarlyAnswers {
        let named = |name: &&str| ((*name).to_owned(), Json::from(*name));
        EarlyAnswers(names.iter().map(named).collect())
    }

    fn reply(command: Option<RunCommand>) -> Option<(String, Json)> {
        match command? {
            RunCommand::Reply { gate, answer, .. } => Some((gate, answer)),
            _ => None,
        }
    }

    #[test]
    fn an_answer_is_found_for_its_node_alone() {
        let state = begun(vec![Plan::Ask, Plan::Ask]).state;
        let answers = answers(&["n1", "n1#2", "other/n0"]);
        assert_eq!(reply(answers.to_gate(&state, task(0))), None);
        assert_eq!(reply(answers.to_gate(&state, task(1))), Some(("n1".to_owned(), Json::from("n1"))));
    }

    #[test]
    fn an_answer_about_a_call_counts_for_the_first_attempt() {
        let mut state = begun(vec![Plan::Agent]).state;
        let answers = answers(&["n0#2"]);
        assert_eq!(reply(answers.to_call(&state, task(0), 1)), None, "it is about another call");
        assert_eq!(reply(answers.to_call(&state, task(0), 2)), Some(("n0#2".to_owned(), Json::from("n0#2"))));
        task_in(&mut state, 0).attempt = 2;
        assert_eq!(reply(answers.to_call(&state, task(0), 2)), None);
    }

    #[test]
    fn a_child_gets_the_answers_below_its_task() {
        let below = answers(&["call/ask", "call/inner/ask", "caller/ask", "call"]).below("call");
        assert_eq!(below.0.keys().collect::<Vec<_>>(), ["ask", "inner/ask"]);
    }
}
