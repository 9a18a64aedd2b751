//! The checks that run the node types of a pack.

use std::{path::Path, time::Duration};

use flowcell::{
    Diagnostic, Host, Json, LoadError, LoadedFlow, Manifest, NodeType, RunResult, RunStatus,
    contract::{
        BuiltIn, Failure,
        code::{INVALID_INPUT, INVALID_OUTPUT},
    },
};
use serde_json::{Value, json};

use super::check::{Check, Findings, is_code, may_fail_with};
use crate::{
    cli_error::CliError,
    commands::node::{
        fuzz::{MISTAKES, generate::Inputs},
        test::{
            CASES_FOLDER,
            cases::{self, Case},
            examples,
            trial::{self, CaseEnd, CaseRun},
        },
    },
};

/// Events whose place depends on the time at which the answer of a call arrives.
const OF_ANSWERS: [&str; 10] = [
    "agent:tool:error",
    "agent:tool:result",
    "call:error",
    "call:held",
    "call:repeated",
    "call:result",
    "service:error",
    "service:result",
    "task:busy",
    "task:idle",
];
/// Maximum number of members of an input that get values of other types.
const MAX_MEMBERS: usize = 16;
/// Maximum number of characters of an input in a finding.
const MAX_SHOWN_CHARS: usize = 200;

/// The trials of a pack.
pub(super) struct Trials<'a> {
    pub(super) host: &'a Host,
    pub(super) manifest: &'a Manifest,
    /// The folder of the cases.
    pub(super) cases: Option<&'a Path>,
    pub(super) seed: u64,
    pub(super) rounds: u64,
    /// Maximum number of cuts of the run of a case, and of cancels.
    pub(super) cuts: usize,
    /// The real time of one run.
    pub(super) limit: Duration,
}

/// The parts of the end of a run that do not depend on the process.
#[derive(Debug, PartialEq)]
enum End {
    Refused(String),
    Overdue,
    Ended(RunStatus, Json, Option<Failure>),
}

/// A case that a host accepts.
struct Trial<'a> {
    subject: String,
    case: &'a Case,
    flow: LoadedFlow,
}

impl Trials<'_> {
    /// Performs all trials.
    pub(super) async fn perform(&self, findings: &mut Findings) -> Result<(), CliError> {
        let folder = self.cases.unwrap_or(Path::new(CASES_FOLDER));
        let written = match self.cases {
            Some(folder) if !folder.is_dir() => {
                return Err(CliError::wrong(format!("{} is not a folder of cases", folder.display())));
            }
            Some(folder) => cases::read(folder)?,
            None => Vec::new(),
        };
        let examples = examples(self.manifest, &written);
        for node in &self.manifest.nodes {
            let of_node: Vec<_> =
                written.iter().chain(&examples).filter(|case| *case.node_type == *node.name).collect();
            if of_node.is_empty() {
                let why = "the manifest has no example, and `--cases` no case".into();
                findings.skip(Check::Examples, &node.name, why);
            }
            let mut usable = None;
            for case in of_node {
                let case = match &case.example {
                    Some(title) => case.completed(&self.manifest.nodes, title)?,
                    None => case.clone(),
                };
                if let Some(trial) = self.load(node, folder, &case, findings)? {
                    self.try_case(node, &trial, findings).await?;
                    usable.get_or_insert(case);
                }
            }
            self.try_inputs(node, folder, usable, findings).await?;
        }
        Ok(())
    }

    /// Loads the flow of a case. Returns `None` if a host does not accept it.
    fn load<'c>(
        &self,
        node: &NodeType,
        folder: &Path,
        case: &'c Case,
        findings: &mut Findings,
    ) -> Result<Option<Trial<'c>>, CliError> {
        let subject = format!("{} \"{}\"", node.name, case.name);
        match trial::load(self.host, folder, case) {
            Ok(flow) => Ok(Some(Trial { subject, case, flow })),
            Err(LoadError::Host(error)) => Err(error.into()),
            Err(LoadError::Invalid(found)) if case.example.is_some() => {
                let help = "`--cases DIR` gives it grants and replies";
                findings.skip(Check::Examples, &subject, format!("{}; {help}", sentence(&found)));
                Ok(None)
            }
            Err(LoadError::Invalid(found)) => {
                findings.fail(Check::Examples, &subject, sentence(&found));
                Ok(None)
            }
        }
    }

    /// Tries one case in all ways.
    async fn try_case(&self, node: &NodeType, trial: &Trial<'_>, findings: &mut Findings) -> Result<(), CliError> {
        let Trial { subject, case, flow } = trial;
        let first = trial::run(self.host, flow, case, self.limit, None).await?;
        self.judge(node, trial, &first, findings);
        let (end, events) = (End::of(first.end), first.events);
        let again = trial::run(self.host, flow, case, self.limit, None).await?;
        // What is sent to a run arrives between any two of its events.
        let is_sent_to = !case.emit.is_empty() || !case.messages.is_empty();
        let compared = |events: &[Json]| if is_sent_to { Vec::new() } else { of_the_node(events) };
        findings.try_one(Check::Deterministic);
        if let Some(why) = difference(&end, &compared(&events), &End::of(again.end), &compared(&again.events)) {
            findings.fail(Check::Deterministic, subject, why);
        }
        if is_sent_to {
            for check in [Check::Replay, Check::Cancel] {
                findings.skip(check, subject, "it gets events or messages while it runs".into());
            }
            return Ok(());
        }
        if !matches!(end, End::Ended(..)) {
            return Ok(());
        }
        if node.capabilities.iter().any(|request| *request.name == *BuiltIn::Cache.name()) {
            let why = "the cache keeps values of an attempt that was cut, as its contract says";
            findings.skip(Check::Replay, subject, why.into());
        } else {
            self.cut(trial, &end, events.len(), findings).await?;
        }
        self.cancel(trial, reached(&events), findings).await
    }

    /// Compares a run with the expected result of its case.
    fn judge(&self, node: &NodeType, trial: &Trial<'_>, run: &CaseRun, findings: &mut Findings) {
        let Trial { subject, case, .. } = trial;
        for check in [Check::Schemas, Check::Examples, Check::Time] {
            findings.try_one(check);
        }
        let failure = match &run.end {
            CaseEnd::Overdue => return findings.fail(Check::Time, subject, self.overdue()),
            CaseEnd::Ended(result) => result.error.as_ref().map(|error| &error.failure),
            CaseEnd::Refused(_) => None,
        };
        let is_of_schema = match failure {
            Some(failure) => [INVALID_INPUT, INVALID_OUTPUT].contains(&&*failure.code),
            None => matches!(run.end, CaseEnd::Refused(_)),
        };
        let check = if is_of_schema { Check::Schemas } else { Check::Examples };
        for why in trial::differences_of(case, run, self.limit) {
            findings.fail(check, subject, why);
        }
        // A failure of a body or of a reply passes through the node.
        let is_own = case.body.is_none() && case.calls.is_empty();
        if let Some(failure) = failure.filter(|_| is_own) {
            check_failure(node, subject, failure, findings);
        }
    }

    /// Cuts the run of a case after events, and compares the end of the continued run with that of the whole run.
    async fn cut(
        &self,
        trial: &Trial<'_>,
        whole: &End,
        events: usize,
        findings: &mut Findings,
    ) -> Result<(), CliError> {
        for after in spread(events, self.cuts) {
            findings.try_one(Check::Replay);
            let end = trial::run_with_cut(self.host, &trial.flow, trial.case, self.limit, after).await?;
            let end = End::of(end);
            if end != *whole {
                let text = format!("cut after event {after}, {}; without a cut, {}", end.clause(), whole.clause());
                findings.fail(Check::Replay, &trial.subject, text);
                break;
            }
        }
        Ok(())
    }

    /// Cancels the run of a case after events. A run may end before the command arrives.
    async fn cancel(&self, trial: &Trial<'_>, events: usize, findings: &mut Findings) -> Result<(), CliError> {
        for after in spread(events, self.cuts) {
            findings.try_one(Check::Cancel);
            let end = trial::run_with_cancel(self.host, &trial.flow, trial.case, self.limit, after).await?;
            let end = End::of(end);
            let is_over = match end {
                End::Ended(status, ..) => {
                    matches!(status, RunStatus::Cancelled | RunStatus::Succeeded | RunStatus::Failed)
                }
                End::Refused(_) => true,
                End::Overdue => false,
            };
            if !is_over {
                let text = format!("cancelled after event {after}, {}", end.clause());
                findings.fail(Check::Cancel, &trial.subject, text);
                break;
            }
        }
        Ok(())
    }

    /// Runs a node type with inputs of the wrong shape and with generated ones. `usable` is a case with which a host
    /// accepts the type.
    async fn try_inputs(
        &self,
        node: &NodeType,
        folder: &Path,
        usable: Option<Case>,
        findings: &mut Findings,
    ) -> Result<(), CliError> {
        let mut case = usable.unwrap_or_else(|| Case::of_type(&node.name, node));
        // An input may make the node run its body. Its passes then fail.
        if node.body.is_some() {
            case.body.get_or_insert_default();
        }
        let flow = match trial::load(self.host, folder, &case) {
            Ok(flow) => flow,
            Err(LoadError::Host(error)) => return Err(error.into()),
            Err(LoadError::Invalid(found)) => {
                findings.skip(Check::Inputs, &node.name, format!("{}; `--cases DIR` gives grants", sentence(&found)));
                return Ok(());
            }
        };
        let given = case.input.as_ref().map(Json::to_serde);
        let examples = node.examples.iter().map(|example| example.input.clone());
        let models: Vec<Value> = given.into_iter().chain(examples).filter(Value::is_object).collect();
        let wrong = models.first().map(wrong_shapes).unwrap_or_default();
        let inputs = Inputs { schema: &node.input, models };
        let generated = (0..self.rounds).map(|round| inputs.input(self.seed, round));
        for input in wrong.into_iter().chain(generated) {
            findings.try_one(Check::Inputs);
            let case = Case { input: Some(Json::from(input.clone())), ..case.clone() };
            match trial::run(self.host, &flow, &case, self.limit, None).await?.end {
                CaseEnd::Refused(_) => {}
                CaseEnd::Overdue => {
                    // Each further one may take the whole time, too.
                    findings.fail(Check::Time, &format!("{} with {}", node.name, shortened(&input)), self.overdue());
                    break;
                }
                CaseEnd::Ended(result) => {
                    let Some(failure) = result.error.map(|error| error.failure) else { continue };
                    if MISTAKES.contains(&&*failure.code) {
                        let subject = format!("{} with {}", node.name, shortened(&input));
                        findings.fail(Check::Inputs, &subject, failure.to_string());
                        break;
                    }
                    if case.body.is_none() {
                        check_failure(node, &node.name, &failure, findings);
                    }
                }
            }
        }
        Ok(())
    }

    fn overdue(&self) -> String {
        format!("it does not end within {} ms", self.limit.as_millis())
    }
}

impl End {
    fn of(end: CaseEnd) -> End {
        match end {
            CaseEnd::Refused(why) => End::Refused(why),
            CaseEnd::Overdue => End::Overdue,
            CaseEnd::Ended(result) => {
                let RunResult { status, outputs, error, .. } = *result;
                End::Ended(status, outputs, error.map(|error| error.failure))
            }
        }
    }

    /// Returns a clause that tells the end.
    fn clause(&self) -> String {
        match self {
            End::Refused(why) => format!("it is refused: {why}"),
            End::Overdue => "it does not end in time".to_owned(),
            End::Ended(_, _, Some(failure)) => format!("it fails: {failure}"),
            End::Ended(RunStatus::Succeeded, outputs, None) => format!("its outputs are {}", outputs.to_text()),
            End::Ended(status, ..) => format!("it is {}", json!(status)),
        }
    }
}

/// Checks the code and the message of a failure.
fn check_failure(node: &NodeType, subject: &str, failure: &Failure, findings: &mut Findings) {
    findings.try_one(Check::Errors);
    let code = &failure.code;
    if !is_code(code) {
        findings.fail(Check::Errors, subject, format!("the failure code {code:?} is not in snake_case"));
    } else if !may_fail_with(node, code) {
        findings.fail(Check::Errors, subject, format!("the manifest does not list the failure code `{code}`"));
    }
    if failure.message.trim().is_empty() {
        findings.fail(Check::Errors, subject, format!("the failure `{code}` has no message"));
    }
}

/// Returns the type of an event.
fn kind(event: &Json) -> &str {
    event.get("type").and_then(Json::as_str).unwrap_or_default()
}

/// Returns the events whose order follows from the node alone.
fn of_the_node(events: &[Json]) -> Vec<Json> {
    events.iter().filter(|event| !OF_ANSWERS.contains(&kind(event))).cloned().collect()
}

/// Returns a sentence about the first difference of two runs, or `None` if they are equal.
fn difference(one: &End, events: &[Json], other: &End, other_events: &[Json]) -> Option<String> {
    if one != other {
        return Some(format!("{}; again, {}", one.clause(), other.clause()));
    }
    let differs = |number: &usize| events.get(*number) != other_events.get(*number);
    let number = (0..events.len().max(other_events.len())).find(differs)?;
    let shown = |events: &[Json]| events.get(number).map_or_else(|| "missing".to_owned(), Json::to_text);
    Some(format!("event {} is {}; again, it is {}", number + 1, shown(events), shown(other_events)))
}

/// Returns the number of events that a run also has if no answer comes and no time passes: those up to its first pause, and
/// one more, which [`spread`] leaves out.
fn reached(events: &[Json]) -> usize {
    events.iter().position(|event| kind(event) == "task:paused").map_or(events.len(), |at| at + 2)
}

/// Returns at most `most` numbers of events, spread from the first one to the last but one.
fn spread(events: usize, most: usize) -> Vec<usize> {
    let last = if most == 0 { 0 } else { events.saturating_sub(1) };
    let step = last.div_ceil(most.max(1)).max(1);
    (1..=last).step_by(step).collect()
}

/// Returns inputs of the wrong shape: an empty one, one with an unknown member, one without each member, and each member
/// with values of other types.
fn wrong_shapes(model: &Value) -> Vec<Value> {
    let Some(members) = model.as_object() else { return Vec::new() };
    let mut more = members.clone();
    more.insert("flowcell-conformance".to_owned(), json!(1));
    let mut inputs = vec![json!({}), Value::Object(more)];
    let others = [json!(null), json!(true), json!(-1.5), json!(""), json!([]), json!({}), json!([[{ "a": null }]])];
    for key in members.keys().take(MAX_MEMBERS) {
        let mut without = members.clone();
        without.remove(key);
        inputs.push(Value::Object(without));
        for other in &others {
            let mut changed = members.clone();
            changed.insert(key.clone(), other.clone());
            inputs.push(Value::Object(changed));
        }
    }
    inputs
}

/// Returns an input as JSON of at most [`MAX_SHOWN_CHARS`] characters.
fn shortened(input: &Value) -> String {
    let text = input.to_string();
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

/// Returns a sentence about the diagnostics of a flow.
fn sentence(found: &[Diagnostic]) -> String {
    found.iter().map(|found| found.message.as_str()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_spread_over_the_events() {
        for (events, most) in [(0, 12), (1, 12), (9, 0)] {
            assert_eq!(spread(events, most), Vec::<usize>::new());
        }
        assert_eq!(spread(4, 12), [1, 2, 3]);
        let many = spread(1_000, 12);
        assert!(many.len() <= 12 && many[0] == 1 && many.iter().all(|after| *after < 1_000), "{many:?}");
    }

    #[test]
    fn a_cancelled_run_goes_no_further_than_its_first_pause() {
        let event = |kind: &str| Json::object([("type", Json::from(kind))]);
        let events = ["run:start", "task:paused", "task:woken", "task:paused", "run:end"].map(event);
        assert_eq!(spread(reached(&events), 12), [1, 2]);
        assert_eq!(spread(reached(&events[..1]), 12), Vec::<usize>::new());
    }

    #[test]
    fn wrong_shapes_change_one_member_at_a_time() {
        let shapes = wrong_shapes(&json!({ "name": "Ada", "count": 1 }));
        assert!(shapes.contains(&json!({})) && shapes.contains(&json!({ "name": "Ada" })), "{shapes:?}");
        assert!(shapes.contains(&json!({ "name": [], "count": 1 })), "{shapes:?}");
        assert!(wrong_shapes(&json!(1)).is_empty());
    }

    #[test]
    fn long_inputs_are_shown_in_part() {
        let text = shortened(&json!({ "name": "ä".repeat(300) }));
        assert!(text.chars().count() < 230 && text.ends_with(" bytes)"), "{text}");
    }
}
