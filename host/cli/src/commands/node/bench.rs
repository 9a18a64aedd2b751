//! `flowcell node bench`: measures the calls of a node type beside calls of `control.noop`.

mod report;
mod samples;

use std::time::{Duration, Instant};

use clap::Args;
use flowcell::{Json, Probe};
use serde_json::Value;

use self::samples::{Sample, Samples};
use super::subject::{Runs, Subject, SubjectArgs};
use crate::{
    cli_error::{CliError, Exit},
    owner::block_on,
};

/// The type that each measurement is compared with.
const BASELINE: &str = "control.noop";
/// Maximum number of measured calls.
const MAX_CALLS: usize = 100_000;

/// Arguments of `flowcell node bench`.
#[derive(Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Measure for this time, 1 to 60 seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// The result of a measurement.
struct Measured {
    /// The source of the input.
    input: String,
    took: Duration,
    node: Samples,
    baseline: Samples,
}

pub(super) fn execute(args: &BenchArgs) -> Result<Exit, CliError> {
    let mut subject = args.subject.open(|builder| builder)?;
    let input = subject.complete_input();
    let measured = block_on(measure(&subject, input, Duration::from_secs(args.seconds)))??;
    report::print(&subject, &measured, args.json)?;
    Ok(Exit::Good)
}

/// Runs the node and the baseline in turn until the time is over, but at least once each after a first run that is not
/// counted.
async fn measure(subject: &Subject, input: String, time: Duration) -> Result<Measured, CliError> {
    let value = Json::from(serde_json::json!({ "value": Value::Null }));
    let (noop, noop_case) = subject.beside(BASELINE, value)?;
    let node = Runs::new(subject, &subject.case, Probe::new(subject.node.name.clone()))?;
    let baseline = Runs::new(subject, &noop_case, Probe::new(noop.name))?;
    sample(&node).await?;
    sample(&baseline).await?;
    let began = Instant::now();
    let (mut of_node, mut of_baseline) = (Samples::default(), Samples::default());
    loop {
        of_node.add(sample(&node).await?);
        of_baseline.add(sample(&baseline).await?);
        if began.elapsed() >= time || of_node.len() >= MAX_CALLS {
            return Ok(Measured { input, took: began.elapsed(), node: of_node, baseline: of_baseline });
        }
    }
}

/// Runs a case once, and returns the cost.
async fn sample(runs: &Runs<'_>) -> Result<Sample, CliError> {
    runs.once().await?;
    Ok(Sample::new(&runs.probe.take_costs()))
}
