//! `flowcell node fuzz`: runs a node type with generated inputs, and looks for traps, timeouts and outputs that do not fit
//! its schema.

pub(super) mod generate;
mod random;
mod report;
mod shrink;
mod text;

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::{Args, ValueHint};
use flowcell::{
    Json, LoadedFlow,
    contract::code::{
        INVALID_OUTPUT, LIMIT_EXCEEDED, LOST_WORKER, OUT_OF_MEMORY, OUTPUT_TOO_LARGE, SCHEMA_TOO_COSTLY,
        STACK_OVERFLOW, TIMEOUT, TRAP,
    },
};
use serde_json::Value;

use self::generate::Inputs;
use super::{
    subject::{Outcome, Subject, SubjectArgs},
    test::cases::Case,
};
use crate::{
    cli_error::{CliError, Exit},
    owner::block_on,
};

/// Maximum real time of all rounds together.
const MAX_TIME: Duration = Duration::from_secs(300);
/// Maximum real time to make one finding smaller.
const MAX_SHRINK_TIME: Duration = Duration::from_secs(30);
/// Maximum number of runs to make one finding smaller.
const MAX_SHRINK_RUNS: usize = 500;

/// The failure codes that show a mistake of the node or of the host. The node chooses its other failures itself.
pub(super) const MISTAKES: [&str; 8] = [
    TRAP,
    OUT_OF_MEMORY,
    STACK_OVERFLOW,
    INVALID_OUTPUT,
    OUTPUT_TOO_LARGE,
    SCHEMA_TOO_COSTLY,
    LIMIT_EXCEEDED,
    LOST_WORKER,
];

/// Arguments of `flowcell node fuzz`.
#[derive(Args)]
pub(super) struct FuzzArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// The seed of the inputs; the same seed gives the same inputs
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
    /// The number of inputs, 1 to 100000
    #[arg(long, value_name = "N", default_value = "256", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// The real time of one run in milliseconds, 1 to 60000; a longer run is a finding
    #[arg(long, value_name = "MS", default_value = "2000", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
    /// Write the input of the first finding to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    save: Option<PathBuf>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// A mistake of the node, with the smallest known input that shows it.
struct Finding {
    code: String,
    message: String,
    round: u64,
    input: Value,
    /// The size in bytes of the first input that showed the mistake, as JSON.
    first_bytes: usize,
    /// The number of runs that were used to make the input smaller.
    runs: usize,
}

/// The result of all rounds.
#[derive(Default)]
struct Fuzzed {
    rounds: u64,
    took: Duration,
    /// The number of runs with each outcome: a failure code, `succeeded` or `waits`.
    outcomes: BTreeMap<String, usize>,
    /// The findings, one of each code.
    findings: Vec<Finding>,
}

pub(super) fn execute(args: &FuzzArgs) -> Result<Exit, CliError> {
    let subject = args.subject.open(|builder| builder)?;
    let flow = subject.load(&subject.case)?;
    let fuzzing = Fuzzing { subject: &subject, flow, limit: Duration::from_millis(args.timeout_ms) };
    let fuzzed = block_on(fuzzing.all(args))??;
    if let (Some(file), Some(finding)) = (&args.save, fuzzed.findings.first()) {
        fs::write(file, format!("{}\n", finding.input))
            .map_err(|error| CliError::wrong(format!("cannot write {}", file.display())).because(&error))?;
    }
    report::print(args, &subject, &fuzzed)?;
    Ok(if fuzzed.findings.is_empty() { Exit::Good } else { Exit::Failed })
}

/// Runs of one node with different inputs.
struct Fuzzing<'a> {
    subject: &'a Subject,
    flow: LoadedFlow,
    limit: Duration,
}

impl Fuzzing<'_> {
    /// Runs all rounds, or as many as the time allows.
    async fn all(&self, args: &FuzzArgs) -> Result<Fuzzed, CliError> {
        let inputs = self.inputs();
        let (began, mut fuzzed) = (Instant::now(), Fuzzed::default());
        for round in 0..args.rounds {
            if began.elapsed() >= MAX_TIME {
                break;
            }
            let input = inputs.input(args.seed, round);
            let (outcome, message) = self.try_input(&input).await?;
            fuzzed.rounds += 1;
            *fuzzed.outcomes.entry(outcome.clone()).or_default() += 1;
            let is_known = fuzzed.findings.iter().any(|finding| finding.code == outcome);
            if let Some(message) = message.filter(|_| !is_known) {
                fuzzed.findings.push(self.smallest(outcome, message, round, input).await?);
            }
        }
        fuzzed.took = began.elapsed();
        Ok(fuzzed)
    }

    /// Returns the source of the inputs: the schema, and as models the examples and the given input.
    fn inputs(&self) -> Inputs<'_> {
        let node = &self.subject.node;
        let given = self.subject.case.input.as_ref().map(Json::to_serde);
        let examples = node.examples.iter().map(|example| example.input.clone());
        let models = given.into_iter().chain(examples).filter(Value::is_object).collect();
        Inputs { schema: &node.input, models }
    }

    /// Runs the node with an input. Returns the name of the outcome, and a message if the outcome is a mistake.
    async fn try_input(&self, input: &Value) -> Result<(String, Option<String>), CliError> {
        let case = Case { input: Some(Json::from(input.clone())), ..self.subject.case.clone() };
        Ok(match self.subject.run(&self.flow, &case, self.limit, None).await? {
            Outcome::Succeeded => ("succeeded".to_owned(), None),
            Outcome::Waits => ("waits".to_owned(), None),
            Outcome::Overdue => {
                (TIMEOUT.to_owned(), Some(format!("it runs longer than {} ms", self.limit.as_millis())))
            }
            Outcome::Failed(failure) => {
                let message = MISTAKES.contains(&&*failure.code).then_some(failure.message);
                (failure.code, message)
            }
        })
    }

    /// Returns a finding with the smallest input that has the same outcome.
    async fn smallest(&self, code: String, message: String, round: u64, input: Value) -> Result<Finding, CliError> {
        let first_bytes = input.to_string().len();
        let (began, mut runs) = (Instant::now(), 0);
        let (mut best, mut best_message) = (input, message);
        loop {
            let mut found = None;
            for smaller in shrink::smaller(&best) {
                if runs >= MAX_SHRINK_RUNS || began.elapsed() >= MAX_SHRINK_TIME {
                    break;
                }
                runs += 1;
                let (outcome, message) = self.try_input(&smaller).await?;
                if let Some(message) = message.filter(|_| outcome == code) {
                    found = Some((smaller, message));
                    break;
                }
            }
            let Some(found) = found else { break };
            (best, best_message) = found;
        }
        Ok(Finding { code, message: best_message, round, input: best, first_bytes, runs })
    }
}
