//! `--answer`: answers on the command line to gates, and to questions about agents' calls.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

use flowcell::{
    Channel, Event, Host, Hub, Json, OpenError, QuestionRef, RunCommand, RunId, StartError,
    cases::addresses::{corrected_address, is_gate, node_of, node_part, takes_answers, wrong_call},
    contract::{Choice, Question, Trait},
    graph::{Graph, Node, NodeIx},
    similar, waiting,
};

use super::{
    lines::{Subject, caller_prefix},
    screen::Screen,
};
use crate::{arguments::shell_word, cli_error::CliError};

/// The length of a question's digest in hexadecimal digits.
const DIGEST_DIGITS: usize = 32;
/// Maximum number of open questions that an error names.
const MAX_NAMED_QUESTIONS: usize = 10;

/// Splits `gate=value`. Fails without `=` or with an empty gate.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((gate, value)) if !gate.is_empty() => Ok((gate.to_owned(), value.to_owned())),
        _ => Err("write gate=value, for example `--answer approve=yes`".into()),
    }
}

/// An answer to a question that a run asks or will ask.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedAnswer {
    pub(crate) gate: String,
    pub(crate) value: String,
    /// The digest of the question that the answer is for. `None` answers any question at the gate.
    pub(crate) digest: Option<Box<str>>,
}

/// Splits `gate=value` or `gate@digest=value`.
pub(crate) fn named(text: &str) -> Result<NamedAnswer, String> {
    let (gate, value) = pair(text)?;
    let Some((address, digest)) = gate.split_once('@') else { return Ok(NamedAnswer { gate, value, digest: None }) };
    let is_digest = digest.len() == DIGEST_DIGITS && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if address.is_empty() || !is_digest {
        return Err(format!(
            "`{gate}`: after `@`, write the digest of the question, {DIGEST_DIGITS} hexadecimal digits"
        ));
    }
    Ok(NamedAnswer { gate: address.to_owned(), value, digest: Some(digest.to_ascii_lowercase().into()) })
}

impl NamedAnswer {
    /// Returns the command that gives the answer.
    pub(crate) fn command(&self) -> RunCommand {
        let question = QuestionRef { attempt: None, digest: self.digest.clone() };
        RunCommand::reply(&*self.gate, answer(&self.value), question)
    }

    /// Returns the answer as the pair of gate and value, without the digest.
    pub(crate) fn pair(&self) -> (String, String) {
        (self.gate.clone(), self.value.clone())
    }
}

/// Returns the address for an `--answer` that this program prints. For a question about an agent's call, the digest is
/// added, since the model may later ask about another call at the same address.
pub(crate) fn address_with_digest(address: &str, asked: &QuestionRef) -> String {
    match &asked.digest {
        Some(digest) if address.contains('#') => format!("{address}@{digest}"),
        _ => address.to_owned(),
    }
}

/// Returns the value that a gate receives for an answer.
pub(crate) fn answer(value: &str) -> Json {
    Json::object([("content", Json::from(value))])
}

/// Returns the given answer for the question at an address: one for the address itself, or one for the id of its node,
/// which counts for all passes. An address in a called flow needs an answer of its own.
pub(crate) fn given<'a>(answers: &'a [(String, String)], address: &str) -> Option<&'a (String, String)> {
    let to = |name: &str| answers.iter().find(|(gate, _)| gate == name);
    to(address).or_else(|| (!address.contains('/')).then(|| to(node_part(address)))?)
}

/// Returns true if the question accepts this answer: any text, or one of its choices.
pub(crate) fn is_accepted(question: &Question, value: &str) -> bool {
    question.allow_text || question.choices.iter().any(|choice| choice.value == value)
}

/// Fails if an answer names a node that the flow does not have, or if a question has two different answers.
pub(crate) fn check(answers: &[(String, String)], graph: &Graph) -> Result<(), CliError> {
    refuse_two_answers(answers)?;
    answers.iter().try_for_each(|(gate, _)| check_address(gate, gate, graph, "the flow"))
}

/// Fails if a question has two different answers.
fn refuse_two_answers(answers: &[(String, String)]) -> Result<(), CliError> {
    for (at, (gate, value)) in answers.iter().enumerate() {
        if let Some((_, other)) = answers[..at].iter().find(|(before, other)| before == gate && other != value) {
            return Err(CliError::wrong(format!("`{gate}` has two answers: `{other}` and `{value}`"))
                .hint("name the pass of each answer, as in `process[3].approve`, or remove one"));
        }
    }
    Ok(())
}

/// Checks the answers for an existing run. Fails as [`check`] does, also for addresses in the flows that the run has
/// called, and if an open question does not accept its answer.
pub(crate) fn check_in(host: &Host, root: &RunId, answers: &[(String, String)]) -> Result<(), CliError> {
    refuse_unaccepted(host, root, answers)?;
    for (gate, _) in answers {
        let (mut run, mut rest, mut flow) = (root.clone(), gate.as_str(), "the flow".to_owned());
        loop {
            let checked = check_address(gate, rest, &*host.graph_of_run(&run)?, &flow);
            checked.map_err(|problem| with_open_questions(problem, host, root, gate))?;
            let Some((task, below)) = rest.split_once('/') else { break };
            let called = host.called_by(&run)?;
            // The address leads to a flow that is not called yet, so its nodes are unknown.
            let Some(child) = called
                .into_iter()
                .rev()
                .find(|child| caller_prefix(child.as_str(), run.as_str()) == format!("{task}/"))
            else {
                break;
            };
            flow = format!("the flow that `{task}` calls");
            (run, rest) = (child, below);
        }
    }
    Ok(())
}

/// Fails if a question has two different answers, or if an open question does not accept its answer.
fn refuse_unaccepted(host: &Host, root: &RunId, answers: &[(String, String)]) -> Result<(), CliError> {
    refuse_two_answers(answers)?;
    for (gate, value) in answers {
        let open = waiting::question(host, root, gate)?.map(|open| read_question(&Json::from(open)));
        if let Some(takes) = open.and_then(|question| accepted_if_refused(&question, value)) {
            return Err(CliError::wrong(format!("`{gate}` refused the answer `{value}`; it takes {takes}")));
        }
    }
    Ok(())
}

/// Checks the answers for a run before it moves to another version of its flow. `graph`: that version, if this process
/// has it. Fails if the version has no such node, if an open question does not accept its answer, or if a question has
/// another answer already. With `drops_answers`, the answers from the start of the run do not count after the move, so
/// they are not compared.
pub(crate) fn check_before_move(
    host: &Host,
    run: &RunId,
    answers: &[(String, String)],
    graph: Option<&Graph>,
    drops_answers: bool,
) -> Result<(), CliError> {
    refuse_unaccepted(host, run, answers)?;
    graph.map_or(Ok(()), |graph| check(answers, graph))?;
    let mut recorded = RecordedAnswers::read(host, run, answers)?;
    if drops_answers {
        recorded.kept.clear();
    }
    recorded.check(run, answers)
}

/// Returns the error for an answer to a run that has ended.
pub(crate) fn run_ended_error(run: &RunId, gate: &str) -> CliError {
    CliError::wrong(format!("the run has ended, so `{gate}` takes no answer"))
        .hint(format!("`flowcell runs resume {}` prints the result of the run", shell_word(run.as_str())))
}

/// Replaces the hints of an error by one with the open question whose address is most similar to `gate`, or with the open
/// questions of the run, at most [`MAX_NAMED_QUESTIONS`]. Without open questions, returns the error unchanged.
pub(crate) fn with_open_questions(problem: CliError, host: &Host, run: &RunId, gate: &str) -> CliError {
    let open = waiting::list(host, run).unwrap_or_default();
    let open = open.iter().filter(|open| open["kind"] == "gate").filter_map(|open| open["address"].as_str());
    let open: Vec<_> = open.collect();
    if open.is_empty() {
        return problem;
    }
    match similar(gate, open.iter().copied()).filter(|meant| *meant != gate) {
        Some(meant) => problem.hint_instead(format!("did you mean `{meant}`?")),
        None => {
            let named = open.iter().take(MAX_NAMED_QUESTIONS).map(|address| format!("`{address}`"));
            problem.hint_instead(format!("open questions: {}", named.collect::<Vec<_>>().join(", ")))
        }
    }
}

/// Fails if the flow has no node at `address`. For a called flow, `address` is the part of the whole address `gate`
/// after the call: `approve` of `review/approve`. The error names `gate`.
fn check_address(gate: &str, address: &str, graph: &Graph, flow: &str) -> Result<(), CliError> {
    let ids = || graph.nodes.iter().map(|node| node.id.as_str());
    let asked = node_of(address);
    // In the graph of a run that has moved, a node of the present version comes after one that it replaces.
    let Some(index) = graph.nodes.iter().rposition(|node| node.id.as_str() == asked) else {
        let problem = CliError::wrong(format!("{flow} has no gate `{gate}`"));
        let problem = match similar(asked, ids()) {
            Some(id) => problem.hint(format!("did you mean `{id}`?")),
            None => problem,
        };
        return Err(with_gates(problem, graph));
    };
    let node = NodeIx(index as u32);
    if let Some(passes) = corrected_address(address, node, graph) {
        return Err(CliError::wrong(format!("{flow} has no node at `{gate}`")).hint(format!("write `{passes}`")));
    }
    check_call(address, graph.node(node))?;
    if takes_answers(address, graph.node(node)) {
        return Ok(());
    }
    let problem = CliError::wrong(format!("`{gate}` asks no question, so it takes no answer"));
    if &*graph.node(node).node_type.name == "control.subflow" {
        return Err(
            problem.hint(format!("name a gate of the flow that it calls: `--answer {}/GATE=…`", shell_word(gate)))
        );
    }
    Err(with_gates(problem, graph))
}

/// Adds a hint that names the gates of a flow.
fn with_gates(problem: CliError, graph: &Graph) -> CliError {
    let gates = gate_ids(graph);
    match gates.is_empty() {
        true => problem.hint("no node of this flow is a gate; `flowcell runs show RUN` shows the open questions"),
        false => problem.hint(format!("the gates are {}", gates.join(", "))),
    }
}

/// Checks an address with `#`, such as `node#3`, which names a question about a call. The node has to be an agent, and
/// the call a number.
fn check_call(gate: &str, node: &Node) -> Result<(), CliError> {
    if wrong_call(gate).is_some() {
        return Err(CliError::wrong(format!("`{gate}` does not name a call"))
            .hint("write the number of the call without a sign and without zeros in front, as in `assistant#3`"));
    }
    if !gate.split('/').next().is_some_and(|here| here.contains('#')) {
        return Ok(());
    }
    if !node.node_type.traits.iter().any(|found| matches!(found, Trait::Agent)) {
        let id = &node.id;
        return Err(CliError::wrong(format!("`{id}` is not an agent, so it does not ask about calls"))
            .hint(format!("answer the node itself: `--answer {}=…`", shell_word(id.as_str()))));
    }
    Ok(())
}

/// A channel that warns if a question of the run does not accept the answer that the command line gives for it.
pub(crate) struct Refusals {
    screen: Arc<Screen>,
    given: Vec<(String, String)>,
    root: OnceLock<RunId>,
}

impl Refusals {
    /// Creates the channel for the given answers.
    pub(crate) fn new(screen: Arc<Screen>, given: &[(String, String)]) -> Refusals {
        Refusals { screen, given: given.to_vec(), root: OnceLock::new() }
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
        if let Some(takes) = accepted_if_refused(&question, value) {
            self.screen.warn(&format!("`{gate}` refused the answer `{value}`; it takes {takes}"));
        }
    }
}

/// The questions of a run and their answers, as the journal records them.
pub(crate) struct RecordedAnswers {
    /// The last answer to each question for which an answer is given, by the gate as the user wrote it. `None` for an
    /// open question.
    answers: HashMap<String, Option<String>>,
    /// The answers that the run got when it started, for questions that it may ask later, by address.
    kept: HashMap<String, String>,
    is_over: bool,
}

impl RecordedAnswers {
    /// Reads the events of a run, and of those called runs to which an address in `given` leads.
    pub(crate) fn read(host: &Host, run: &RunId, given: &[(String, String)]) -> Result<RecordedAnswers, StartError> {
        let record = host.record(run).map_err(OpenError::Store)?;
        let kept = record.into_iter().flat_map(|record| record.answers);
        let kept = kept.filter_map(|(gate, answer)| Some((gate, answer.get("content")?.as_str()?.to_owned())));
        let mut recorded = RecordedAnswers { answers: HashMap::new(), kept: kept.collect(), is_over: false };
        recorded.record_events(host, run, run, given)?;
        Ok(recorded)
    }

    fn record_events(
        &mut self,
        host: &Host,
        run: &RunId,
        root: &RunId,
        answers: &[(String, String)],
    ) -> Result<(), StartError> {
        host.each_event(run, 0, |event| {
            self.is_over |= run == root && event.kind == "harness:complete";
            if let Some((address, _)) = question_of(&event, root.as_str())
                && let Some((gate, _)) = given(answers, &address)
            {
                self.answers.insert(gate.clone(), None);
            }
            if event.kind == "session:reply"
                && let Some(replied) = Subject::of(&event, root.as_str())
                && let Some((gate, _)) = answers.iter().find(|(gate, _)| *gate == replied.address)
            {
                let text = |name| event.data.get("answer")?.get(name)?.as_str();
                self.answers.insert(gate.clone(), text("choice").or_else(|| text("content")).map(str::to_owned));
            }
            ControlFlow::Continue(())
        })?;
        for child in host.called_by(run)? {
            let above = caller_prefix(child.as_str(), root.as_str());
            if answers.iter().any(|(gate, _)| gate.starts_with(&above)) {
                self.record_events(host, &child, root, answers)?;
            }
        }
        Ok(())
    }

    /// Fails if the run has ended and an answer is given.
    pub(crate) fn check_open(&self, run: &RunId, given: &[(String, String)]) -> Result<(), CliError> {
        match given.first() {
            Some((gate, _)) if self.is_over => Err(run_ended_error(run, gate)),
            _ => Ok(()),
        }
    }

    /// Fails if a given answer differs from the recorded answer to its question. If the run has not asked the question
    /// yet, compares with the answer that was given when the run started.
    pub(crate) fn check(&self, run: &RunId, given: &[(String, String)]) -> Result<(), CliError> {
        let kept = given.iter().find_map(|(gate, value)| {
            let kept = self.kept.get(gate).filter(|kept| *kept != value && !self.answers.contains_key(gate))?;
            Some((gate, value, kept))
        });
        if let Some((gate, value, kept)) = kept.filter(|_| !self.is_over) {
            return Err(CliError::wrong(format!(
                "the run started with the answer `{kept}` for `{gate}`, which has not asked yet, so `{value}` is \
                 refused"
            ))
            .hint("remove the answer, or start a new run"));
        }
        match self.other(given).next() {
            None => Ok(()),
            Some((gate, value, other)) => {
                Err(CliError::wrong(format!("`{gate}` already has the answer `{other}`, so `{value}` is too late"))
                    .hint(format!("`flowcell runs retry {} --from NODE` asks again", shell_word(run.as_str()))))
            }
        }
    }

    /// Returns a warning for each answer that was not used.
    pub(crate) fn unused(&self, given: &[(String, String)]) -> Vec<String> {
        let never = given.iter().filter(|(gate, _)| !self.answers.contains_key(gate));
        let never = never.map(|(gate, value)| match self.kept.get(gate).filter(|_| !self.is_over) {
            Some(kept) => format!("`{gate}` has not asked yet; it will take the answer `{kept}`"),
            None => format!("`{gate}` did not ask, so the answer `{value}` was not used"),
        });
        let other = self.other(given).map(|(gate, value, other)| {
            format!("`{gate}` already has the answer `{other}`, so `{value}` was not used")
        });
        never.chain(other).collect()
    }

    /// Returns the given answers that differ from the recorded ones, as gate, given value and recorded value.
    fn other<'a>(&'a self, given: &'a [(String, String)]) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
        given.iter().filter_map(|(gate, value)| {
            let answered = self.answers.get(gate)?.as_deref()?;
            (answered != value).then_some((gate.as_str(), value.as_str(), answered))
        })
    }
}

/// Returns the question of a gate or about an agent's call in an event, with its address in the run `root`. Returns
/// `None` if the event has no question.
pub(crate) fn question_of(event: &Event, root: &str) -> Option<(String, Question)> {
    let question = event.data.get("question")?;
    let address = match question.get("address").and_then(Json::as_str) {
        Some(address) => format!("{}{address}", caller_prefix(event.run_id.as_str(), root)),
        None => Subject::of(event, root)?.address,
    };
    Some((address, read_question(question)))
}

/// If the question does not accept `value`, returns the answers that it accepts, as a text. Otherwise returns `None`.
pub(crate) fn accepted_if_refused(question: &Question, value: &str) -> Option<String> {
    let choices: Vec<_> = question.choices.iter().map(|choice| format!("`{}`", choice.value)).collect();
    (!is_accepted(question, value)).then(|| choices.join(", "))
}

/// Reads a question from its JSON in an event or in a list of open waits. Missing members get defaults.
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

/// Returns the ids of the nodes that are gates.
fn gate_ids(graph: &Graph) -> Vec<&str> {
    graph.nodes.iter().filter(|node| is_gate(node)).map(|node| node.id.as_str()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn an_answer_may_contain_the_digest_of_its_question() {
        let digest = "0123456789abcdef0123456789ABCDEF";
        let answer = named(&format!("bot#3@{digest}=a@b=c")).unwrap();
        assert_eq!(answer.pair(), ("bot#3".into(), "a@b=c".into()));
        assert_eq!(answer.digest.as_deref(), Some(&*digest.to_ascii_lowercase()));
        assert_eq!(named("bot=a@b").unwrap().digest, None);
        for wrong in ["bot@=a", "bot@12=a", &format!("@{digest}=a"), &format!("bot@{digest}0=a"), "bot", "=a"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_for_one_pass_takes_precedence() {
        let answers =
            [("a", "of the node"), ("each[1].a", "of this pass"), ("b/a", "of the child"), ("bot#3", "of the call")];
        let answers = answers.map(|(gate, value)| (gate.to_owned(), value.to_owned()));
        let cases = [
            ("a", Some("of the node")),
            ("each[0].a", Some("of the node")),
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
